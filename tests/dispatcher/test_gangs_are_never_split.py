"""Whatever happens in whatever order, a gang is committed whole or not at all, and none is left
behind.

A hypothesis state machine plays the watch, shards, the Binder and its log against the brain. The
Binder's truth (who holds a reservation, how many the log shows) is kept by the test.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dispatcher.conditions import PatchOrder
from dispatcher.patching import PatchResult
from dispatcher.pods import Place, PodSeen
from stretto.model.groups import GroupRow
from stretto.model.unit import Attempt, Cause, Outcome, OutcomeKind, PodUid, Unit, UnitId
from tests.dispatcher.brain import BINDER, Brain, shape

GROUPS = {"default/two": GroupRow(min_count=2), "default/three": GroupRow(min_count=3)}
SHAPES = [shape(1), shape(2)]
pytestmark = pytest.mark.timeout(120)


class Cluster(RuleBasedStateMachine):
    """The world around the brain."""

    def __init__(self) -> None:
        super().__init__()
        self.brain = Brain(pop_from_backoff=True)
        self.streams = 0
        self.created = 0
        self.sequence = 1
        self.version = 100
        self.pods: dict[str, str] = {}
        """Uid → group of the pods that exist and have no node."""
        self.held: dict[str, tuple[str, Unit]] = {}
        """Uid → (group, unit) of reserved pods whose bind is in flight."""
        self.placed: dict[str, str] = {}
        """Uid → group of pods on nodes."""
        self.repaired: set[str] = set()
        """Groups that ran and lost a member, so that members follow one by one."""
        self.out: list[tuple[int, Unit]] = []
        self.patches: list[PatchOrder] = []

    # ------------------------------------------------------------------------------- the watch
    @rule(group=st.sampled_from(["", *GROUPS]), number=st.integers(0, 1))
    def create(self, group: str, number: int) -> None:
        self.created += 1
        uid = f"u{self.created}"
        self.pods[uid] = group
        self.show(uid, number)

    def show(self, uid: str, number: int) -> None:
        self.version += 1
        seen = PodSeen(
            uid=PodUid(uid),
            namespace="default",
            name=uid,
            resource_version=self.version,
            shape=SHAPES[number],
            profile="stretto",
            group=self.pods[uid],
        )
        self.brain.machine.intake.seen(seen, self.brain.now)

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), group=st.sampled_from(["", *GROUPS]), number=st.integers(0, 1))
    def regroup(self, data: st.DataObject, group: str, number: int) -> None:
        """A pod that waits names another group, or none."""
        uid = data.draw(st.sampled_from(sorted(self.pods)))
        away = {member.uid for _, unit in self.out for member in unit.members}
        if uid not in away | self.held.keys() | self.placed.keys():
            self.pods[uid] = group
            self.show(uid, number)

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.pods)))
        if uid not in self.placed:
            self.lose(uid)
            del self.pods[uid]
            self.brain.machine.intake.deleted(uid, leaving=True, now=self.brain.now)

    def lose(self, uid: str) -> None:
        """A pod holds its room no longer."""
        if uid in self.held:
            self.repaired.add(self.held.pop(uid)[0])

    @rule()
    def show_bound(self) -> None:
        for uid in sorted(self.placed.keys() & self.pods.keys()):
            del self.pods[uid]
            self.brain.machine.intake.deleted(uid, leaving=False, now=self.brain.now)

    # ----------------------------------------------------------------------------- the Binder's log
    @rule(key=st.sampled_from(sorted(GROUPS)), there=st.booleans())
    def show_group(self, key: str, there: bool) -> None:
        row = GROUPS[key] if there else None
        self.brain.machine.group_states([(key, row, self.count(key))], anew=False)

    def count(self, key: str) -> int:
        reserved = sum(group == key for group, _ in self.held.values())
        return reserved + sum(group == key for group in self.placed.values())

    # ------------------------------------------------------------------------------- the shards
    @initialize()
    def begin(self) -> None:
        for key in GROUPS:
            self.show_group(key, there=True)
        self.open_shard()

    @rule()
    def open_shard(self) -> None:
        self.streams += 1
        self.brain.shard(self.streams, credits_=4, name=f"shard-{self.streams % 2}")

    @rule()
    def close_shard(self) -> None:
        self.brain.machine.shards.closed(self.streams, self.brain.now)

    @rule(amount=st.integers(1, 20))
    def dispatch(self, amount: int) -> None:
        self.brain.machine.shards.credits(self.streams, amount)
        for send in self.brain.dispatch():
            self.out += [(send.stream, unit) for unit in send.units]

    @precondition(lambda self: self.out)
    @rule(data=st.data(), fits=st.booleans())
    def verdict(self, data: st.DataObject, fits: bool) -> None:
        stream, unit = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        self.decide(stream, unit, fits=fits)

    def decide(self, stream: int, unit: Unit, *, fits: bool) -> None:
        """The shard proposed; the Binder commits, or finds that it lost."""
        uids = [member.uid for member in unit.members]
        if any(uid in self.held or uid in self.placed for uid in uids):
            pass  # held under another attempt: nothing is written, no outcome of its own
        elif any(uid not in self.pods for uid in uids):
            self.say(unit.unit_id, unit.attempt, OutcomeKind.GONE, cause=Cause.POD_GONE)
        elif fits:
            self.commit(unit)
        else:
            self.say(unit.unit_id, unit.attempt, OutcomeKind.CONFLICT, cause=Cause.CAPACITY)
        settled = [(unit.unit_id, unit.attempt)]
        self.brain.machine.shards.settled(stream, settled, self.brain.now)

    def commit(self, unit: Unit) -> None:
        group = self.pods[unit.members[0].uid]
        for member in unit.members:
            assert self.pods[member.uid] == group, "a unit of two groups"
            self.held[member.uid] = group, unit
        row = GROUPS.get(group)
        if row is not None and group not in self.repaired:
            assert self.count(group) >= row.min_count, f"half of {group} was committed"

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def unplaceable(self, data: st.DataObject) -> None:
        _, unit = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        if self.brain.sent[unit.unit_id][1] == unit:
            self.brain.unplaceable(unit.unit_id, at=self.sequence)

    # ------------------------------------------------------------------------------- the Binder
    def say(
        self,
        unit_id: UnitId,
        attempt: Attempt,
        kind: OutcomeKind,
        *,
        members: tuple[str, ...] = (),
        cause: Cause = Cause.NONE,
    ) -> None:
        self.sequence += 1
        outcome = Outcome(
            unit_id, attempt, kind, cause, sequence=self.sequence, members=members, detail="why"
        )
        self.brain.machine.binder.apply_outcomes(
            [outcome], first_index=self.brain.index, epoch=BINDER, now=self.brain.now
        )
        self.brain.index += 1

    @precondition(lambda self: self.held)
    @rule(data=st.data(), bound=st.booleans())
    def bind(self, data: st.DataObject, bound: bool) -> None:
        self.finish(data.draw(st.sampled_from(sorted(self.held))), bound=bound)

    def finish(self, uid: str, *, bound: bool) -> None:
        group, unit = self.held[uid]
        if bound:
            del self.held[uid]
            self.placed[uid] = group
            kind, cause = OutcomeKind.BOUND, Cause.NONE
        else:
            self.lose(uid)
            kind, cause = OutcomeKind.FAILED, Cause.BIND_FAILED
        self.say(unit.unit_id, unit.attempt, kind, members=(uid,), cause=cause)

    @rule()
    def answer_asked(self) -> None:
        asked = self.brain.machine.binder.requests().ask
        self.brain.machine.binder.owned_set(
            owned=[uid for uid in asked if uid in self.held],
            bound=[uid for uid in asked if uid in self.placed],
            unknown=[uid for uid in asked if uid not in self.held and uid not in self.placed],
            complete=False,
            now=self.brain.now,
        )

    @rule()
    def reconnect(self) -> None:
        self.brain.machine.binder.owned_set(
            owned=list(self.held), complete=True, now=self.brain.now
        )

    # ------------------------------------------------------------------------- patches and time
    @rule()
    def patch(self) -> None:
        self.patches += self.brain.machine.patches(self.brain.now)

    @precondition(lambda self: self.patches)
    @rule(result=st.sampled_from(list(PatchResult)))
    def patched(self, result: PatchResult) -> None:
        order = self.patches.pop()
        self.version += 1
        self.brain.machine.patch_replied(
            order.uid, result, resource_version=self.version, now=self.brain.now
        )

    @rule(seconds=st.sampled_from([0.1, 1.0, 11.0, 61.0]))
    def wait(self, seconds: float) -> None:
        self.brain.wait(seconds)

    # ------------------------------------------------------------------------------- what must hold
    @invariant()
    def everything_is_in_one_place(self) -> None:
        self.brain.machine.validate()

    def teardown(self) -> None:
        """The faults stop and every group gets its quorum: all must be bound."""
        for key, row in GROUPS.items():
            for _ in range(row.min_count):
                self.create(key, 0)
        for _ in range(60):
            for key in GROUPS:
                self.show_group(key, there=True)
            self.brain.event(at=self.sequence + 1)
            self.sequence += 1
            self.wait(11.0)
            self.patch()
            while self.patches:
                self.patched(PatchResult.WRITTEN)
            self.answer_asked()
            self.open_shard()
            self.dispatch(100)
            out, self.out = self.out, []
            for stream, unit in out:
                self.decide(stream, unit, fits=True)
            for uid in sorted(self.held):
                self.finish(uid, bound=True)
            self.everything_is_in_one_place()
            if self.pods.keys() <= self.placed.keys():
                break
        machine = self.brain.machine
        lost = {uid: machine.pods.get(uid) for uid in self.pods.keys() - self.placed.keys()}
        assert not lost, f"never bound: {lost}"
        for record in machine.pods.records.values():
            assert record.place is Place.SETTLED, f"{record!r}"


Cluster.TestCase.settings = settings(
    max_examples=80,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestGangsAreNeverSplit = Cluster.TestCase
