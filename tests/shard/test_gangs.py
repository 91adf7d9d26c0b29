"""Gangs at a shard: members of several shapes, all or none, in one domain where the group says
so."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler_shard.worker import Shard
from stretto.model.groups import POD_GROUP, GroupRow, encode_group
from stretto.model.shape import Shape
from stretto.model.unit import Attempt, Proposal, Unit, UnitId
from stretto.quota.rows import QUOTA_API
from stretto.rpc.messages import ToShard
from stretto.snapshot.delta import API_SERVED, Delta, NodeChange, ObjectRow
from tests.shard.test_worker import answers, free_cpu, proposals, shard_with, verdict
from tests.shard.worlds import came, node, shape, step, unit

GROUP = "default/g"
RACK = "rack"
NOBODY = "pod group preemption: No preemption victims found for incoming preemptor"


def member(cpu_milli: int = 1000) -> Shape:
    return msgspec.structs.replace(shape(cpu_milli), group=GROUP)


def racked(node_id: int, rack: str, *, cpu_milli: int = 4000) -> NodeChange:
    change = node(node_id, cpu_milli=cpu_milli)
    labels = (*change.row.labels, (RACK, rack)) if rack else change.row.labels
    change.row = msgspec.structs.replace(change.row, labels=labels)
    return change


def gang(name: str, *numbers: int, attempt: int = 1) -> Unit:
    members = tuple(
        unit(f"{name}{i}", number=number).members[0] for i, number in enumerate(numbers)
    )
    return Unit(UnitId(f"{name}0"), Attempt(1, attempt), members)


def send(shard: Shard, *units: Unit, shapes: list[Shape]) -> None:
    shard.work(ToShard(shapes=list(enumerate(shapes, 1)), units=list(units)))


def topology(required: bool, sequence: int = 2) -> Delta:
    row = GroupRow(min_count=2, topology_key=RACK, topology_required=required)
    return Delta(
        epoch=1, sequence=sequence, objects=[ObjectRow(POD_GROUP, GROUP, 1, encode_group(row))]
    )


def with_topology(shard: Shard, *, required: bool = True) -> None:
    shard.followed(step(2, objects=topology(required).objects), now=0.0)


def racks(proposal: Proposal, of: dict[int, str]) -> set[str]:
    return {of[node_id] for node_id in proposal.nodes}


def test_members_of_several_shapes_are_proposed_in_one_decision() -> None:
    shard = shard_with(node(1, cpu_milli=3000), node(2, cpu_milli=1000))
    send(shard, gang("g", 1, 2, 2), shapes=[member(3000), member(500)])
    (proposal,) = proposals(shard)
    assert proposal.nodes == (1, 2, 2)
    assert free_cpu(shard, 1) == free_cpu(shard, 2) == 0


def test_nothing_is_kept_of_a_gang_of_which_one_member_does_not_fit() -> None:
    shard = shard_with(node(1, cpu_milli=3000))
    send(shard, gang("g", 1, 2), shapes=[member(2000), member(1500)])
    assert proposals(shard) == []
    assert free_cpu(shard, 1) == 3000
    (answer,) = answers(shard).unplaceable
    assert answer.diagnosis.message == "0/1 nodes are available: 1 Insufficient cpu."
    assert answer.diagnosis.plugins == ("NodeResourcesFit",)


def test_a_gang_is_given_up_only_on_committed_state() -> None:
    shard = shard_with(node(1, cpu_milli=3000))
    send(shard, unit("single", number=1), shapes=[member()])
    (single,) = proposals(shard)
    send(shard, gang("g", 1, 1, 1, attempt=2), shapes=[member()])
    assert proposals(shard) == []
    assert answers(shard).unplaceable == []
    shard.verdicts(verdict(single, sequence=2), now=0.0)
    shard.followed(came("single", node_id=1, sequence=2, what=member()), now=0.0)
    assert proposals(shard) == []
    assert len(answers(shard).unplaceable) == 1


def test_two_gangs_that_are_held_are_both_decided_later() -> None:
    shard = shard_with(node(1, cpu_milli=3000))
    send(shard, unit("single", number=1), shapes=[member()])
    (single,) = proposals(shard)
    gangs = [gang("g", 1, 1, 1, attempt=2), gang("h", 1, 1, 1, attempt=3)]
    send(shard, *gangs, shapes=[member()])
    assert proposals(shard) == []
    shard.verdicts(verdict(single, sequence=2), now=0.0)
    shard.followed(came("single", node_id=1, sequence=2, what=member()), now=0.0)
    proposals(shard)
    assert {a.unit_id for a in answers(shard).unplaceable} == {"g0", "h0"}


def test_all_members_go_into_one_domain_the_fullest_that_takes_them() -> None:
    nodes = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
    shard = shard_with(*(racked(number, rack) for number, rack in nodes.items()))
    with_topology(shard)
    shard.followed(came("x", node_id=3, sequence=3, what=shape(2000), number=9), now=0.0)
    send(shard, gang("g", *[1] * 5), shapes=[member()])
    (proposal,) = proposals(shard)
    assert racks(proposal, nodes) == {"b"}


def test_a_domain_too_small_and_nodes_without_the_key_are_left_out() -> None:
    nodes = {1: "a", 2: "", 3: "b", 4: "b"}
    shard = shard_with(*(racked(number, rack) for number, rack in nodes.items()))
    with_topology(shard)
    send(shard, gang("g", *[1] * 5), shapes=[member()])
    (proposal,) = proposals(shard)
    assert racks(proposal, nodes) == {"b"}


@pytest.mark.parametrize("required", [True, False])
def test_a_gang_that_no_domain_takes(required: bool) -> None:
    shard = shard_with(racked(1, "a"), racked(2, "b"))
    with_topology(shard, required=required)
    send(shard, gang("g", *[1] * 5), shapes=[member()])
    found = proposals(shard)
    assert len(found) == (0 if required else 1)
    if required:
        (answer,) = answers(shard).unplaceable
        text = "0/2 placements are available, first placement status: pod group is unschedulable"
        assert (answer.diagnosis.group, answer.diagnosis.preemption) == (text, NOBODY)
        assert answer.diagnosis.message == f"pod group is unschedulable, {text}"


def test_a_domain_with_room_in_sum_only_is_tried_and_named() -> None:
    shard = shard_with(racked(1, "a", cpu_milli=1500), racked(2, "a", cpu_milli=1500))
    with_topology(shard)
    send(shard, gang("g", 1, 1, 1), shapes=[member()])
    assert proposals(shard) == []
    (answer,) = answers(shard).unplaceable
    assert answer.diagnosis.message == "0/2 nodes are available: 2 Insufficient cpu."
    assert answer.diagnosis.group == (
        "0/1 placements are available, first placement status: pod group is unschedulable"
    )
    assert free_cpu(shard, 1) == free_cpu(shard, 2) == 1500


def test_a_late_member_goes_where_the_others_are() -> None:
    shard = shard_with(racked(1, "a"), racked(2, "b"))
    with_topology(shard)
    shard.followed(came("first", node_id=2, sequence=3, what=member(), number=9), now=0.0)
    send(shard, *(gang(name, 1, attempt=n) for n, name in enumerate("xyz", 1)), shapes=[member()])
    assert [proposal.nodes for proposal in proposals(shard)] == [(2,), (2,), (2,)]


def test_a_member_whose_shape_was_not_defined_is_handed_back() -> None:
    shard = shard_with(node(1))
    send(shard, gang("g", 1, 7), shapes=[member()])
    (back,) = answers(shard).handed_back
    assert back.reason == "shape 7 is not defined here"


def test_a_gang_of_a_thousand_is_one_proposal() -> None:
    shard = shard_with(*(node(number, cpu_milli=64_000) for number in range(1, 21)))
    send(shard, gang("g", *[1] * 1000), shapes=[member()])
    (proposal,) = proposals(shard)
    assert len(proposal.nodes) == 1000


def test_domains_that_cannot_take_it_are_not_tried_one_by_one() -> None:
    """With host names as domains a cluster has thousands; to try one is a pass over all nodes."""
    hosts = {number: f"h{number}" for number in range(1, 61)}
    shard = shard_with(
        *(racked(n, h, cpu_milli=1500 if n != 41 else 4000) for n, h in hosts.items())
    )
    with_topology(shard)
    tried = []
    place = shard._gangs._all

    def counting(*arguments: Any, **named: Any) -> list[int]:
        tried.append(arguments)
        return place(*arguments, **named)

    shard._gangs._all = counting  # type: ignore[method-assign]
    send(shard, gang("g", 1, 1), shapes=[member()])
    (proposal,) = proposals(shard)
    assert set(proposal.nodes) == {41}, "two fit there, one on each of the others"
    assert len(tried) == 1
    tried.clear()
    send(shard, gang("k", 2, 2, attempt=2), shapes=[member(), nowhere()])
    assert proposals(shard) == []
    assert len(tried) == 1, "one, to say why"


def nowhere() -> Shape:
    return msgspec.structs.replace(member(), node_selector=(("no", "such"),))


def test_a_gang_with_a_member_of_a_queue_that_is_not_there_is_refused_whole() -> None:
    shard = shard_with(node(1, cpu_milli=8000))
    odd = msgspec.structs.replace(member(), queue="gone")
    shard.followed(step(2, objects=[ObjectRow(API_SERVED, QUOTA_API)]), now=0.0)
    send(shard, gang("g", 1, 2), shapes=[member(), odd])
    assert proposals(shard) == []
    (told,) = answers(shard).unplaceable
    assert told.diagnosis.message == 'queue "gone", which the pod names, does not exist'
    assert free_cpu(shard, 1) == 8000
