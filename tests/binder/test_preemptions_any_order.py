"""Claims in any order of what can happen to them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from binder.preemption_claims import Claim, ClaimStage
from binder.proposals import Incoming
from stretto.model.unit import VerdictKind
from stretto.snapshot.pod_records import LEAVING, PREEMPTED
from tests.binder.test_preemptions import Preempting, pdb, pod

pytestmark = pytest.mark.timeout(120)


class AnyOrder(RuleBasedStateMachine):
    """Shards that propose on old pictures, evictions, refusals, deletions, withdrawals."""

    def __init__(self) -> None:
        super().__init__()
        self.world = Preempting()
        for name in ("n1", "n2"):
            self.world.node(name, cpu=3000)
        self.waiting: list[Incoming] = []
        self.count = 0
        for i in range(6):  # full, so that preemption is what happens
            self.a_pod_runs("n1" if i % 2 else "n2", 1000, "web" if i % 3 else "db", i % 2)

    def name(self) -> str:
        self.count += 1
        return f"p{self.count}"

    @rule(
        node=st.sampled_from(["n1", "n2"]), cpu=st.sampled_from([500, 1000]),
        app=st.sampled_from(["web", "db"]), priority=st.integers(0, 2),
    )  # fmt: skip
    def a_pod_runs(self, node: str, cpu: int, app: str, priority: int) -> None:
        row = self.world.machine.cluster.snapshot.row_of_name(node)
        used = self.world.machine.cluster.snapshot.resources.column("cpu").used_cells[row or 0]
        if used + cpu <= 3000:
            shape = pod(cpu, app=app, priority=priority)
            self.world.runs(self.name(), shape, node, start=self.count)

    @rule(cpu=st.sampled_from([1000, 2000, 3000]), priority=st.integers(1, 4))
    def a_shard_decides(self, cpu: int, priority: int) -> None:
        made = self.world.api.create(self.name(), pod(cpu, priority=priority))
        incoming = self.world.decided(made)
        if incoming is not None:
            self.waiting.append(incoming)

    @precondition(lambda self: self.waiting)
    @rule(count=st.integers(1, 3))
    def proposals_arrive(self, count: int) -> None:
        now, self.waiting = self.waiting[:count], self.waiting[count:]
        self.world.propose(*now)

    def _claims(self, stage: ClaimStage) -> list[Claim]:
        claims = self.world.machine.preemptions.claims.values()
        return [claim for claim in claims if claim.stage is stage]

    @rule(turn=st.integers(0, 2))
    def a_nomination_is_written(self, turn: int) -> None:
        for claim in self._claims(ClaimStage.NOMINATING)[turn : turn + 1]:
            self.world.write_nomination(claim)

    @rule(refuse=st.booleans(), turn=st.integers(0, 2))
    def victims_are_asked(self, refuse: bool, turn: int) -> None:
        for claim in self._claims(ClaimStage.EVICTING)[turn : turn + 1]:
            before = msgspec.structs.replace(claim)
            for uid in self.world.evict(claim, refuse=refuse):
                assert self.world.nominated[claim.seats[0].member.uid] == before.seats[0].node_name
                self._would_fit(claim, uid)

    def _would_fit(self, claim: Claim, uid: str) -> None:
        """By plain sums: without the victims, and with all who have a better claim, it fits."""
        cluster = self.world.machine.cluster
        node_uid = cluster.node_uid_of(claim.seats[0].node_name)
        gone = {victim.uid for victim in claim.victims}
        assert uid in gone
        used = sum(
            dict(cluster.shape(row.shape_id).requests)["cpu"]
            for pod_uid, row in cluster.pods.items()
            if row.node_uid == node_uid and pod_uid not in gone
        )
        used += sum(
            dict(shape.requests)["cpu"]
            for other, (node, shape) in cluster.nominated.items()
            if node == claim.seats[0].node_name
            and other != claim.seats[0].member.uid
            and shape.priority >= claim.seats[0].shape.priority
        )
        assert used + dict(claim.seats[0].shape.requests)["cpu"] <= 3000

    @precondition(lambda self: any(pod.node for pod in self.world.api.pods.values()))
    @rule(data=st.data())
    def a_pod_ends(self, data: st.DataObject) -> None:
        there = [pod for pod in self.world.api.pods.values() if pod.node]
        self.world.end(data.draw(st.sampled_from(there)))

    @rule(data=st.data())
    def a_pending_pod_is_deleted(self, data: st.DataObject) -> None:
        claims = list(self.world.machine.preemptions.claims.values())
        if claims:
            claim = data.draw(st.sampled_from(claims))
            self.world.api.pods.pop(claim.seats[0].member.name, None)
            self.world.machine.withdraw(claim.seats[0].member.uid)

    @rule(allowed=st.integers(0, 2))
    def the_budget_changes(self, allowed: int) -> None:
        self.world.machine.budgets.seen(pdb("db", allowed))
        self.world.round()

    @invariant()
    def nothing_is_out_of_step(self) -> None:
        self.world.round()
        self.world.check()
        self.world.follower.validate()
        owned = self.world.machine.owned()
        assert len(owned) == len(set(owned))
        claims = self.world.machine.preemptions.claims.values()
        doomed = [v.uid for claim in claims if not claim.withdrawn for v in claim.victims]
        live = [uid for uid in doomed if uid in self.world.machine.cluster.pods]
        for uid in live:
            assert self.world.machine.cluster.facts[uid].flags == LEAVING | PREEMPTED

    @invariant()
    def nobody_is_asked_twice(self) -> None:
        assert len(self.world.evicted) == len(set(self.world.evicted))

    def teardown(self) -> None:
        while self.waiting:
            self.proposals_arrive(3)
        for turn in range(200):
            if not self.world.machine.preemptions.claims:
                break
            self.a_nomination_is_written(turn=0)
            self.victims_are_asked(refuse=False, turn=turn % 3)
        assert not self.world.machine.preemptions.claims
        told = {outcome.unit_id for outcome in self.world.outcomes()}
        won = [v for v in self.world.verdicts if v.kind is VerdictKind.NOMINATED]
        assert {verdict.unit_id for verdict in won} <= told
        # What nobody was asked to leave for is not marked any more.
        for uid, facts in self.world.machine.cluster.facts.items():
            assert not facts.flags or uid in self.world.evicted


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
