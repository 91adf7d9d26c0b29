"""A dispatcher's brain with short words for what happens to it."""

from __future__ import annotations

from dispatcher.machine import Machine, MachineLimits
from dispatcher.pods import Condition, PodSeen
from dispatcher.queue_limits import QueueLimits
from dispatcher.shard_side import Send
from dispatcher.states import State, state_of
from stretto.model.diagnosis import Rejected
from stretto.model.shape import Shape
from stretto.model.unit import (
    Attempt,
    Cause,
    Diagnosis,
    HandBack,
    Outcome,
    OutcomeKind,
    PodUid,
    Unit,
    UnitId,
    Unplaceable,
    Version,
)
from stretto.placement.events import ANYTHING, ASSIGNED_POD, Action, ClusterEvent

POD_REMOVED = ClusterEvent(
    ASSIGNED_POD, Action.DELETE, old_pod=Shape(profile="stretto", namespace="default")
)
EPOCH = 7
BINDER = 40


def shape(cpu: int = 100, *, priority: int = 0, **fields: object) -> Shape:
    return Shape(
        profile="stretto",
        namespace="default",
        priority=priority,
        requests=(("cpu", cpu),),
        **fields,  # type: ignore[arg-type]
    )


class Brain:
    """A machine, its clock, and what it sent."""

    def __init__(
        self,
        *,
        start: bool = True,
        pop_from_backoff: bool = False,
        limits: MachineLimits | None = None,
    ) -> None:
        self.stories: list[tuple[str, str, str]] = []
        limits = limits or MachineLimits(queue=QueueLimits(pop_from_backoff=pop_from_backoff))
        self.machine = Machine(limits=limits, note=lambda *line: self.stories.append(line))
        self.now = 1000.0
        self.version = 0
        self.index = 1
        self.sent: dict[str, tuple[int, Unit]] = {}
        if start:
            self.start()

    def start(self) -> None:
        """The Lease is ours, everything is listed and the Binder has answered."""
        self.machine.begin(EPOCH, sources=1)
        self.machine.binder.owned_set(owned=(), complete=True, now=self.now)
        self.machine.synced()
        self.machine.binder.connected(up=True, now=self.now)
        self.event(ANYTHING)

    def pod(self, uid: str, of: Shape | None = None, *, version: int = 0, **fields: object) -> None:
        self.sighting(uid, of, version=version, **fields)
        self.machine.validate()

    def sighting(
        self, uid: str, of: Shape | None = None, *, version: int = 0, **fields: object
    ) -> None:
        """:meth:`pod` without a check of the whole."""
        self.version = version or self.version + 1
        seen = PodSeen(
            uid=PodUid(uid),
            namespace="default",
            name=f"pod-{uid}",
            resource_version=self.version,
            shape=shape() if of is None and not fields.get("refusal") else of,
            profile=str(fields.pop("profile", "stretto")),
            **fields,  # type: ignore[arg-type]
        )
        self.machine.intake.seen(seen, self.now)

    def pods(self, count: int, of: Shape | None = None, *, prefix: str = "p") -> list[str]:
        uids = [f"{prefix}{number}" for number in range(count)]
        for uid in uids:
            self.pod(uid, of)
        return uids

    def shard(self, stream: int = 1, *, credits_: int = 64, name: str = "") -> None:
        self.machine.shards.opened(
            stream=stream, name=name or f"shard-{stream}", incarnation=str(stream), now=self.now
        )
        self.machine.shards.credits(stream, credits_)

    def dispatch(self) -> list[Send]:
        sends = self.machine.dispatch(self.now)
        for send in sends:
            for unit in send.units:
                self.sent[unit.unit_id] = (send.stream, unit)
        self.machine.validate()
        return sends

    def units(self) -> list[str]:
        return [unit.unit_id for send in self.dispatch() for unit in send.units]

    def attempt(self, uid: str) -> Attempt:
        return self.sent[uid][1].attempt

    def settle(self, *uids: str) -> None:
        for uid in uids:
            stream, unit = self.sent[uid]
            self.machine.shards.settled(stream, [(unit.unit_id, unit.attempt)], self.now)
        self.machine.validate()

    def outcome(
        self,
        uid: str,
        kind: OutcomeKind,
        *,
        attempt: Attempt | None = None,
        cause: Cause = Cause.NONE,
        sequence: int = 0,
        **fields: object,
    ) -> None:
        outcome = Outcome(
            unit_id=UnitId(uid),
            attempt=attempt or self.attempt(uid),
            kind=kind,
            cause=cause,
            sequence=sequence,
            **fields,  # type: ignore[arg-type]
        )
        self.machine.binder.apply_outcomes(
            [outcome], first_index=self.index, epoch=BINDER, now=self.now
        )
        self.index += 1
        self.machine.validate()

    def bind(self, *uids: str) -> None:
        for uid in uids:
            self.outcome(uid, OutcomeKind.BOUND, node="n1", shard="shard-1")

    def unplaceable(
        self,
        *uids: str,
        at: int,
        message: str = "0/3 nodes are available",
        plugins: tuple[str, ...] = ("NodeResourcesFit",),
        error: bool = False,
        clears: bool = False,
        group: str = "",
        found: int = 0,
        waits: bool = False,
        unresolvable: int | None = None,
    ) -> None:
        """On three nodes; ``unresolvable``: of them where no pod that ends would help, if the
        answer says so at all."""
        why: tuple[Rejected, ...] = ()
        if unresolvable is not None:
            why = (Rejected("NodeResourcesFit", "Insufficient cpu", 3, unresolvable),)
        answers: dict[int, list[Unplaceable]] = {}
        for uid in uids:
            stream, unit = self.sent[uid]
            answers.setdefault(stream, []).append(
                Unplaceable(
                    unit_id=unit.unit_id,
                    attempt=unit.attempt,
                    shape=unit.members[0].shape,
                    version=Version(BINDER, at),
                    diagnosis=Diagnosis(
                        message,
                        plugins,
                        nodes=3,
                        rejected=why,
                        error=error,
                        clears=clears,
                        group=group,
                        found=found,
                        waits=waits,
                    ),
                )
            )
        for stream, of_stream in answers.items():
            self.machine.shards.unplaceable(stream, of_stream, self.now)
        self.machine.validate()

    def hand_back(self, uid: str) -> None:
        stream, unit = self.sent[uid]
        back = HandBack(unit.unit_id, unit.attempt, "new epoch")
        self.machine.shards.handed_back(stream, [back], self.now)
        self.machine.validate()

    def close(self, stream: int) -> None:
        self.machine.shards.closed(stream, self.now)
        self.machine.validate()

    def delete(self, uid: str, *, leaving: bool | None) -> None:
        self.machine.intake.deleted(uid, leaving=leaving, now=self.now)
        self.machine.validate()

    def event(self, event: ClusterEvent = POD_REMOVED, *, at: int = 1, epoch: int = BINDER) -> None:
        self.machine.events([event], version=Version(epoch, at), now=self.now)
        self.machine.validate()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.machine.tick(self.now)
        self.machine.validate()

    def state(self, uid: str) -> State | None:
        record = self.machine.pods.get(uid)
        return None if record is None else state_of(record)

    def told(self, uid: str) -> Condition | None:
        record = self.machine.pods.get(uid)
        return record.condition if record else None
