"""A proxy on one way between two processes, which a scenario can spoil.

It relays bytes and knows nothing of what they mean: what it can do is what a network does. Each
thing that it did is counted, so that a scenario can prove that its fault happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter, deque
from collections.abc import Coroutine
from typing import Any, Self

PIECE = 1 << 16
UP, DOWN = "up", "down"
"""From the client to the server, and back."""


class Connection:
    """One client's connection and ours to the server."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.swallow = False
        """The next answer ends the connection instead of reaching the client."""
        self.watch = False
        """What comes back is a watch's."""
        self.silent = False
        """Nothing comes back any more, and nobody is told."""
        self.due = {UP: 0.0, DOWN: 0.0}
        self.late: dict[str, deque[bytes]] = {UP: deque(), DOWN: deque()}
        """Pieces on their way that are late. Timers may fire in another order than they were set
        in, so each writes whatever is the oldest."""

    def abort(self) -> None:
        """A reset to both ends."""
        for writer in (self.client, self.server):
            writer.transport.abort()


class Link:
    """``async with Link("shard-1>binder", target)``; the client dials :attr:`address`.

    ``target`` is host:port, or the path of a unix socket (then the link listens on ``path``).
    """

    def __init__(
        self, name: str, target: str, *, path: str = "", rng: random.Random | None = None
    ) -> None:
        self.name = name
        self.target = self._home = target
        self.address = path
        self.counts: Counter[str] = Counter()
        self.delay_s: tuple[float, float] = (0.0, 0.0)
        """Least and most that a piece is late; their order is kept."""
        self.rate = 0
        """Bytes a second each way; 0: no limit."""
        self.refuse = False
        """New connections are reset."""
        self.half_open = False
        """An end that goes is not told to the other."""
        self.drop_replies = 0
        """So many answers are lost with their connection."""
        self.copy_chance = 0.0
        """That what the client sends arrives once more, on a connection of its own."""
        self.stall_chance = 0.0
        """That a piece is late by ``stall_s``, as a lost packet is until it is sent again."""
        self.stall_s = 0.2
        self._black: set[str] = set()
        self._cleared = asyncio.Event()
        self._rng = rng or random.Random(0)
        self.connections: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        if self.target.startswith("/"):
            self._server = await asyncio.start_unix_server(self._accept, self.address)
        else:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
            self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- what a scenario asks for -------------------------------------------------------------

    def cut(self) -> None:
        """Reset every connection that is open."""
        for connection in list(self.connections):
            self.counts["reset"] += 1
            connection.abort()

    def lead_to(self, target: str) -> None:
        """New connections go to another server until :meth:`heal`; those that are open end."""
        self.target = target
        self.cut()

    def black(self, *ways: str) -> None:
        """Let nothing through, silently; what was sent arrives after :meth:`heal`."""
        self._black = set(ways or (UP, DOWN))
        self._cleared.clear()

    def heal(self) -> None:
        """Relay as if nothing had been."""
        self.delay_s, self.rate, self.refuse, self.half_open = (0.0, 0.0), 0, False, False
        self.drop_replies, self.stall_chance, self.copy_chance = 0, 0.0, 0.0
        self.target = self._home
        self._black = set()
        self._cleared.set()

    # --- relaying ---------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            if self._server is not None and self._server.is_serving():
                raise
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the server."""
        if self.target.startswith("/"):
            return await asyncio.open_unix_connection(self.target)
        host, _, port = self.target.rpartition(":")
        return await asyncio.open_connection(host, int(port))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuse:
            self.counts["refused"] += 1
            return
        up_reader, up_writer = await self.connect()
        connection = Connection(writer, up_writer)
        self.connections.add(connection)
        pumps = [
            asyncio.ensure_future(self._pump_up(connection, reader)),
            asyncio.ensure_future(self._pump_down(connection, up_reader)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            if self.half_open:
                self.counts["half-open"] += 1
                await asyncio.wait(pumps)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            connection.abort()
            self.connections.discard(connection)

    async def _pump_up(self, connection: Connection, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(PIECE):
            if self.drop_replies:
                self.drop_replies -= 1
                connection.swallow = True
            await self.pass_on(connection, UP, data)
            if self.copy_chance and self._rng.random() < self.copy_chance:
                self.counts["request copied"] += 1
                self._spawn(self._copy(data))

    async def _copy(self, data: bytes) -> None:
        """Send it again on its own, and take note of nothing."""
        with contextlib.suppress(OSError):
            reader, writer = await self.connect()
            writer.write(data)
            await reader.read(PIECE)
            writer.transport.abort()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pump_down(self, connection: Connection, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(PIECE):
            if connection.swallow:
                self.counts["reply dropped"] += 1
                return
            await self.pass_on(connection, DOWN, data)

    async def pass_on(self, connection: Connection, way: str, data: bytes) -> None:
        """Write a piece to its end, when and if the link lets it."""
        writer = connection.server if way == UP else connection.client
        if way == DOWN and connection.silent:
            self.counts["event withheld"] += 1
            return
        if way in self._black:
            self.counts["black-holed"] += 1
            while way in self._black:
                await self._cleared.wait()
        late = self._rng.uniform(*self.delay_s) if self.delay_s[1] else 0.0
        if self.stall_chance and self._rng.random() < self.stall_chance:
            self.counts["lost and sent again"] += 1
            late += self.stall_s
        if self.rate:
            late += len(data) / self.rate
            self.counts["throttled"] += 1
        loop = asyncio.get_running_loop()
        if late or connection.late[way]:
            self.counts["delayed"] += 1
            base = max(loop.time(), connection.due[way]) if self.rate else loop.time()
            connection.due[way] = max(base + late, connection.due[way])
            connection.late[way].append(data)
            loop.call_at(connection.due[way], _write, writer, connection.late[way])
            return
        writer.write(data)
        with contextlib.suppress(OSError):
            await writer.drain()


def _write(writer: asyncio.StreamWriter, late: deque[bytes]) -> None:
    data = late.popleft()
    if not writer.transport.is_closing():
        writer.write(data)
