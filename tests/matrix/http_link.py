"""A link that understands requests to an API server: it can hold, lose, refuse and repeat them.

Stretto's client sends one request at a time on a connection, so a request is a head, and a body of
a known length; an answer ends where the next request begins. Answers of watches can be repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import enum
import random
import ssl
from collections import Counter

from tests.matrix.link import DOWN, UP, Connection, Link

MOST = 16 << 20


class Act(enum.StrEnum):
    """What happens to a request."""

    HOLD = "hold"
    """It arrives after :meth:`HttpLink.release`, though its sender may be gone by then."""
    LOSE = "lose"
    """It never arrives; its connection ends."""
    SWALLOW = "swallow"
    """It is carried out; its connection ends instead of an answer."""
    REFUSE = "refuse"
    """The link answers ``status`` itself."""
    REPEAT = "repeat"
    """It arrives twice, on another connection the second time."""


@dataclasses.dataclass
class Rule:
    """Which requests suffer what."""

    act: Act
    method: str = "POST"
    ends: str = "/binding"
    """End of the path, the query left out."""
    status: int = 429
    times: int = 1 << 30
    chance: float = 1.0
    struck: int = 0

    def answer(self) -> bytes:
        """Of REFUSE."""
        body = b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d}' % self.status
        more = b"Retry-After: 1\r\n" if self.status == 429 else b""
        return (
            b"HTTP/1.1 %d injected\r\nContent-Type: application/json\r\n%bContent-Length: %d"
            b"\r\n\r\n%b" % (self.status, more, len(body), body)
        )


class HttpLink(Link):
    """See the module docstring."""

    def __init__(
        self,
        name: str,
        target: str,
        *,
        tls: ssl.SSLContext | None = None,
        token: str = "",
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(name, target, rng=rng)
        self._tls = tls
        self._token = token
        self.rules: list[Rule] = []
        self.late: list[int] = []
        """Statuses that the API server answered to held requests."""
        self.methods: Counter[str] = Counter()
        """Requests so far, by method."""
        self.held = 0
        self.repeat_events = 0.0
        """The chance that a piece of a watch is sent again, then or later."""
        self.deaf = False
        """Watches that are opened get no answer."""
        self._released = asyncio.Event()

    @property
    def url(self) -> str:
        """For a kubeconfig."""
        return f"http://{self.address}"

    def on(self, act: Act, **fields: object) -> Rule:
        """Put a rule in force; the first that matches decides."""
        rule = Rule(act, **fields)  # type: ignore[arg-type]
        self.rules.append(rule)
        if act is Act.HOLD:
            self._released = asyncio.Event()
        return rule

    def silence(self, *, lasting: bool = False) -> None:
        """The watches that are open now say nothing more and do not end; ``lasting``: nor do
        those that are opened until :meth:`heal`."""
        self.deaf = lasting
        for connection in self.connections:
            connection.silent = connection.watch

    def release(self) -> None:
        """Held requests arrive now; none is held any more."""
        self.rules = [rule for rule in self.rules if rule.act is not Act.HOLD]
        self._released.set()

    def hold_no_more(self) -> None:
        """Requests pass from now on; those held stay held."""
        self.rules = [rule for rule in self.rules if rule.act is not Act.HOLD]

    def heal(self) -> None:
        super().heal()
        self.rules.clear()
        self.repeat_events = 0.0
        self.deaf = False
        self._released.set()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = self.target.rpartition(":")
        return await asyncio.open_connection(host, int(port), ssl=self._tls, limit=MOST)

    async def _pump_up(self, connection: Connection, reader: asyncio.StreamReader) -> None:
        while (request := await self._read(reader)) is not None:
            method, _, rest = request.partition(b" ")
            self.methods[method.decode()] += 1
            target = rest.split(b" ", 1)[0]
            connection.watch = b"watch=" in target
            connection.silent = connection.silent or (connection.watch and self.deaf)
            path = target.partition(b"?")[0].decode()
            rule = self._rule(method.decode(), path)
            if rule is None:
                await self.pass_on(connection, UP, request)
                continue
            self.counts[rule.act] += 1
            if rule.act is Act.LOSE:
                return
            if rule.act is Act.REFUSE:
                connection.client.write(rule.answer())
                continue
            if rule.act is Act.HOLD:
                self._hold(request)
                continue
            connection.swallow = rule.act is Act.SWALLOW
            await self.pass_on(connection, UP, request)
            if rule.act is Act.REPEAT:
                self._spawn(self._again(request))

    def _rule(self, method: str, path: str) -> Rule | None:
        for rule in self.rules:
            if rule.struck < rule.times and method == rule.method and path.endswith(rule.ends):
                if rule.chance < 1.0 and self._rng.random() >= rule.chance:
                    continue
                rule.struck += 1
                return rule
        return None

    async def _read(self, reader: asyncio.StreamReader) -> bytes | None:
        """A whole request, with our credentials; None at the end."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        length = 0
        for line in head.split(b"\r\n"):
            if line[:15].lower() == b"content-length:":
                length = int(line[15:])
        body = await reader.readexactly(length) if length else b""
        if self._token:
            head = head[:-2] + f"Authorization: Bearer {self._token}\r\n\r\n".encode()
        return head + body

    # --- held and repeated requests -----------------------------------------------------------

    def _hold(self, request: bytes) -> None:
        self.held += 1
        self._spawn(self._late(request, self._released))

    async def _late(self, request: bytes, released: asyncio.Event) -> None:
        await released.wait()
        self.late.append(await self._send_apart(request))

    async def _again(self, request: bytes) -> None:
        self.counts[f"repeated, answered {await self._send_apart(request)}"] += 1

    async def _send_apart(self, request: bytes) -> int:
        """Send it on a connection of its own; the status."""
        reader, writer = await self.connect()
        try:
            writer.write(request)
            return int((await reader.readline()).split()[1])
        finally:
            writer.transport.abort()

    # --- watches ----------------------------------------------------------------------------------

    async def _pump_down(self, connection: Connection, reader: asyncio.StreamReader) -> None:
        if not self.repeat_events:
            await super()._pump_down(connection, reader)
            return
        head = await reader.readuntil(b"\r\n\r\n")
        await self.pass_on(connection, DOWN, head)
        if b"chunked" not in head:
            await super()._pump_down(connection, reader)
            return
        with contextlib.suppress(asyncio.IncompleteReadError):
            await self._repeat_chunks(connection, reader)

    async def _repeat_chunks(self, connection: Connection, reader: asyncio.StreamReader) -> None:
        """Pieces of a watch, some of them twice, and some once more when they are old."""
        old: list[bytes] = []
        while True:
            size = await reader.readuntil(b"\r\n")
            chunk = size + await reader.readexactly(int(size, 16) + 2)
            await self.pass_on(connection, DOWN, chunk)
            if int(size, 16) == 0:
                return
            if self._rng.random() < self.repeat_events:
                old = [*old[-20:], chunk]
                self.counts["event repeated"] += 1
                await self.pass_on(connection, DOWN, self._rng.choice(old))
