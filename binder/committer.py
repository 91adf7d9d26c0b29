"""The single loop of commit: the one place that writes to the ledger (design §12.6, §12.17).

Naively each event would write to the ledger when it happens; then replies and events would
interleave, and memory and ledger would have to be compared at every step. Instead one loop takes
what has gathered, in rounds:

1. close and publish what the watches changed, so that the batch is checked against it;
2. write pending ledger operations and node accounts (frees, foreign amounts, new nodes): memory may
   now promise what the ledger knows to be free;
3. check the waiting proposals in memory, reserve the accepted ones in one call;
4. publish the commits' delta, then send verdicts, then queue the binds.

While a call is under way, the watches go on changing memory: what they free is written in the next
round, what they take is a conflict that the next check sees. When a call gets no answer its effect
is unknown: the batch goes back to the queue, commits stop, and the ledger is opened again and made
equal to memory (an entry that memory does not know was never bound, so it is freed) before the next
round. Backpressure: no proposals are taken while too many reservations wait for their bind.

What changes nothing that others decide by (a bind was answered or confirmed) starts no round of its
own at once. It waits a little for company: a round, its ledger call and its messages cost several
times what a pod in them does, and binds end one by one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from binder.auditor import PERIOD_S, Expected, LedgerAudit, drift
from binder.bindings import Binding, Stage
from binder.evictor import Evictor
from binder.executor import Executor
from binder.machine import Machine
from binder.order import Waiting
from binder.prebinder import PreBinder, in_prebind
from binder.proposals import Incoming, Settled
from binder.publisher import Publisher
from stretto.kube.events import EventWriter, PodEvent
from stretto.kube.leadership import end_superseded
from stretto.ledger.client import Ledger
from stretto.ledger.types import (
    LedgerFenced,
    LedgerGap,
    LedgerOp,
    LedgerUnavailable,
    ReserveReply,
)
from stretto.model.unit import Cause, OutcomeKind, Verdict, VerdictKind
from stretto.telemetry.audit_log import AuditLog, AuditRecord
from stretto.telemetry.binder_metrics import BinderMetrics
from stretto.telemetry.story import StoryLog

logger = logging.getLogger(__name__)

GATHER_S = 0.1
"""How long the end of a bind waits for others to be written and told with it."""
REPAIR_FIRST_S = 0.2
REPAIR_MAX_S = 5.0

REBUILD_EVERY_S = 60.0
"""Between rebuilds for drift: a cause that persists must not hold up commits for ever."""

SendVerdicts = Callable[[int, list[Verdict]], None]


class Repairs(Protocol):
    """How the ledger is made whole; see :class:`binder.recovery.Repair`."""

    async def __call__(self) -> None:
        """Compare and mend."""

    async def rebuild(self) -> None:
        """Write it anew."""


class CommitLoop:
    """See the module docstring; ``run`` is its task."""

    prebinder: PreBinder | None = None

    def __init__(
        self,
        machine: Machine,
        ledger: Ledger,
        *,
        publisher: Publisher,
        events: EventWriter | None,
        repair: Repairs,
        may_act: Callable[[], bool],
        fresh: Callable[[], bool] = lambda: True,
        metrics: BinderMetrics,
        stories: StoryLog,
        batch: int,
        linger_s: float,
        reservations_waiting: int,
        audit: AuditLog,
        audit_period_s: float = PERIOD_S,
    ) -> None:
        self.machine = machine
        self.executor: Executor | None = None
        self.evictor: Evictor | None = None
        self.send_verdicts: SendVerdicts = lambda _stream, _verdicts: None
        self.ledger_ok = True
        """False while the ledger is being repaired; commits stand still."""
        self._ledger = ledger
        self._publisher = publisher
        self._events = events
        self._repair = repair
        self._may_act = may_act
        self._fresh = fresh
        """Whether the watches are heard; on an old picture nothing is committed."""
        self._closing = self._busy = False
        self._rebuilt_at = -REBUILD_EVERY_S
        self._audit = audit
        self._ledger_audit = LedgerAudit(period_s=audit_period_s)
        self._metrics = metrics
        self._stories = stories
        self._batch = batch
        self._linger_s = linger_s
        self._waiting_limit = reservations_waiting
        self._proposals = Waiting()
        self._rebases: list[tuple[LedgerOp, asyncio.Future[bool]]] = []
        self._wake = asyncio.Event()
        self._later: asyncio.TimerHandle | None = None
        """Sets ``_wake`` when enough time has passed to gather what is not urgent."""
        self._room = asyncio.Event()
        self._verdicts = metrics.verdict
        self._conflicts = {
            cause: metrics.conflicts.labels(cause.name.lower()) for cause in Cause if cause
        }

    # -------------------------------------------------------------------------------- from outside
    def changed(self) -> None:
        """Something may be to be published or written: at once if the picture has changed."""
        if self._wake.is_set():
            return
        if self.machine.cluster.changed:
            self._wake.set()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(GATHER_S, self._gathered)

    def _gathered(self) -> None:
        self._later = None
        self._wake.set()

    def propose(self, incoming: Sequence[Incoming]) -> None:
        """Proposals of a shard."""
        if not self._closing:
            for one in incoming:
                self.machine.book.rooms.expect(one.shapes)
            self._proposals.add(incoming, now=time.monotonic())
            self._wake.set()

    def close(self) -> None:
        """Take no more proposals. Those that wait get no answer: shards hand them back when the
        next Binder's epoch begins."""
        self._closing = True
        self._proposals.clear()

    @property
    def idle(self) -> bool:
        """Nothing is under way or waits to be written."""
        later = self._later is not None or self._wake.is_set()
        return not (self._busy or self.machine.book.ops or self._rebases or later)

    async def room(self) -> None:
        """Wait while too many proposals and reservations wait: backpressure to the shards."""
        while self._crowded():
            self._room.clear()
            await self._room.wait()

    def _crowded(self) -> bool:
        waiting = self.executor.waiting if self.executor else 0
        return len(self._proposals) + waiting > self._waiting_limit

    def rebase(self, uid: str, resource_version: int) -> asyncio.Future[bool]:
        """Ask the ledger to accept a newer version for a pod's bind."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._rebases.append((LedgerOp.rebase(uid, resource_version), future))
        self._wake.set()
        return future

    # ----------------------------------------------------------------------------------------- loop
    async def run(self) -> None:
        """Commit until cancelled."""
        while True:
            await self._wake.wait()
            if self._linger_s and len(self._proposals) < self._batch:
                await asyncio.sleep(self._linger_s)
            self._wake.clear()
            self._busy = True
            try:
                await self.round()
            finally:
                self._busy = False
            more = self._proposals and self._fresh()  # else they wait for the watches' next word
            if more or self._rebases:
                self._wake.set()
            elif self.machine.book.ops:
                self.changed()

    async def round(self) -> None:
        """One round; see the module docstring. Outcomes are told at its end, with those that the
        round brings: a message costs each end several times what an outcome in it does."""
        self.publish(tell=False)
        await self._round()
        self.publish()

    async def _round(self) -> None:
        if not self._crowded():
            self._room.set()
        if not self._may_act():
            self._wake.set()
            await asyncio.sleep(0.05)
            return
        try:
            await self._write_pending()
            if self._fresh():
                await self._commit()
            await self._rebuild_after_drift()
        except LedgerFenced:
            logger.exception("the ledger has been taken by a successor; ending")
            end_superseded()
        except (LedgerGap, LedgerUnavailable) as error:
            self.publish()  # what is known already does not wait for the repair
            await self._repair_until_whole(error)

    def publish(self, *, tell: bool = True) -> None:
        """Publish what has changed and queue events of what was bound; outcomes too, or with the
        next call that is to ``tell`` them."""
        self.machine.cluster.quota.tick(int(time.time()))
        effects = self.machine.effects()
        self._publisher.publish(effects, tell=tell)
        if self._audit.on:
            for binding, stage in effects.ended:
                self._audit.note(end_of(binding, stage))
        if self._events is None:
            return
        for pod in effects.scheduled:
            note = f"Successfully assigned {pod.namespace}/{pod.name} to {pod.node}"
            self._events.offer(
                PodEvent(
                    pod.namespace, pod.name, pod.uid, "Scheduled", "Binding", note,
                    reporter=pod.profile,
                )
            )  # fmt: skip

    async def _write_pending(self) -> None:
        accounts, removed = self.machine.book.accounts()
        ops, rebases = self.machine.book.take_ops(), self._rebases
        self._rebases = []
        due = self._ledger_audit.due(time.monotonic(), self.machine.book.audited)
        expected = self.machine.book.expected(due)
        try:
            if accounts or removed:
                await self._timed(self._ledger.set_accounts(accounts, removed))
            if ops or rebases:
                calls = [*ops, *(op for op, _ in rebases)]
                replies = await self._timed(self._ledger.transition(calls))
                for (_, future), applied in zip(rebases, replies[len(ops) :], strict=True):
                    if not future.done():
                        future.set_result(applied)
            if due:
                await self._compare(expected)
        except BaseException:
            # Repair makes the ledger equal to memory as a whole; the answers of rebases are lost.
            for _, future in rebases:
                if not future.done():
                    future.set_result(False)
            raise

    async def _compare(self, expected: Expected) -> None:
        """A turn of the online audit; see :mod:`binder.auditor`."""
        found = await self._ledger.holdings(accounts=expected.accounts, pods=expected.pods)
        self._metrics.audit_rounds.set(self._ledger_audit.rounds)
        for account, text in drift(expected, found).items():
            self._metrics.drift.inc()
            self._audit.note(AuditRecord("drift", node_uid=account, cause=text))
            logger.error("audit of %s: %s; a node is frozen until that is mended", account, text)
            self.machine.book.drifts(account)

    async def _timed(self, call: Awaitable[list[bool] | list[ReserveReply] | None]) -> list:  # type: ignore[type-arg]
        began = time.perf_counter()
        try:
            return await call or []
        finally:
            self._metrics.ledger_duration.observe(time.perf_counter() - began)

    async def _commit(self) -> None:
        count = min(self._batch, len(self._proposals))
        if not count:
            return
        began = time.perf_counter()
        taken = self._proposals.take(count, now=time.monotonic())
        self._metrics.inversion.set(self._proposals.inversion_s)
        self._metrics.preemption_attempts.inc(sum(bool(i.proposal.victims) for i in taken))
        batch = self.machine.take(taken)
        try:
            replies = await self._timed(self._ledger.reserve(batch.units)) if batch.units else []
        except BaseException:
            self._conclude(self.machine.abandon(batch))
            raise
        self._conclude(self.machine.settle(batch, replies))
        self._metrics.commit_duration.observe(time.perf_counter() - began)

    def _conclude(self, settled: Settled) -> None:
        """Publish, then verdicts, then binds: in this order."""
        self.publish(tell=False)
        streams: dict[int, list[Verdict]] = {}
        for kind, count in Counter(verdict.kind for _, verdict in settled.verdicts).items():
            self._verdicts[kind].inc(count)
        for stream, verdict in settled.verdicts:
            streams.setdefault(stream, []).append(verdict)
            if verdict.kind is VerdictKind.CONFLICT:
                self._conflicts[verdict.cause].inc()
            if verdict.kind not in (VerdictKind.COMMITTED, VerdictKind.NOMINATED):
                text = f"{verdict.kind.name.lower()}: {verdict.cause.name.lower()}"
                self._stories.note(verdict.unit_id, verdict.attempt, text)
        for stream, verdicts in streams.items():
            self.send_verdicts(stream, verdicts)
        for account in settled.drift:
            self._metrics.drift.inc()
            self._audit.note(AuditRecord("drift", node_uid=account, cause="the ledger refused"))
            logger.error(
                "%s: the ledger refuses what memory allows; a node is frozen until that is mended",
                account,
            )
        assert self.executor is not None
        for reservation in settled.reservations:
            uid = reservation.member.uid
            self._stories.note(
                reservation.unit_id, reservation.attempt, "reserved on {}, proposed by {}",
                reservation.node_name, reservation.shard,
            )  # fmt: skip
            if self._audit.on:
                self._audit.note(
                    AuditRecord(
                        "reserved", uid=uid, node=reservation.node_name,
                        node_uid=reservation.node_uid, rv=reservation.member.resource_version,
                    )
                )  # fmt: skip
            binding = self.machine.bindings[uid]
            if in_prebind(binding):
                assert self.prebinder is not None
                self.prebinder.put(binding)
            else:
                self.executor.put(binding)
        for claim in self.machine.preemptions.take_fresh():
            self._metrics.preemption_victims.observe(len(claim.victims))
            uids = ", ".join(victim.uid for victim in claim.victims)
            nodes = ", ".join(seat.node_name for seat in claim.seats)
            text = f"nominated to {nodes} by {claim.shard}; to go: {uids}"
            self._stories.note(claim.unit.unit_id, claim.unit.attempt, text)
            if self.evictor is not None:
                self.evictor.put(claim)

    async def _rebuild_after_drift(self) -> None:
        """The ledger refused what memory allowed: write it anew, but not all the time."""
        now = time.monotonic()
        if self.machine.book.drifted and now - self._rebuilt_at >= REBUILD_EVERY_S:
            self._rebuilt_at = now
            self.ledger_ok = False
            self._metrics.repairs.labels("drift").inc()
            await self._repair.rebuild()
            self.ledger_ok = True

    async def _repair_until_whole(self, error: Exception) -> None:
        self.ledger_ok = False
        cause = "gap" if isinstance(error, LedgerGap) else "unanswered"
        self._metrics.repairs.labels(cause).inc()
        logger.error("%s; commits stand still until the ledger is whole", error)
        self._audit.note(AuditRecord("lost", cause=str(error)))
        pause_s = REPAIR_FIRST_S
        while True:
            try:
                await self._repair()
                break
            except LedgerFenced:
                logger.exception("the ledger has been taken by a successor; ending")
                end_superseded()
            except (LedgerGap, LedgerUnavailable) as again:
                logger.warning("the ledger is not whole yet: %s", again)
                await asyncio.sleep(pause_s)
                pause_s = min(REPAIR_MAX_S, pause_s * 2)
        self.ledger_ok = True
        self._audit.note(AuditRecord("whole"))
        logger.warning("the ledger is whole again")


def end_of(binding: Binding, stage: Stage) -> AuditRecord:
    """The record of a reservation's end."""
    reservation, end = binding.reservation, binding.end
    if stage is Stage.BOUND:
        return AuditRecord("bound", uid=binding.uid, node=reservation.node_name)
    # What was bound is freed only when its pod is gone.
    failed = end is not None and end.kind is OutcomeKind.FAILED
    cause = "failed" if failed else "gone"
    return AuditRecord("freed", uid=binding.uid, node=reservation.node_name, cause=cause)
