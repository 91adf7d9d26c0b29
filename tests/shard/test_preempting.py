"""A shard proposes whom to preempt, and keeps the room in its own picture until the log does."""

from __future__ import annotations

import msgspec

from scheduler_shard.picture import Step
from scheduler_shard.worker import Shard
from stretto.model.shape import Shape
from stretto.model.unit import Attempt, Cause, Proposal, Unit, UnitId, Verdict, VerdictKind
from stretto.rpc.messages import FollowKind, FollowMessage, ToShard, VerdictBatch
from stretto.snapshot.delta import Delta, ObjectRow
from stretto.snapshot.nominations import NOMINATION, NominationRow, encode_nomination
from tests.shard.test_worker import answers, proposals, shard_with
from tests.shard.worlds import node, shape, step, unit

LOW = shape(2000)
HIGH = msgspec.structs.replace(shape(2000), priority=10)
LOWER = msgspec.structs.replace(shape(1000), priority=5)


def with_victims(*nodes: int) -> Shard:
    """Nodes of two CPUs, each full with one pod of low priority."""
    shard = shard_with(*(node(n, cpu_milli=2000) for n in nodes))
    delta = Delta(epoch=1, sequence=2, shapes=[(1, LOW), (2, HIGH)])
    for n in nodes:
        delta.add_pod(shape_id=1, node_id=n, uid=f"v{n}", start_s=n)
    shard.followed(FollowMessage(FollowKind.DELTA, delta), now=0.0)
    return shard


def send(shard: Shard, *uids: str, number: int = 7, what: Shape = HIGH) -> None:
    units = [unit(uid, number=number) for uid in uids]
    shard.work(ToShard(shapes=[(number, what)], units=units))
    shard.decide(now=0.0)
    shard.validate()


def verdict(proposal: Proposal, kind: VerdictKind, sequence: int = 0) -> VerdictBatch:
    of = proposal.unit
    return VerdictBatch(1, [Verdict(of.unit_id, of.attempt, kind, Cause.NONE, sequence)])


def test_each_of_two_preemptors_gets_a_victim_of_its_own() -> None:
    shard = with_victims(1, 2)
    send(shard, "a", "b")
    found = proposals(shard)
    assert sorted(p.victims for p in found) == [("v1",), ("v2",)]
    assert found[0].victims == ("v2",), "of equals the one that runs for less long"
    assert found[0].nodes == (2,)
    assert found[0].diagnosis is not None
    assert found[0].diagnosis.message == (
        "0/2 nodes are available: 2 Insufficient cpu. preemption: found a potential placement for "
        "pod on node node-2, preempting 1 victims"
    )


def test_nothing_is_hopeless_while_a_claim_of_our_own_is_open() -> None:
    shard = with_victims(1)
    send(shard, "a", "b")
    (claim,) = proposals(shard)
    assert answers(shard).unplaceable == []
    shard.verdicts(verdict(claim, VerdictKind.CONFLICT), now=0.0)
    shard.decide(now=0.0)
    (again,) = proposals(shard)
    assert again.unit.unit_id == "b", "the room was never taken"
    shard.validate()


def test_a_claim_that_stands_is_the_logs_once_it_is_there() -> None:
    shard = with_victims(1)
    send(shard, "a")
    (claim,) = proposals(shard)
    shard.verdicts(verdict(claim, VerdictKind.NOMINATED, 3), now=0.0)
    send(shard, "c", number=8, what=LOWER)
    assert answers(shard).unplaceable[0].diagnosis.message.startswith("0/1 nodes are available")
    nominations = shard.picture.snapshot.nominations
    assert nominations.on("node-1").keys() == {"a"}
    payload = encode_nomination(NominationRow("node-1", 2))
    assert (
        shard.followed(step(3, objects=[ObjectRow(NOMINATION, "a", payload=payload)]), now=0.0)
        is Step.ADVANCED
    )
    assert nominations.on("node-1").keys() == {"a"}
    assert shard.statistics()["claims"] == 0
    shard.followed(step(4, objects=[ObjectRow(NOMINATION, "a", removed=True)]), now=0.0)
    assert not nominations


def test_a_pod_that_may_not_preempt_is_told_so() -> None:
    shard = with_victims(1)
    send(shard, "a", what=msgspec.structs.replace(HIGH, preemption_policy="Never"))
    (told,) = answers(shard).unplaceable
    assert told.diagnosis.message.endswith(
        "preemption: not eligible due to preemptionPolicy=Never."
    )
    assert not told.diagnosis.clears


