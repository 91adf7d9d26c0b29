"""The simulator's API server behind a network that delays, loses and breaks.

:class:`Transport` stands in for :class:`stretto.kube.transport.Transport`: everything above it, the
client, reflectors, leases and events, is the real code. Whatever reaches the server is carried out
whether its sender lives or not.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from stretto.kube.answers import Response
from stretto.kube.errors import KubeRefused, KubeUnreachable, WatchGone
from stretto.kube.usage import Usage
from stretto.simulator.answers import Refusal
from stretto.simulator.api import ApiServer
from stretto.simulator.records import encode
from stretto.simulator.request import Request
from tests.simulation.world import Host, World

QUEUES_API = "/apis/scheduling.stretto.io/v1alpha1"
GROUPS_API = "/apis/scheduling.k8s.io/v1beta1"
TIMEOUT_S = 2.0
LATE_S = 8.0
CONFIG = SimpleNamespace(url="https://simulated", origin="simulation")
REFUSABLE = ("/binding", "/events", "/status")


class KubeNetwork:
    """The way to the API server, shared by all hosts."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.api = ApiServer(now=self._clock, rng=world.rng)
        self.down_until = 0.0
        """The server cannot be reached before this."""
        self.loss = 0.0
        """How often a request or its answer is lost, or the request arrives late."""
        self.twice = 0.0
        """How often a request arrives a second time, later."""
        self.stalled_until = 0.0
        """Watches tell nothing before this."""
        self.refused = 0.0
        """How often a write that a pod costs is answered 429."""
        self.refusals = 0
        self.queues = False
        """The API of queues is served."""
        self.cut: Callable[[], None] = lambda: None
        self._streams: dict[_Stream, None] = {}

    def _clock(self, later_s: int = 0) -> str:
        second = 1_700_000_000 + int(self.world.now) + later_s
        minutes, seconds = divmod(second, 60)
        hours, minutes = divmod(minutes, 60)
        return f"2030-01-01T{hours % 24:02d}:{minutes:02d}:{seconds:02d}Z"

    def call(self, method: str, path: str, body: Any = None, **params: str) -> Any:
        """The test's own access, without a network; fails on a refusal."""
        data = b"" if body is None else encode(body)
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        answer = self.api.handle(Request(method, path, params, data, kind))
        assert answer.status < 300, (method, path, answer)
        return answer

    def cut_watches(self) -> None:
        """All watches break."""
        for stream in list(self._streams):
            stream.broken = True
            stream.wake()

    def add(self, stream: _Stream) -> None:
        """A watch has begun."""
        self._streams[stream] = None

    def drop(self, stream: _Stream) -> None:
        """A watch has ended."""
        self._streams.pop(stream, None)


class _Stream:
    """A watch in flight."""

    def __init__(self, network: KubeNetwork, path: str) -> None:
        self.network = network
        self.path = path
        self.broken = False
        self.some = asyncio.Event()

    def wake(self) -> None:
        """There are lines, or it broke."""
        self.some.set()


