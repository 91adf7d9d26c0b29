"""The Binder's three conversations: Follow, Propose, Outcomes.

A standby, or a Binder that has not opened yet, greets with "not leader" and ends the stream, so
that dialling every address finds the one that works. Each stream has one writer; what it is to
write next is state (a cursor in a log, a list of verdicts), not a queue that could grow without
bound.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

from binder.committer import CommitLoop
from binder.executor import Executor
from binder.machine import Machine
from binder.prebinder import PreBinder
from binder.proposals import Incoming
from binder.publisher import Publisher
from stretto.aside import put_in_order
from stretto.model.shape import Shape
from stretto.model.unit import Verdict
from stretto.placement.strict import DEFAULT_DIGEST
from stretto.rpc.errors import WireError, check_profiles
from stretto.rpc.handshake import check_protocol, checked_hello
from stretto.rpc.messages import (
    FollowKind,
    FollowMessage,
    FollowRequest,
    OutcomeBatch,
    OutcomeRequest,
    OwnedSet,
    ProposalBatch,
    VerdictBatch,
)
from stretto.snapshot.delta import Delta
from stretto.telemetry.binder_metrics import BinderMetrics

logger = logging.getLogger(__name__)

HEARTBEAT_S = 1.0
STEPS_A_TURN = 64

FollowSend = Callable[[FollowMessage | bytes], Awaitable[None]]
VerdictSend = Callable[[VerdictBatch], Awaitable[None]]
OutcomeSend = Callable[[OutcomeBatch], Awaitable[None]]


class Parts:
    """What the conversations need of an open Binder."""

    def __init__(
        self,
        machine: Machine,
        *,
        publisher: Publisher,
        commits: CommitLoop,
        executor: Executor,
        prebinder: PreBinder,
    ) -> None:
        self.machine = machine
        self.publisher = publisher
        self.commits = commits
        self.executor = executor
        self.prebinder = prebinder

    def changed(self) -> None:
        """A watch has told something."""
        self.commits.changed()
        self.prebinder.seen()


class ShardStream:
    """One shard's proposals and verdicts."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.shard = ""
        self.shapes: dict[int, Shape] = {}
        self.verdicts: list[Verdict] = []
        self.filled = asyncio.Event()


