"""Streams between roles in memory: ordered, delayed, breakable; the codecs are the real ones."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from stretto.rpc.errors import NotLeader, PeerGone
from tests.simulation.world import Died, Host, World

NEXT_S = 1e-9
"""Timers of one moment fire in any order; messages of one stream must not."""


class Pipe:
    """One direction of a stream."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._last = 0.0
        self.broken = False

    def put(self, data: bytes | None) -> None:
        """Send; it arrives after what was sent before."""
        loop = self._world.loop
        self._last = max(self._last + NEXT_S, loop.time() + self._world.delay(most=0.005))
        loop.call_at(self._last, self._arrive, data, context=self._world.network)

    def _arrive(self, data: bytes | None) -> None:
        if not self.broken:
            self._world.note(self._name, data or b"")
            self._queue.put_nowait(data)

    def break_off(self) -> None:
        """Nothing arrives any more; the reader notices."""
        self.broken = True
        self._queue.put_nowait(None)

    async def get(self) -> bytes | None:
        """The next message; None at the end.

        Raises:
            PeerGone: it broke.
        """
        data = await self._queue.get()
        if self.broken:
            self._queue.put_nowait(None)
            raise PeerGone("the stream broke")
        return data


class Call:
    """A stream between two hosts."""

    def __init__(self, network: RpcNetwork, client: Host, server: Host, name: str) -> None:
        self.hosts = (client, server)
        self.name = f"{client.name}->{server.name} {name}"
        self.up = Pipe(network.world, self.name)
        self.down = Pipe(network.world, f"{server.name}->{client.name} {name}")
        self._network = network
        network.calls.append(self)

    def break_off(self) -> None:
        """Both directions end."""
        self.up.break_off()
        self.down.break_off()
        with contextlib.suppress(ValueError):
            self._network.calls.remove(self)


class RpcNetwork:
    """Who listens where, and what is open."""

    def __init__(self, world: World, *, redial_s: float) -> None:
        self.world = world
        self.redial_s = redial_s
        """Between two attempts of a client, about."""
        self.servers: dict[str, list[RpcServer]] = {}
        """Address → who listens there (an active one and its standbys)."""
        self.calls: list[Call] = []

    def cut(self, host: Host) -> None:
        """The host is gone: its streams break."""
        for call in [call for call in self.calls if host in call.hosts]:
            call.break_off()
        for address in self.servers:
            self.servers[address] = [s for s in self.servers[address] if s.host is not host]

    def cut_one(self) -> str:
        """Some stream breaks; its name, '' if there is none."""
        if not self.calls:
            return ""
        call = self.world.rng.choice(self.calls)
        call.break_off()
        return call.name


class RpcServer:
    """Stands in for :class:`stretto.rpc.servers.RpcServer`."""

    def __init__(self, network: RpcNetwork, host: Host, listen: str) -> None:
        self.network = network
        self.host = host
        self.listen = listen
        self.port = 1
        self._handlers: dict[str, tuple[Any, Callable[..., Any]]] = {}

    def add(self, service: Any, handler: Callable[..., Any]) -> None:
        """Serve a conversation."""
        self._handlers[service.name] = service, handler

    async def start(self) -> None:
        """Listen."""
        self.network.servers.setdefault(self.listen, []).append(self)

    async def stop(self, *, grace_s: float) -> None:
        """Listen no more."""
        self.network.cut(self.host)

    async def failed(self) -> None:
        """Whatever a conversation raises ends its host here (:class:`Host`)."""
        await asyncio.Event().wait()

    def accept(self, service: Any, client: Host) -> Call:
        """A client has dialled."""
        call = Call(self.network, client, self.host, service.name)
        self.host.start(self._serve(service, call))
        return call

    async def _serve(self, service: Any, call: Call) -> None:
        _, handler = self._handlers[service.name]

        async def requests() -> AsyncIterator[Any]:
            while (data := await call.up.get()) is not None:
                self.host.check()
                yield service.decode_request(data)

        async def send(message: Any) -> None:
            self.host.check()
            if call.down.broken:
                raise PeerGone("the stream broke")
            data = message if isinstance(message, bytes) else service.encode_response(message)
            call.down.put(data)

        try:
            await handler(requests(), send, call.hosts[0].name)
        except (PeerGone, StopAsyncIteration):
            call.break_off()
        except (Died, asyncio.CancelledError):
            call.break_off()
            raise
        else:
            call.down.put(None)


class Stream:
    """Stands in for :class:`stretto.rpc.channels.Stream`."""

    def __init__(self, service: Any, call: Call, host: Host) -> None:
        self.peer = call.hosts[1].name
        self._service = service
        self._call = call
        self._host = host

    async def send(self, message: Any) -> None:
        """Write one message."""
        self._host.check()
        if self._call.up.broken:
            raise PeerGone("the stream broke")
        self._call.up.put(self._service.encode_request(message))

    async def receive(self) -> Any:
        """The next message, None at the end."""
        data = await self._call.down.get()
        self._host.check()
        return None if data is None else self._service.decode_response(data)

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (message := await self.receive()) is not None:
            yield message

    async def close(self) -> None:
        """Cut it."""
        self._call.break_off()


class Dialer:
    """Stands in for :class:`stretto.rpc.channels.Dialer`."""

    def __init__(self, network: RpcNetwork, host: Host, target: str) -> None:
        self._network = network
        self._host = host
        self.target = target
        self.problem = ""

    async def connect(self, service: Any, first: Callable[[], Any]) -> tuple[Stream, Any]:
        """Try until the leader greets."""
        world = self._network.world
        while True:
            self._host.check()
            for server in list(self._network.servers.get(self.target, ())):
                stream = Stream(service, server.accept(service, self._host), self._host)
                try:
                    await stream.send(first())
                    async with asyncio.timeout(2.0):
                        greeting = await stream.receive()
                    if greeting is None:
                        raise PeerGone("ended before its greeting")
                    leader = service.not_leader(greeting)
                    if leader is not None:
                        raise NotLeader(leader)
                except (PeerGone, NotLeader, TimeoutError):
                    await stream.close()
                else:
                    return stream, greeting
            await asyncio.sleep(self._network.redial_s * (0.5 + world.rng.random()))