class Transport:
    """One host's connections."""

    def __init__(self, network: KubeNetwork, host: Host) -> None:
        self._network = network
        self._host = host
        self._world = network.world
        self.usage = Usage()
        self.config = CONFIG

    def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def send(
        self,
        method: str,
        path: str,
        data: bytes | None,
        *,
        counted: tuple[str, str],
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        timeout_s: float | None = None,
    ) -> Response:
        """One request."""
        self._host.check()
        world, network = self._world, self._network
        loop = world.loop
        if network.down_until > world.now:
            await asyncio.sleep(0.01)
            self._host.check()
            raise KubeUnreachable("the API server is down", sent=False)
        request = Request(method, path, params or {}, data or b"", content_type)
        answered: asyncio.Future[Response | None] = loop.create_future()
        lost = world.rng.random() if network.loss else 1.0
        name = f"{self._host.name} {method} {path}"

        def reach(*, answer: bool) -> None:
            response = self._carry_out(request)
            world.note(f"{name} -> {response.status}", response.body)
            if answer:
                loop.call_later(world.delay(), deliver, response, context=world.network)

        def deliver(response: Response | None) -> None:
            if not answered.done():
                answered.set_result(response)

        def soon(delay_s: float, *, answer: bool) -> None:
            work = functools.partial(reach, answer=answer)
            loop.call_later(delay_s, work, context=world.network)

        if lost >= 3 * network.loss:
            soon(world.delay(), answer=True)
            if network.twice and world.chance(network.twice):
                world.fault(f"{name}: arrives twice")
                soon(world.rng.random() * LATE_S, answer=False)
        elif lost >= 2 * network.loss:
            world.fault(f"{name}: the answer is lost")
            soon(world.delay(), answer=False)
        elif lost >= network.loss:
            world.fault(f"{name}: arrives late")
            soon(world.rng.random() * LATE_S, answer=True)
        else:
            world.fault(f"{name}: lost")
        nothing = loop.call_later(timeout_s or TIMEOUT_S, deliver, None)
        try:
            response = await answered
        finally:
            nothing.cancel()
        self._host.check()
        if response is None:
            raise KubeUnreachable("nothing came in time")
        self.usage.add(*counted, response.status)
        return response

    async def send_row(
        self, paths: Sequence[str], bodies: Sequence[bytes], *, counted: tuple[str, str]
    ) -> list[Response]:
        """POSTs in order, until one gets no answer; that none was sent is raised."""
        answers: list[Response] = []
        for path, body in zip(paths, bodies, strict=True):
            try:
                answers.append(await self.send("POST", path, body, counted=counted))
            except KubeUnreachable as error:
                if not answers and not error.sent:
                    raise
                break
        return answers

    def _carry_out(self, request: Request) -> Response:
        if request.path == GROUPS_API:
            return Response(200, encode({"resources": [{"name": "podgroups"}]}))
        if request.path == QUEUES_API and self._network.queues:
            return Response(200, encode({"resources": [{"name": "queues"}]}))
        network = self._network
        refusable = network.refused and request.path.endswith(REFUSABLE)
        if refusable and network.world.chance(network.refused):
            network.refusals += 1
            return Response(429, b"{}", retry_after=1.0)
        answer = network.api.handle(request)
        return Response(answer.status, answer.body)

    @asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], *, counted: tuple[str, str], silence_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """A watch."""
        self._host.check()
        network = self._network
        if network.down_until > self._world.now:
            await asyncio.sleep(0.01)
            raise KubeUnreachable("the API server is down", sent=False)
        stream = _Stream(network, path)
        try:
            store, watch = network.api.watch(Request("GET", path, params), wake=stream.wake)
        except Refusal as refusal:
            if refusal.code == 410:
                raise WatchGone(refusal.answer.body.decode()) from None
            raise KubeRefused(f"watch {path}: {refusal.code}", status=refusal.code) from None
        network.add(stream)
        try:
            yield self._pieces(stream, watch, silence_s)
        finally:
            store.unwatch(watch)
            network.drop(stream)
            self.usage.add(*counted, 200)

    async def _pieces(self, stream: _Stream, watch: Any, silence_s: float) -> AsyncIterator[bytes]:
        world, network, loop = self._world, self._network, self._world.loop
        name = f"{self._host.name} watch {stream.path}"
        while True:
            if not watch.lines:
                stream.some.clear()
                silent = loop.call_later(min(silence_s, 30.0), stream.wake)
                try:
                    await stream.some.wait()
                finally:
                    silent.cancel()
                if not (watch.lines or stream.broken):
                    watch.bookmark(network.api.version)
            await asyncio.sleep(max(world.delay(), network.stalled_until - world.now))
            self._host.check()
            if stream.broken or network.down_until > world.now:
                raise KubeUnreachable("the watch broke")
            lines, watch.lines = watch.lines, []
            if lines:
                told = b"".join(lines)
                world.note(name, told)
                yield told