class BinderServer:
    """Handlers for :mod:`stretto.rpc.servers`; closed until :meth:`open` is called."""

    def __init__(
        self,
        *,
        leader: Callable[[], str],
        metrics: BinderMetrics,
        profiles: str = DEFAULT_DIGEST,
    ) -> None:
        self._leader = leader
        self._profiles = profiles
        """Digest of the configuration that proposals have to be decided by."""
        self._metrics = metrics
        self._parts: Parts | None = None
        self._streams: dict[int, ShardStream] = {}
        self._next = 1
        self._subscriber = 0
        self._closed = asyncio.Event()

    def open(self, parts: Parts) -> None:
        """Begin to serve."""
        self._parts = parts
        parts.commits.send_verdicts = self._queue_verdicts

    def close(self) -> None:
        """Lead no more: conversations end, and peers that dial are told so."""
        self._parts = None
        self._closed.set()

    async def _until_closed(self, *conversation: Coroutine[Any, Any, None]) -> None:
        """Converse until a part of that is over, or until :meth:`close`."""
        talking = [asyncio.ensure_future(part) for part in conversation]
        closing = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait([*talking, closing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            over = [part for part in (*talking, closing) if not part.cancel()]
            await asyncio.gather(*talking, closing, return_exceptions=True)
        for part in over:
            part.result()

    def statistics(self) -> dict[str, int]:
        """Streams open now."""
        return {"shards": len(self._streams)}

    # ------------------------------------------------------------ Follow
    async def follow(
        self, requests: AsyncIterator[FollowRequest], send: FollowSend, peer: str
    ) -> None:
        """Send the log from where the follower is, for ever."""
        request = await anext(requests)
        check_protocol(request.protocol, field="FollowRequest.protocol")
        parts = self._parts
        if parts is None:
            leader = self._leader()
            await send(FollowMessage(FollowKind.HEARTBEAT, Delta(), not_leader=leader))
            return
        logger.info("%s follows from (%d, %d).", request.follower, request.epoch, request.sequence)
        self._metrics.followers.inc()
        try:
            await self._until_closed(self._feed(parts, request, send))
        finally:
            self._metrics.followers.dec()

    async def _feed(self, parts: Parts, request: FollowRequest, send: FollowSend) -> None:
        publisher = parts.publisher
        log, cursor = publisher.log, request.sequence
        if log.can_resume(epoch=request.epoch, sequence=cursor):
            await send(publisher.heartbeat(cursor))
        else:
            cursor = await self._send_full(parts, send)
        beats = publisher.steps.count
        while True:
            steps = log.after(cursor, limit=STEPS_A_TURN)
            if steps is None:
                # It fell behind the ring: a full state, not a disconnection.
                cursor = await self._send_full(parts, send)
                continue
            for step in steps:
                await send(step.data)
                cursor = step.sequence
            if not steps:
                seen = await publisher.steps.after(beats, timeout_s=HEARTBEAT_S)
                if seen == beats:
                    await send(publisher.heartbeat(cursor))
                beats = seen

    async def _send_full(self, parts: Parts, send: FollowSend) -> int:
        sequence, messages = parts.publisher.full_state()
        for message in messages:
            await send(message)
        return sequence

    # ------------------------------------------------------------ Propose
    async def propose(
        self, requests: AsyncIterator[ProposalBatch], send: VerdictSend, peer: str
    ) -> None:
        """Take a shard's proposals, give its verdicts."""
        first = await anext(requests, None)
        parts = self._parts
        if parts is None or first is None:
            await send(VerdictBatch(not_leader=self._leader()))
            return
        checked_hello(first.hello, message="ProposalBatch", profiles=self._profiles)
        epoch = parts.machine.cluster.epoch
        stream = ShardStream(self._next)
        self._next += 1
        self._streams[stream.number] = stream
        await send(VerdictBatch(binder_epoch=epoch))
        try:
            self._take(parts, stream, first, peer)
            await self._until_closed(
                self._listen(parts, stream, requests, peer),
                self._write_verdicts(stream, send, epoch),
            )
        finally:
            del self._streams[stream.number]

    async def _listen(
        self, parts: Parts, stream: ShardStream, requests: AsyncIterator[ProposalBatch], peer: str
    ) -> None:
        async for batch in requests:
            await put_in_order(shape for _, shape in batch.shapes)
            self._take(parts, stream, batch, peer)
            await parts.commits.room()

    def _take(self, parts: Parts, stream: ShardStream, batch: ProposalBatch, peer: str) -> None:
        if batch.hello is not None:
            stream.shard = batch.hello.shard
            logger.info("shard %s proposes from %s.", stream.shard, peer)
        stream.shapes.update(batch.shapes)
        incoming = []
        for proposal in batch.proposals:
            try:
                shapes = tuple(stream.shapes[member.shape] for member in proposal.unit.members)
            except KeyError as error:
                raise WireError(f"member names shape {error}, which was not defined") from None
            if len(proposal.nodes) != len(shapes):
                raise WireError(f"{len(shapes)} members and {len(proposal.nodes)} nodes")
            incoming.append(
                Incoming(stream.shard, stream.number, batch.binder_epoch, proposal, shapes)
            )
        if incoming:
            parts.commits.propose(incoming)
        if batch.releases:
            parts.prebinder.release(batch.releases)
        for number in batch.forgotten:
            stream.shapes.pop(number, None)

    def _queue_verdicts(self, number: int, verdicts: list[Verdict]) -> None:
        stream = self._streams.get(number)
        if stream is not None:
            stream.verdicts += verdicts
            stream.filled.set()

    async def _write_verdicts(self, stream: ShardStream, send: VerdictSend, epoch: int) -> None:
        while True:
            await stream.filled.wait()
            stream.filled.clear()
            verdicts, stream.verdicts = stream.verdicts, []
            if verdicts:
                await send(VerdictBatch(binder_epoch=epoch, verdicts=verdicts))

    # ------------------------------------------------------------ Outcomes
    async def outcomes(
        self, requests: AsyncIterator[OutcomeRequest], send: OutcomeSend, peer: str
    ) -> None:
        """Tell a dispatcher how units ended, until it acknowledges."""
        request = await anext(requests)
        parts = self._parts
        # Before its epoch counts: it would supersede that of the dispatcher that we work with.
        check_profiles(request.profiles, self._profiles, peer=f"dispatcher {request.dispatcher}")
        if parts is None or not parts.machine.subscribed(request.dispatcher_epoch):
            await send(OutcomeBatch(not_leader=self._leader()))
            return
        logger.info(
            "dispatcher %s subscribes with epoch %d.", request.dispatcher, request.dispatcher_epoch
        )
        self._subscriber += 1
        ours = self._subscriber
        machine = parts.machine
        epoch = machine.cluster.epoch
        owned = OwnedSet(pod_uid=machine.owned(), complete=True)
        answers: list[OwnedSet] = []
        await send(OutcomeBatch(binder_epoch=epoch, owned=owned))
        self._asked(parts, request, answers)

        async def listen() -> None:
            async for message in requests:
                if self._subscriber != ours:
                    break  # a later subscription has taken over
                self._asked(parts, message, answers)

        await self._until_closed(listen(), self._write_outcomes(parts, send, answers))

    def _asked(self, parts: Parts, request: OutcomeRequest, answers: list[OwnedSet]) -> None:
        machine = parts.machine
        machine.acknowledge(request.acknowledged)
        machine.cluster.read_labels(request.label_keys)
        for uid in request.withdraw:
            binding = machine.withdraw(uid)
            if binding is not None:
                parts.executor.put(binding, binding.withdraw())
        if request.ask:
            answer = OwnedSet()
            for uid in request.ask:
                self._place(machine, uid, answer)
            answers.append(answer)
            parts.publisher.outcomes.beat()
        parts.changed()

    def _place(self, machine: Machine, uid: str, answer: OwnedSet) -> None:
        binding = machine.bindings.get(uid)
        if (binding is not None and not binding.over) or uid in machine.preemptions.claims:
            answer.pod_uid.append(uid)
        elif machine.cluster.knows(uid):
            answer.bound_uid.append(uid)
        else:
            answer.unknown_uid.append(uid)

    async def _write_outcomes(
        self, parts: Parts, send: OutcomeSend, answers: list[OwnedSet]
    ) -> None:
        log, pulse = parts.machine.outcomes, parts.publisher.outcomes
        epoch = parts.machine.cluster.epoch
        told = log.acknowledged
        while True:
            beats = pulse.count
            first, outcomes = log.after(told)
            if outcomes:
                await send(OutcomeBatch(binder_epoch=epoch, first_index=first, outcomes=outcomes))
                told = first + len(outcomes) - 1
            elif answers:
                await send(OutcomeBatch(binder_epoch=epoch, owned=answers.pop(0)))
            else:
                await pulse.after(beats, timeout_s=HEARTBEAT_S)
