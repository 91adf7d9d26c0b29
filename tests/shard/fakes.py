"""A Binder and a dispatcher, as much of each as a shard sees, over real grpc on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from stretto.model.shape import Shape
from stretto.model.unit import (
    Attempt,
    Cause,
    HandBack,
    Proposal,
    Unit,
    Unplaceable,
    Verdict,
    VerdictKind,
)
from stretto.rpc.messages import (
    FollowKind,
    FollowRequest,
    FromShard,
    ProposalBatch,
    ToShard,
    VerdictBatch,
)
from stretto.rpc.security import Security
from stretto.rpc.servers import RpcServer, add_follow, add_propose, add_work
from stretto.rpc.wire_follow import encode_follow
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import Delta, NodeChange


class FakeBinder:
    """Commits what still has a pod's room; one commit, one step of the log."""

    def __init__(self, nodes: list[NodeChange], *, epoch: int = 1) -> None:
        self.epoch = epoch
        self.state = Snapshot()
        self.state.apply(Delta(epoch=epoch, sequence=1, nodes=nodes))
        self.bound: dict[str, int] = {}
        self.proposals: list[Proposal] = []
        self.resent = 0
        self.follows: list[FollowRequest] = []
        self.gate = asyncio.Event()
        """Verdicts wait for it."""
        self.gate.set()
        self.cut = asyncio.Event()
        """Set it to end the Propose streams once."""
        self._followers: list[asyncio.Queue[bytes]] = []
        self._proposed = asyncio.Event()
        self._numbers: dict[bytes, int] = {}
        self.server = RpcServer("127.0.0.1:0", security=Security())
        add_follow(self.server, self._follow)
        add_propose(self.server, self._propose)

    async def _follow(
        self,
        requests: AsyncIterator[FollowRequest],
        send: Callable[..., Awaitable[None]],
        peer: str,
    ) -> None:
        request = await anext(requests)
        self.follows.append(request)
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._followers.append(queue)
        sequence = self.state.version.sequence
        head = Delta(epoch=self.epoch, sequence=sequence)
        if (request.epoch, request.sequence) == (self.epoch, sequence):
            await send(encode_follow(head, FollowKind.HEARTBEAT))
        else:
            chunks = list(self.state.full_state())
            await send(encode_follow(head, FollowKind.FULL_BEGIN))
            for chunk in chunks:
                await send(encode_follow(chunk, FollowKind.FULL_CHUNK))
            await send(encode_follow(head, FollowKind.FULL_END))
        while True:
            try:
                async with asyncio.timeout(1):
                    data = await queue.get()
            except TimeoutError:
                head = Delta(epoch=self.epoch, sequence=self.state.version.sequence)
                data = encode_follow(head, FollowKind.HEARTBEAT)
            await send(data)

    async def _propose(
        self,
        requests: AsyncIterator[ProposalBatch],
        send: Callable[[VerdictBatch], Awaitable[None]],
        peer: str,
    ) -> None:
        shapes: dict[int, Shape] = {}
        await anext(requests)
        await send(VerdictBatch(self.epoch))
        async for batch in requests:
            shapes.update(batch.shapes)
            self.proposals += batch.proposals
            self._proposed.set()
            self.resent += len(batch.proposals) if batch.resent else 0
            if self.cut.is_set():
                self.cut.clear()
                return
            await self.gate.wait()
            verdicts = [self._decide(proposal, shapes) for proposal in batch.proposals]
            await send(VerdictBatch(self.epoch, verdicts))

    def _decide(self, proposal: Proposal, shapes: dict[int, Shape]) -> Verdict:
        unit = proposal.unit
        (member,) = unit.members
        shape = shapes[member.shape]
        if member.uid in self.bound:
            return Verdict(unit.unit_id, unit.attempt, VerdictKind.SUPERSEDED)
        for node_id in (*proposal.nodes, *proposal.spares):
            if self._fits(shape, node_id):
                sequence = self.publish_pod(member.uid, shape, node_id)
                kind = VerdictKind.COMMITTED
                return Verdict(unit.unit_id, unit.attempt, kind, Cause.NONE, sequence, (node_id,))
        sequence = self.state.version.sequence
        return Verdict(unit.unit_id, unit.attempt, VerdictKind.CONFLICT, Cause.CAPACITY, sequence)

    def _fits(self, shape: Shape, node_id: int) -> bool:
        row = self.state.row_of(node_id)
        if row is None:
            return False
        columns = self.state.resources.columns
        return all(
            columns[name].used[row] + amount <= columns[name].alloc[row]
            for name, amount in (*shape.requests, ("pods", 1))
        )

    def publish_pod(self, uid: str, shape: Shape, node_id: int) -> int:
        """A pod came to a node; gives the sequence."""
        delta = Delta(epoch=self.epoch)
        number = self._numbers.get(shape.digest)
        if number is None:
            number = self._numbers[shape.digest] = len(self._numbers) + 1
            delta.shapes.append((number, shape))
        delta.add_pod(shape_id=number, node_id=node_id, uid=uid)
        self.bound[uid] = node_id
        return self.publish(delta)

    def publish(self, delta: Delta) -> int:
        """Apply a step and send it to every follower."""
        delta.epoch, delta.sequence = self.epoch, self.state.version.sequence + 1
        self.state.apply(delta)
        self.send(encode_follow(delta))
        return delta.sequence

    def send(self, data: bytes) -> None:
        """Send bytes to every follower."""
        for queue in self._followers:
            queue.put_nowait(data)

    async def until_proposed(self, count: int) -> None:
        """Wait until so many proposals have come."""
        while len(self.proposals) < count:
            self._proposed.clear()
            async with asyncio.timeout(10):
                await self._proposed.wait()


class FakeDispatcher:
    """Sends units against credits and notes the answers."""

    def __init__(self, shapes: list[Shape]) -> None:
        self.shapes = shapes
        self.pending: list[Unit] = []
        self.credits: dict[str, int] = {}
        self.settled: list[tuple[str, Attempt]] = []
        self.unplaceable: list[Unplaceable] = []
        self.handed_back: list[HandBack] = []
        self.draining: set[str] = set()
        self.changed = asyncio.Event()
        self._streams: dict[str, Callable[[ToShard], Awaitable[None]]] = {}
        self.server = RpcServer("127.0.0.1:0", security=Security())
        add_work(self.server, self._work)

    async def _work(
        self,
        requests: AsyncIterator[FromShard],
        send: Callable[[ToShard], Awaitable[None]],
        peer: str,
    ) -> None:
        first = await anext(requests)
        assert first.hello is not None
        name = first.hello.shard
        await send(ToShard(1, list(enumerate(self.shapes, 1))))
        self._streams[name] = send
        self.credits[name] = 0
        try:
            async for message in requests:
                self.credits[name] += message.credits
                self.settled += message.settled
                self.unplaceable += message.unplaceable
                self.handed_back += message.handed_back
                if message.draining:
                    self.draining.add(name)
                self.changed.set()
                await self.dispatch()
        finally:
            del self._streams[name], self.credits[name]
            self.changed.set()

    async def dispatch(self) -> None:
        """Send what credits allow."""
        for name, send in list(self._streams.items()):
            count = 0 if name in self.draining else min(self.credits.get(name, 0), 64)
            units, self.pending = self.pending[:count], self.pending[count:]
            if units:
                self.credits[name] -= len(units)
                await send(ToShard(1, units=units))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds after an answer."""
        while not condition():
            self.changed.clear()
            async with asyncio.timeout(10):
                await self.changed.wait()