def test_nobody_of_less_priority_clears_a_nomination() -> None:
    shard = with_victims(1)
    send(shard, "a", what=msgspec.structs.replace(LOW, nominated_node="node-1"))
    (told,) = answers(shard).unplaceable
    assert told.diagnosis.clears


GANG = msgspec.structs.replace(HIGH, group="default/g")


def send_gang(shard: Shard, *uids: str) -> None:
    members = tuple(unit(uid, number=7).members[0] for uid in uids)
    shard.work(ToShard(shapes=[(7, GANG)], units=[Unit(UnitId(uids[0]), Attempt(1, 1), members)]))
    shard.decide(now=0.0)
    shard.validate()


def test_a_gang_claims_a_node_for_each_member_in_one_proposal() -> None:
    shard = with_victims(1, 2)
    send_gang(shard, "a", "b")
    (claim,) = proposals(shard)
    assert sorted(claim.nodes) == [1, 2]
    assert set(claim.victims) == {"v1", "v2"}
    assert claim.diagnosis is not None
    assert claim.diagnosis.preemption == (
        "pod group preemption: found a placement for podgroup, preempting 2 victims"
    )
    nominations = shard.picture.snapshot.nominations
    assert {*nominations.on("node-1"), *nominations.on("node-2")} == {"a", "b"}
    send(shard, "c", number=8, what=HIGH)
    assert answers(shard).unplaceable == [], "a claim of our own is open"
    shard.verdicts(verdict(claim, VerdictKind.CONFLICT), now=0.0)
    assert not nominations
    shard.validate()


def test_nobody_goes_for_a_gang_of_which_one_member_fits_nowhere_even_then() -> None:
    shard = with_victims(1, 2)
    send_gang(shard, "a", "b", "c")
    assert proposals(shard) == []
    (told,) = answers(shard).unplaceable
    assert told.diagnosis.preemption.startswith(
        "deallocation and deletion of ResourceClaims completed, pod group preemption: minCount"
    )
    assert told.diagnosis.clears


def test_a_gang_is_not_hopeless_while_a_claim_of_our_own_is_open() -> None:
    shard = with_victims(1, 2)
    send(shard, "a")
    (claim,) = proposals(shard)
    send_gang(shard, "g0", "g1")
    assert answers(shard).unplaceable == []
    shard.verdicts(verdict(claim, VerdictKind.CONFLICT), now=0.0)
    shard.decide(now=0.0)
    (again,) = proposals(shard)
    assert again.unit.unit_id == "g0", "the room was never taken"
    assert set(again.victims) == {"v1", "v2"}
    shard.validate()


def test_claims_of_an_epoch_end_with_it() -> None:
    shard = with_victims(1)
    send(shard, "a")
    assert shard.statistics()["claims"] == 1
    full = [
        FollowMessage(FollowKind.FULL_BEGIN, Delta(epoch=2, sequence=1)),
        FollowMessage(
            FollowKind.FULL_CHUNK, Delta(epoch=2, sequence=1, nodes=[node(1, cpu_milli=2000)])
        ),
        FollowMessage(FollowKind.FULL_END, Delta(epoch=2, sequence=1)),
    ]
    for message in full:
        shard.followed(message, now=0.0)
    assert shard.statistics()["claims"] == 0
    assert not shard.picture.snapshot.nominations
    shard.validate()


def test_claims_move_to_a_full_state_of_the_same_epoch() -> None:
    shard = with_victims(1)
    send(shard, "a")
    (claim,) = proposals(shard)
    delta = Delta(epoch=1, sequence=2, shapes=[(1, LOW), (2, HIGH)])
    delta.nodes = [node(1, cpu_milli=2000)]
    delta.add_pod(shape_id=1, node_id=1, uid="v1", start_s=1)
    for kind, content in (
        (FollowKind.FULL_BEGIN, Delta(epoch=1, sequence=2)),
        (FollowKind.FULL_CHUNK, delta),
        (FollowKind.FULL_END, Delta(epoch=1, sequence=2)),
    ):
        shard.followed(FollowMessage(kind, content), now=0.0)
    assert shard.statistics()["claims"] == 1
    assert shard.picture.snapshot.nominations.on("node-1").keys() == {"a"}
    shard.verdicts(verdict(claim, VerdictKind.CONFLICT), now=0.0)
    assert shard.statistics()["claims"] == 0
    assert not shard.picture.snapshot.nominations
    shard.validate()
