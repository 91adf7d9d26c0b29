"""The dialling end: streams, and finding the leader behind a name.

A headless service resolves to the addresses of the active process and its standbys. :class:`Dialer`
opens the stream at all of them at once and keeps the one that greets; the others answer "not
leader" or nothing. No Kubernetes access is needed for that (design §3). A stream owns its channel,
hence its connection: what one stream does cannot stall or cut another.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio

from stretto.config.addresses import split_address
from stretto.rpc.errors import NotLeader, PeerGone, RpcConfigError, RpcError, WireError
from stretto.rpc.security import Security
from stretto.rpc.servers import COMMON_OPTIONS
from stretto.rpc.services import Service

logger = logging.getLogger(__name__)
Out = TypeVar("Out")
In = TypeVar("In")

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    *COMMON_OPTIONS,
    # Every channel its own connection, see the module docstring.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
)
PATIENCE_S = 5.0
"""Seconds of failed attempts before they are worth a warning: roles that start together, or after a
takeover, find each other within it."""
GREETING_S = 3.0
"""Seconds until a peer that accepts the connection but says nothing is given up for this round."""
FIRST_DELAY_S = 0.1
LAST_DELAY_S = 1.0
"""Seconds. A dial costs the dialled a tenth of a millisecond, so even hundreds of shards that wait
for a leader are no load; a start or a takeover waits for this delay."""


class Backoff:
    """Delays between attempts: doubling from 100 ms to 1 s, each shortened at random by up to a
    half so that many peers do not knock in step."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._delay_s = FIRST_DELAY_S

    def next(self) -> float:
        """Seconds to wait before the next attempt."""
        delay_s = self._delay_s * self._rng.uniform(0.5, 1.0)
        self._delay_s = min(LAST_DELAY_S, self._delay_s * 2)
        return delay_s

    def reset(self) -> None:
        """The last attempt worked."""
        self._delay_s = FIRST_DELAY_S


class Stream(Generic[Out, In]):
    """One open stream: send ``Out``, iterate over ``In``.

    The iteration ends when the peer ends the stream in good order or after :meth:`close`; it raises
    PeerGone when the stream breaks and WireError on a malformed message.
    """

    def __init__(
        self, service: Service[Out, In], call: Any, *, channel: grpc.aio.Channel, peer: str
    ) -> None:
        self.peer = peer
        """Address that was dialled."""
        self._service = service
        self._call = call
        self._channel = channel
        self._writing = asyncio.Lock()
        self._closed = False

    async def send(self, message: Out) -> None:
        """Write one message; waits while the peer does not read.

        Raises:
            PeerGone: the stream is broken or closed.
        """
        data = self._service.encode_request(message)
        try:
            async with self._writing:
                await self._call.write(data)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError) as error:
            raise self._gone(error) from None

    async def done_writing(self) -> None:
        """Nothing more will be sent; the peer's iterator ends."""
        try:
            async with self._writing:
                await self._call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # broken already: the reader says so

    async def receive(self) -> In | None:
        """The next message; None when the peer has ended the stream in good order."""
        try:
            raw = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise self._gone(error) from None
        except asyncio.CancelledError:
            # grpc.aio raises this also when the call, not our task, was cancelled.
            if self._closed or (self._call.cancelled() and not _being_cancelled()):
                return None
            raise
        if raw is grpc.aio.EOF:
            await self._check_status()
            return None
        return self._service.decode_response(raw)

    def __aiter__(self) -> AsyncIterator[In]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[In]:
        while (message := await self.receive()) is not None:
            yield message

    async def _check_status(self) -> None:
        code = await self._call.code()
        if code is not grpc.StatusCode.OK and not self._closed:
            raise PeerGone(
                f"{self._service.name} at {self.peer}: {code.name}: {await self._call.details()}"
            )

    async def close(self) -> None:
        """Cut the stream and its connection."""
        self._closed = True
        self._call.cancel()
        await self._channel.close()

    def _gone(self, error: BaseException) -> PeerGone:
        if isinstance(error, grpc.aio.AioRpcError):
            details = str(error.details()).rpartition("last error: ")[2]
            return PeerGone(f"{self._service.name} at {self.peer}: {error.code().name}: {details}")
        return PeerGone(f"{self._service.name} at {self.peer}: {error}")


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def open_channel(address: str, *, security: Security, name: str = "") -> grpc.aio.Channel:
    """A channel to one address; ``name``: the host name that its certificate must carry.

    Raises:
        RpcConfigError: plain text is not allowed there, or an unreadable certificate file.
    """
    credentials = security.channel_credentials(address)
    options: list[tuple[str, int | str]] = list(CHANNEL_OPTIONS)
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=options)
    if name:
        options.append(("grpc.ssl_target_name_override", name))
    return grpc.aio.secure_channel(address, credentials, options=options)


async def open_stream(
    service: Service[Out, In], channel: grpc.aio.Channel, first: Out, *, peer: str = ""
) -> Stream[Out, In]:
    """Open a conversation and send its first message; the stream owns the channel from then on."""
    if service.one_request:
        begin: Any = channel.unary_stream(service.path)
        call = begin(service.encode_request(first))
        return Stream(service, call, channel=channel, peer=peer)
    stream = Stream(service, channel.stream_stream(service.path)(), channel=channel, peer=peer)
    await stream.send(first)
    return stream


