"""The shard's three streams: messages between the brain and the network, no decisions.

Each stream is one task that dials, converses and dials again. Deciding is a task of its own, which
yields after every 64 units so that a flood of units never keeps verdicts and deltas waiting.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from scheduler_shard.asking import Question, Reply
from scheduler_shard.extending import Extending
from scheduler_shard.picture import Step
from scheduler_shard.proposed import MESSAGE_UNITS
from scheduler_shard.worker import Shard
from stretto.aside import put_in_order
from stretto.rpc.channels import Backoff, Dialer, Stream
from stretto.rpc.errors import PeerGone, RpcError
from stretto.rpc.messages import (
    FollowMessage,
    FollowRequest,
    FromShard,
    ProposalBatch,
    ShardHello,
    ToShard,
    VerdictBatch,
)
from stretto.rpc.services import FOLLOW, PROPOSE, WORK

logger = logging.getLogger(__name__)
Out = TypeVar("Out")
In = TypeVar("In")


LOOK_AGAIN_S = 1.0
ANSWER_LINGERS = 4
"""Answers wait longer for company than proposals: they only keep the window moving."""
SHORT_S = 5.0
"""A stream that ends within this time of the last one counts as another failure."""


class Pause:
    """The wait between the end of a stream and the next dial.

    None after a stream that lasted, growing when streams break as soon as they are open: a peer
    that refuses us must not be hammered.
    """

    def __init__(self, rng: random.Random) -> None:
        self._backoff = Backoff(rng)
        self._ended_s = float("-inf")

    async def after_stream(self) -> None:
        """A stream has ended."""
        now = time.monotonic()
        if now - self._ended_s > SHORT_S:
            self._backoff.reset()
        else:
            await asyncio.sleep(self._backoff.next())
        self._ended_s = time.monotonic()


class ShardStreams:
    """See the module docstring."""

    def __init__(
        self,
        shard: Shard,
        *,
        hello: ShardHello,
        dispatcher: Dialer,
        binder: Dialer,
        rng: random.Random,
        linger_s: float = 0.001,
        on_round: Callable[[float, int], None] = lambda seconds, units: None,
    ) -> None:
        self.shard = shard
        self.lag_s = 0.0
        """Age of the last stamped message of the log when it came, by the sender's clock."""
        self._hello = hello
        self._dispatcher = dispatcher
        self._binder = binder
        self._rng = rng
        self._linger_s = linger_s
        self._on_round = on_round
        self.extending: Extending | None = None
        """Asks extenders; None: there are none."""
        self._work = asyncio.Event()
        """Something may be decided."""
        self._answers = asyncio.Event()
        self._proposals = asyncio.Event()
        self._moved = asyncio.Event()
        """Something was settled or sent; only draining waits for it."""
        self._connected: dict[str, bool] = {}

    @property
    def ready(self) -> bool:
        """All three streams are open and the snapshot may be decided on."""
        return all(
            self._connected.get(name, False) for name in ("Work", "Follow", "Propose")
        ) and self.shard.may_decide(time.monotonic())

    async def run(self) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(), name="follow")
            group.create_task(self._propose(), name="propose")
            group.create_task(self._serve(), name="work")
            group.create_task(self._decide(), name="decide")
            group.create_task(self._look_again(), name="look again")
            if self.extending is not None:
                group.create_task(self.extending.run(), name="extenders")

    async def drained(self) -> None:
        """Drain the brain and wait until nothing is open."""
        self.shard.drain()
        self._answers.set()
        while not self.shard.idle:
            self._moved.clear()
            await self._moved.wait()

    # ------------------------------------------------------------------------------------- streams
    async def _follow(self) -> None:
        pause = Pause(self._rng)
        while True:
            stream, greeting = await self._binder.connect(FOLLOW, self._follow_request)
            self._connected["Follow"] = True
            await self._converse(
                stream, greeting, self._followed, sender=None, before=self._shapes_in_order
            )
            self._connected["Follow"] = False
            await pause.after_stream()

    async def _shapes_in_order(self, message: FollowMessage) -> None:
        """What placed pods with very many terms ask of others is put in order beside the loop."""
        await put_in_order((shape for _, shape in message.delta.shapes), to_decide=False)

    def _follow_request(self) -> FollowRequest:
        picture = self.shard.picture
        version = picture.snapshot.version
        if not picture.synced:
            return FollowRequest(self._hello.shard)
        return FollowRequest(self._hello.shard, version.epoch, version.sequence)

    def _followed(self, message: FollowMessage) -> None:
        step = self.shard.followed(message, now=time.monotonic())
        for problem in self.shard.picture.unreadable.take():
            logger.error("%s", problem)
        if message.stamp_ms:
            self.lag_s = max(0.0, time.time() - message.stamp_ms / 1000)
        if step is Step.LOST:
            raise PeerGone(f"the log does not continue our snapshot: {self.shard.picture.problem}")
        self._wake()

    async def _propose(self) -> None:
        pause = Pause(self._rng)
        while True:
            stream, greeting = await self._binder.connect(
                PROPOSE, lambda: ProposalBatch(hello=self._hello)
            )
            self.shard.propose_opened(greeting.binder_epoch)
            self._connected["Propose"] = True
            self._proposals.set()
            await self._converse(stream, greeting, self._verdicts, sender=self._send_proposals)
            self._connected["Propose"] = False
            self.shard.propose_lost()
            await pause.after_stream()

    def _verdicts(self, batch: VerdictBatch) -> None:
        self.shard.verdicts(batch, now=time.monotonic())
        self._wake()

    async def _send_proposals(self, stream: Stream[ProposalBatch, VerdictBatch]) -> None:
        while True:
            await self._proposals.wait()
            if self.shard.unsent < MESSAGE_UNITS:
                await asyncio.sleep(self._linger_s)
            self._proposals.clear()
            while (batch := self.shard.take_proposals()) is not None:
                await stream.send(batch)

    async def _serve(self) -> None:
        pause = Pause(self._rng)
        while True:
            stream, greeting = await self._dispatcher.connect(
                WORK, lambda: FromShard(hello=self._hello)
            )
            self.shard.work_opened()
            self._connected["Work"] = True
            self._answers.set()
            await self._converse(
                stream, greeting, self._units, sender=self._send_answers, before=self._prepared
            )
            self._connected["Work"] = False
            self.shard.work_lost()
            await pause.after_stream()

    async def _prepared(self, message: ToShard) -> None:
        """Shapes of very many terms are put in order beside the loop: units that come after them
        on this stream wait for that, others' are decided meanwhile."""
        await put_in_order(shape for _, shape in message.shapes)

    def _units(self, message: ToShard) -> None:
        self.shard.work(message)
        self._wake()

    async def _send_answers(self, stream: Stream[FromShard, ToShard]) -> None:
        while True:
            await self._answers.wait()
            await asyncio.sleep(ANSWER_LINGERS * self._linger_s)
            self._answers.clear()
            while (answers := self.shard.take_answers()) is not None:
                await stream.send(answers)
                self._moved.set()

    async def _converse(
        self,
        stream: Stream[Out, In],
        greeting: In,
        take: Callable[[In], None],
        *,
        sender: Callable[[Stream[Out, In]], Awaitable[None]] | None,
        before: Callable[[In], Awaitable[None]] | None = None,
    ) -> None:
        """Read until the stream ends, with the sender beside it; either may find out that it has.
        What else ends one of them is a defect, and ends the shard. ``before``: what is done with
        each message first."""

        async def read() -> None:
            take(greeting)
            async for message in stream:
                if before is not None:
                    await before(message)
                take(message)
            logger.info("the stream to %s was ended by its peer", stream.peer)

        parts = [asyncio.ensure_future(read())]
        if sender is not None:
            parts.append(asyncio.ensure_future(sender(stream)))
        try:
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over = [part for part in parts if not part.cancel()]
            await asyncio.gather(*parts, return_exceptions=True)
            await stream.close()
        try:
            for part in over:
                part.result()
        except RpcError as error:
            logger.warning("%s", error)

    # ------------------------------------------------------------------------------------ deciding
    def extended(self, question: Question, reply: Reply) -> None:
        """Extenders have answered."""
        self.shard.answered(question, reply)
        self._wake()

    def _wake(self) -> None:
        self._work.set()
        self._answers.set()
        self._moved.set()

    async def _look_again(self) -> None:
        """Silence wakes nobody, and yet it has to be noticed."""
        while True:
            await asyncio.sleep(LOOK_AGAIN_S)
            self._work.set()

    async def _decide(self) -> None:
        """Decide while there is something; look again now and then, since silence is measured."""
        shard = self.shard
        while True:
            await self._work.wait()
            self._work.clear()
            more = True
            while more:
                begun, before = time.monotonic(), shard.counts["proposed"]
                shard.tick(begun)
                more = shard.decide(now=begun)
                if (units := shard.counts["proposed"] - before) > 0:
                    self._on_round(time.monotonic() - begun, units)
                if self.extending is not None:
                    self.extending.put(shard.take_questions())
                self._proposals.set()
                self._answers.set()
                await asyncio.sleep(0)
