"""Whatever happens in whatever order, every pod is in one place, and in the end none is left
behind.

A hypothesis state machine plays the watch, two shards, the Binder and the clock against the brain;
the Binder's truth (who is bound, who is owned) is kept by the test. After each step every
invariant is checked; at the end the faults stop, and every pod that fits must be bound
(reliability I4 and I23).
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from dispatcher.conditions import PatchOrder
from dispatcher.patching import PatchResult
from dispatcher.pods import Place, PodSeen
from stretto.model.unit import Attempt, Cause, Outcome, OutcomeKind, PodUid, UnitId, Version
from stretto.placement.events import ANYTHING, NODE, Action, ClusterEvent
from stretto.snapshot.delta import NodeRow
from tests.dispatcher.brain import BINDER, POD_REMOVED, Brain, shape

pytestmark = pytest.mark.timeout(180)

NODE_ROW = NodeRow(name="n", uid="n", allocatable=(("cpu", 1), ("pods", 9)))
EVENTS = [
    POD_REMOVED,
    ANYTHING,
    ClusterEvent(NODE, Action.ADD, new_node=NODE_ROW),
    ClusterEvent("StorageClass", Action.ADD),
]
SHAPES = [shape(1), shape(2), shape(3, priority=5)]


class Cluster(RuleBasedStateMachine):
    """The world around the brain."""

    def __init__(self) -> None:
        super().__init__()
        self.brain = Brain(pop_from_backoff=True)
        self.streams = 0
        self.sequence = 1
        self.created = 0
        self.versions: dict[str, int] = {}
        self.bound: set[str] = set()
        self.owned: dict[str, Attempt] = {}
        self.out: list[tuple[int, str]] = []
        self.patches: list[PatchOrder] = []
        self.version = 100

    # ------------------------------------------------------------------------------- the watch

    def see(self, uid: str, *, number: int, leaving: bool = False, gated: bool = False) -> None:
        self.version += 1
        self.versions[uid] = self.version
        seen = PodSeen(
            uid=PodUid(uid),
            namespace="default",
            name=uid,
            resource_version=self.version,
            shape=SHAPES[number],
            profile="stretto",
            leaving=leaving,
            gated=gated,
        )
        self.brain.machine.intake.seen(seen, self.brain.now)

    @rule(number=st.integers(0, 2), gated=st.booleans())
    def create(self, number: int, gated: bool) -> None:
        self.created += 1
        self.see(f"u{self.created}", number=number, gated=gated and number == 1)

    @precondition(lambda self: self.versions)
    @rule(data=st.data(), number=st.integers(0, 2))
    def change(self, data: st.DataObject, number: int) -> None:
        uid = data.draw(st.sampled_from(sorted(self.versions)))
        if uid not in self.bound:
            self.see(uid, number=number)

    @precondition(lambda self: self.versions)
    @rule(data=st.data())
    def gate_late(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.versions)))
        if uid not in self.bound:
            self.see(uid, number=1, gated=True)

    @precondition(lambda self: self.versions)
    @rule(data=st.data(), leaving=st.sampled_from([True, None]))
    def delete(self, data: st.DataObject, leaving: bool | None) -> None:
        uid = data.draw(st.sampled_from(sorted(self.versions)))
        if uid not in self.bound:
            self.gone(uid, leaving=leaving)
            self.owned.pop(uid, None)

    @precondition(lambda self: self.bound)
    @rule()
    def show_bound(self) -> None:
        for uid in sorted(self.bound & set(self.versions)):
            self.gone(uid, leaving=False)

    @precondition(lambda self: self.versions)
    @rule(data=st.data())
    def bind_elsewhere(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.versions)))
        self.bound.add(uid)
        self.owned.pop(uid, None)
        self.gone(uid, leaving=False)

    def gone(self, uid: str, *, leaving: bool | None) -> None:
        del self.versions[uid]
        self.brain.machine.intake.deleted(uid, leaving=leaving, now=self.brain.now)

    # ------------------------------------------------------------------------------- the shards

    @initialize()
    def first_shard(self) -> None:
        self.open_shard()

    @rule()
    def open_shard(self) -> None:
        self.streams += 1
        name = f"shard-{self.streams % 2}"
        self.brain.machine.shards.opened(
            stream=self.streams, name=name, incarnation="i", now=self.brain.now
        )
        self.brain.machine.shards.credits(self.streams, 4)

    @rule()
    def close_shard(self) -> None:
        self.brain.machine.shards.closed(self.streams, self.brain.now)

    @rule(amount=st.integers(1, 80))
    def dispatch(self, amount: int) -> None:
        self.brain.machine.shards.credits(self.streams, amount)
        for send in self.brain.dispatch():
            self.out += [(send.stream, unit.unit_id) for unit in send.units]

    def take_out(self, data: st.DataObject) -> tuple[int, str]:
        return self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))

    @precondition(lambda self: self.out)
    @rule(data=st.data(), committed=st.booleans(), staked=st.booleans())
    def verdict(self, data: st.DataObject, committed: bool, staked: bool) -> None:
        """The shard proposed; the Binder commits, or finds that it lost, or keeps room for it."""
        stream, uid = self.take_out(data)
        attempt = self.brain.attempt(uid)
        if uid in self.owned or uid in self.bound:
            pass
        elif uid not in self.versions:
            self.say(uid, OutcomeKind.GONE, attempt)
        elif committed:
            self.owned[uid] = attempt
        else:
            cause = Cause.STAKED if staked else Cause.CAPACITY
            self.say(uid, OutcomeKind.CONFLICT, attempt, cause=cause)
        settled = [(UnitId(uid), attempt)]
        self.brain.machine.shards.settled(stream, settled, self.brain.now)

    @precondition(lambda self: self.out)
    @rule(data=st.data(), age=st.integers(0, 5), unresolvable=st.sampled_from([0, None]))
    def unplaceable(self, data: st.DataObject, age: int, unresolvable: int | None) -> None:
        _, uid = self.take_out(data)
        self.brain.unplaceable(uid, at=max(1, self.sequence - age), unresolvable=unresolvable)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def hand_back(self, data: st.DataObject) -> None:
        _, uid = self.take_out(data)
        self.brain.hand_back(uid)

    # ------------------------------------------------------------------------------- the Binder

    def say(
        self, uid: str, kind: OutcomeKind, attempt: Attempt, *, cause: Cause = Cause.NONE
    ) -> None:
        self.sequence += 1
        node = "n1" if kind in (OutcomeKind.BOUND, OutcomeKind.NOMINATED) else ""
        outcome = Outcome(UnitId(uid), attempt, kind, cause, sequence=self.sequence, node=node)
        self.brain.machine.binder.apply_outcomes(
            [outcome], first_index=self.brain.index, epoch=BINDER, now=self.brain.now
        )
        self.brain.index += 1

    @precondition(lambda self: self.owned)
    @rule(
        data=st.data(),
        kind=st.sampled_from(
            [OutcomeKind.BOUND, OutcomeKind.FAILED, OutcomeKind.REFUSED, OutcomeKind.NOMINATED]
        ),
    )
    def outcome(self, data: st.DataObject, kind: OutcomeKind) -> None:
        uid = data.draw(st.sampled_from(sorted(self.owned)))
        attempt = self.owned.pop(uid)
        if kind is OutcomeKind.BOUND:
            self.bound.add(uid)
        self.say(uid, kind, attempt)

    @rule(event=st.sampled_from(EVENTS), epoch=st.just(BINDER))
    def event(self, event: ClusterEvent, epoch: int) -> None:
        self.sequence += 1
        version = Version(epoch, self.sequence)
        self.brain.machine.events([event], version=version, now=self.brain.now)

    @rule()
    def answer_asked(self) -> None:
        requests = self.brain.machine.binder.requests()
        unknown = [uid for uid in requests.ask if uid not in self.owned and uid not in self.bound]
        self.brain.machine.binder.owned_set(
            owned=[uid for uid in requests.ask if uid in self.owned],
            bound=[uid for uid in requests.ask if uid in self.bound],
            unknown=unknown,
            complete=False,
            now=self.brain.now,
        )

    @rule()
    def reconnect(self) -> None:
        self.brain.machine.binder.owned_set(
            owned=list(self.owned), complete=True, now=self.brain.now
        )

    # -------------------------------------------------------------------------- patches and time

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

    @rule(seconds=st.sampled_from([0.1, 1.0, 10.0, 61.0]))
    def wait(self, seconds: float) -> None:
        self.brain.wait(seconds)

    # ------------------------------------------------------------------------------- what must hold

    @invariant()
    def everything_is_in_one_place(self) -> None:
        self.brain.machine.validate()
        assert self.brain.machine.statistics.drift == 0, "the audit finds what is not lost"

    @invariant()
    def every_pod_of_ours_is_known(self) -> None:
        known = set(self.brain.machine.pods.records)
        assert known == set(self.versions)

    @invariant()
    def nobody_is_dispatched_with_a_patch_in_flight(self) -> None:
        for order in self.patches:
            record = self.brain.machine.pods.get(order.uid)
            assert record is None or record.place is not Place.DISPATCHED

    def teardown(self) -> None:
        """The faults stop: all that fit must be bound."""
        machine = self.brain.machine
        for uid, record in list(machine.pods.records.items()):
            if record.place is Place.GATED:
                self.see(uid, number=0)
        for _ in range(60):
            self.event(POD_REMOVED, BINDER)
            self.wait(11.0)
            while self.patches:
                self.patched(PatchResult.WRITTEN)
            self.answer_asked()
            self.open_shard()
            self.dispatch(100)
            for stream, uid in self.out:
                attempt = self.brain.attempt(uid)
                if uid in self.versions and uid not in self.bound:
                    self.owned.setdefault(uid, attempt)
                settled = [(UnitId(uid), attempt)]
                machine.shards.settled(stream, settled, self.brain.now)
            self.out.clear()
            for uid, attempt in self.owned.items():
                self.bound.add(uid)
                self.say(uid, OutcomeKind.BOUND, attempt)
            self.owned.clear()
            self.everything_is_in_one_place()
            if set(self.versions) <= self.bound:
                break
        lost = {uid: machine.pods.get(uid) for uid in set(self.versions) - self.bound}
        assert not lost, f"never bound: {lost}"
        for record in machine.pods.records.values():
            assert record.place is Place.SETTLED, f"{record!r}"


Cluster.TestCase.settings = settings(
    max_examples=80,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestNoPodIsLost = Cluster.TestCase