async def resolve_all(host: str, port: int) -> list[str]:
    """Every address behind a name, as host:port."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    hosts = dict.fromkeys(str(entry[4][0]) for entry in found)
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in hosts]


class Dialer:
    """Opens streams at the leader behind a name; see the module docstring.

    ``target`` is host:port, or several of them with commas between.
    """

    def __init__(
        self,
        target: str,
        *,
        security: Security,
        rng: random.Random,
        resolve: Callable[[str, int], Awaitable[list[str]]] = resolve_all,
    ) -> None:
        self.target = target
        self._problems: dict[str, str] = {}
        self._targets = [split_address(one) for one in target.split(",")]
        for one in target.split(","):
            security.channel_credentials(one)  # refuse at start, not at the first connection
        self._security = security
        self._rng = rng
        self._resolve = resolve

    @property
    def problem(self) -> str:
        """Why a stream is not open now; empty when the last attempts worked."""
        return "; ".join(self._problems.values())

    async def connect(
        self, service: Service[Out, In], first: Callable[[], Out]
    ) -> tuple[Stream[Out, In], In]:
        """Try until the leader greets; give the stream and the greeting.

        ``first`` makes the first message; it is called for each address of each attempt. Cancel to
        give up.
        """
        backoff, told = Backoff(self._rng), ""
        clock = asyncio.get_running_loop().time
        patient_until = clock() + PATIENCE_S
        while True:
            try:
                found = await self.try_once(service, first)
            except RpcError as error:
                self._problems[service.name] = str(error)
                if clock() > patient_until and told != str(error):
                    told = str(error)
                    logger.warning("%s: %s; trying again", self.target, error)
                await asyncio.sleep(backoff.next())
            else:
                self._problems.pop(service.name, None)
                return found

    async def try_once(
        self, service: Service[Out, In], first: Callable[[], Out]
    ) -> tuple[Stream[Out, In], In]:
        """Dial every address once, keep the first that greets; if there are standbys only, the
        leader that they name, be it of another deployment that shares the Lease.

        Raises:
            NotLeader: somebody answered, but no leader did.
            PeerGone: nobody answered, or the name does not resolve.
        """
        known = await self._addresses()
        tasks = {
            asyncio.create_task(self._greet(service, address, first, name=name))
            for name, address in known
        }
        try:
            return await _first_to_greet(tasks, self.target)
        except NotLeader as standby:
            leader = standby.leader
            if leader in [address for _, address in known] or not self._may_dial(leader):
                raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return await self._greet(service, leader, first, name=self._targets[0][0])

    def _may_dial(self, leader: str) -> bool:
        """Whether what a standby says of its leader is an address that our own rules allow."""
        try:
            address = ipaddress.ip_address(split_address(leader)[0])
            self._security.channel_credentials(leader)
        except (ValueError, RpcConfigError):
            return False
        return not address.is_unspecified

    async def _addresses(self) -> list[tuple[str, str]]:
        """(name, address) of all that may lead; a name that does not resolve is left out unless
        it is the last."""
        found: list[tuple[str, str]] = []
        problem = ""
        for host, port in self._targets:
            try:
                found += [(host, address) for address in await self._resolve(host, port)]
            except OSError as error:
                problem = f"{self.target}: cannot resolve {host}: {error.strerror}"
        if not found and problem:
            raise PeerGone(problem)
        return found

    async def _greet(
        self, service: Service[Out, In], address: str, first: Callable[[], Out], *, name: str
    ) -> tuple[Stream[Out, In], In]:
        channel = open_channel(address, security=self._trusted(), name=name)
        try:
            async with asyncio.timeout(GREETING_S):
                stream = await open_stream(service, channel, first(), peer=address)
                greeting = await stream.receive()
            if greeting is None:
                raise PeerGone(f"{service.name} at {address}: ended before its greeting")
            leader = service.not_leader(greeting)
            if leader is not None:
                raise NotLeader(leader, peer=address)
        except TimeoutError:
            await channel.close()
            raise PeerGone(
                f"{service.name} at {address}: no greeting in {GREETING_S:g} s"
            ) from None
        except BaseException:
            await channel.close()
            raise
        return stream, greeting

    def _trusted(self) -> Security:
        """The name was checked; its numeric addresses need no second permission."""
        return self._security if self._security.tls else Security(insecure=True)


async def _first_to_greet(
    tasks: set[asyncio.Task[tuple[Stream[Out, In], In]]], target: str
) -> tuple[Stream[Out, In], In]:
    waiting = set(tasks)
    problem: RpcError = PeerGone(f"{target}: the name has no address")
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        greeted = [task.result() for task in done if task.exception() is None]
        if greeted:
            for stream, _ in greeted[1:]:
                await stream.close()
            return greeted[0]
        for task in done:
            error = task.exception()
            if isinstance(error, WireError):
                error = PeerGone(f"{target}: malformed greeting: {error}")
            if not isinstance(error, RpcError):
                assert error is not None
                raise error
            if isinstance(error, NotLeader) or not isinstance(problem, NotLeader):
                problem = error
    raise problem
