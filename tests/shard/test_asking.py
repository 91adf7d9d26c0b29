"""Units that extenders are asked about, in the brain of a shard: no loop, no network."""

from __future__ import annotations

import msgspec

from scheduler_shard.asking import Question, Reply
from scheduler_shard.worker import Shard
from stretto.model.unit import Unit, VerdictKind
from stretto.placement.extenders import Extender
from stretto.placement.profiles import Profiles
from stretto.rpc.messages import ToShard
from stretto.snapshot.delta import NodeChange
from tests.shard.test_worker import answers, proposals, verdict
from tests.shard.worlds import came, full, node, shape, step, unit

FPGA = Extender("http://fpga", filter_verb="filter", managed=frozenset({"example.com/fpga"}))
WANTED = msgspec.structs.replace(shape(), requests=(("cpu", 1000), ("example.com/fpga", 1)))


TAKES = Extender("http://takes", preempt_verb="preempt")


def shard_with(*nodes: NodeChange, extenders: tuple[Extender, ...] = (FPGA,)) -> Shard:
    profiles = Profiles.from_configuration(
        {"profiles": [{"schedulerName": "stretto"}]}, ignored=frozenset({"example.com/fpga"})
    )
    shard = Shard(profiles=profiles, extenders=extenders)
    for message in full(*nodes):
        shard.followed(message, now=0.0)
    shard.work_opened()
    shard.propose_opened(1)
    return shard


def asked_unit(uid: str, *, attempt: int = 1) -> Unit:
    found = unit(uid, number=2, attempt=attempt)
    (member,) = found.members
    with_document = msgspec.structs.replace(member, document=b'{"metadata":{"name":"x"}}')
    return msgspec.structs.replace(found, members=(with_document,))


def ask(shard: Shard, *units: Unit) -> list[Question]:
    shard.work(ToShard(shapes=[(1, shape()), (2, WANTED)], units=list(units)))
    shard.decide(now=0.0)
    shard.validate()
    return shard.take_questions()


def test_a_unit_that_waits_for_extenders_keeps_no_other_waiting() -> None:
    shard = shard_with(node(1), node(2))
    (question,) = ask(shard, asked_unit("slow"), unit("plain"))
    assert [p.unit.unit_id for p in proposals(shard)] == ["plain"]
    assert sorted(row.name for _, row in question.nodes) == ["node-1", "node-2"]
    assert question.pod == b'{"metadata":{"name":"x"}}'
    shard.answered(question, Reply(allowed=["node-2"]))
    (proposal,) = proposals(shard)
    assert (proposal.unit.unit_id, proposal.nodes) == ("slow", (2,))
    assert proposal.unit.members[0].document == b"", "the Binder gets no objects"
    shard.validate()


def test_what_extenders_add_to_the_scores_decides_among_those_left() -> None:
    shard = shard_with(node(1), node(2), node(3))
    (question,) = ask(shard, asked_unit("a"))
    bonus = {"node-1": 1000, "node-2": 500}
    shard.answered(question, Reply(allowed=["node-2", "node-3"], bonus=bonus))
    (proposal,) = proposals(shard)
    assert proposal.nodes == (2,)


def test_extenders_that_leave_no_node_are_named_with_their_reasons() -> None:
    shard = shard_with(node(1), node(2), node(3, cpu_milli=500))
    (question,) = ask(shard, asked_unit("a"))
    reply = Reply(failed={"node-1": "no card", "node-2": "no card"}, unresolvable={"node-1"})
    shard.answered(question, reply)
    assert proposals(shard) == []
    (told,) = answers(shard).unplaceable
    text = (
        "0/3 nodes are available: 1 Insufficient cpu, 2 no card. "
        "preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, "
        "2 Preemption is not helpful for scheduling."
    )
    assert told.diagnosis.message == text
    assert told.diagnosis.plugins == ("Extender", "NodeResourcesFit")
    rejected = {each.reason: each for each in told.diagnosis.rejected}
    assert (rejected["no card"].nodes, rejected["no card"].unresolvable) == (2, 1)
    assert not told.diagnosis.error


def test_an_extender_that_fails_is_an_error_of_that_unit_alone() -> None:
    shard = shard_with(node(1))
    first, second = ask(shard, asked_unit("a"), asked_unit("b", attempt=2))
    shard.answered(first, Reply(error="extender http://fpga: no answer in 5 s"))
    shard.answered(second, Reply(allowed=["node-1"]))
    assert [p.unit.unit_id for p in proposals(shard)] == ["b"]
    (told,) = answers(shard).unplaceable
    assert told.unit_id == "a"
    assert told.diagnosis.error
    assert told.diagnosis.message.startswith("extender http://fpga")


def test_nodes_taken_meanwhile_are_asked_about_again_and_then_given_back() -> None:
    shard = shard_with(node(1, cpu_milli=1000))
    (question,) = ask(shard, asked_unit("a"))
    ask(shard, unit("quick", attempt=5))
    (quick,) = proposals(shard)
    shard.answered(question, Reply(allowed=["node-1"]))
    assert proposals(shard) == []
    assert shard.take_questions() == [], "it waits for the room's verdict"
    shard.verdicts(verdict(quick, VerdictKind.CONFLICT, sequence=2), now=0.0)
    shard.followed(step(2), now=0.0)
    shard.decide(now=0.0)
    (again,) = shard.take_questions()
    shard.answered(again, Reply(allowed=["node-1"]))
    assert [p.unit.unit_id for p in proposals(shard)] == ["a"]


def test_a_busy_shard_says_so_too_when_extenders_leave_no_node() -> None:
    """Its own proposals never run out, so waiting for them would ask for ever."""
    shard = shard_with(node(1), node(2))
    (question,) = ask(shard, asked_unit("a"), unit("busy"))
    proposals(shard)
    shard.answered(question, Reply(failed={"node-1": "no card", "node-2": "no card"}))
    proposals(shard)
    (told,) = answers(shard).unplaceable
    assert told.unit_id == "a"
    assert told.diagnosis.message == (
        "0/2 nodes are available: 2 no card. "
        "preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
    )
    shard.validate()


def test_room_that_comes_while_extenders_are_asked_is_asked_about() -> None:
    """The node is in the log before the answer, so nothing would wake the pod for it."""
    shard = shard_with(node(1))
    (question,) = ask(shard, asked_unit("a"))
    shard.followed(step(2, nodes=[node(2)]), now=0.0)
    shard.answered(question, Reply(failed={"node-1": "no card"}))
    proposals(shard)
    assert answers(shard).unplaceable == []
    (again,) = shard.take_questions()
    assert [row.name for _, row in again.nodes] == ["node-1", "node-2"]
    shard.validate()


def test_replies_that_come_too_late_are_dropped() -> None:
    shard = shard_with(node(1))
    (question,) = ask(shard, asked_unit("a"))
    shard.work_lost()
    shard.answered(question, Reply(allowed=["node-1"]))
    assert proposals(shard) == []
    assert shard.idle
    shard.work_opened()
    (question,) = ask(shard, asked_unit("a", attempt=2))
    shard.drain()
    assert [back.unit_id for back in answers(shard).handed_back] == ["a"]
    shard.answered(question, Reply(allowed=["node-1"]))
    assert proposals(shard) == []
    shard.validate()


def test_a_new_snapshot_has_the_unit_asked_about_anew() -> None:
    shard = shard_with(node(1))
    (question,) = ask(shard, asked_unit("a"))
    for message in full(node(7), epoch=2, sequence=9):
        shard.followed(message, now=0.0)
    shard.propose_opened(2)
    shard.answered(question, Reply(allowed=["node-1"]))
    assert proposals(shard) == []
    (again,) = shard.take_questions()
    assert [row.name for _, row in again.nodes] == ["node-7"]


def test_a_unit_that_fits_no_node_is_not_asked_about() -> None:
    shard = shard_with(node(1, cpu_milli=500))
    assert ask(shard, asked_unit("a")) == []
    (told,) = answers(shard).unplaceable
    assert told.diagnosis.message.startswith("0/1 nodes are available: 1 Insufficient cpu. ")


def crowded() -> tuple[Shard, Question]:
    """Two full nodes of pods of lower priority, and a unit that may preempt."""
    shard = shard_with(node(1, cpu_milli=1000), node(2, cpu_milli=1000), extenders=(TAKES,))
    for number, uid in ((1, "low-1"), (2, "low-2")):
        low = msgspec.structs.replace(shape(), priority=-10 * number)
        message = came(uid, node_id=number, sequence=1 + number, number=number, what=low)
        shard.followed(message, now=0.0)
    (question,) = ask(shard, asked_unit("high"))
    assert proposals(shard) == []
    return shard, question


def test_extenders_are_asked_whom_to_preempt_and_choose_among_the_candidates() -> None:
    shard, question = crowded()
    assert [(each.name, each.uids) for each in question.doomed] == [
        ("node-1", ("low-1",)), ("node-2", ("low-2",)),
    ]  # fmt: skip
    shard.answered(question, Reply(doomed={"node-1": ["low-1"]}))
    (proposal,) = proposals(shard)
    assert (proposal.nodes, proposal.victims) == ((1,), ("low-1",))
    assert proposal.diagnosis is not None
    assert proposal.diagnosis.message.endswith("on node node-1, preempting 1 victims")
    shard.validate()


def test_extenders_that_leave_no_candidate_leave_the_pod_waiting() -> None:
    for doomed in ({}, {"node-1": ["somebody"]}):
        shard, question = crowded()
        shard.answered(question, Reply(doomed=doomed))
        assert proposals(shard) == []
        (told,) = answers(shard).unplaceable
        assert told.diagnosis.message == (
            "0/2 nodes are available: 2 Insufficient cpu. "
            "preemption: no candidate node for preemption"
        )


def test_a_pod_that_fits_by_the_time_of_the_reply_preempts_nobody() -> None:
    shard, question = crowded()
    shard.followed(step(4, nodes=[node(3)]), now=0.0)
    shard.answered(question, Reply(doomed={"node-1": ["low-1"]}))
    (proposal,) = proposals(shard)
    assert (proposal.nodes, proposal.victims) == ((3,), ())


def test_nobody_is_called_hopeless_while_an_own_proposal_has_the_room() -> None:
    """It may lose, and then the room is free without a word in the log."""
    shard, question = crowded()
    shard.followed(step(4, nodes=[node(3, cpu_milli=1000)]), now=0.0)
    shard.work(ToShard(shapes=[], units=[unit("quick", attempt=5)]))
    (quick,) = proposals(shard)
    assert quick.nodes == (3,)
    shard.answered(question, Reply(doomed={}))
    assert proposals(shard) == []
    assert answers(shard).unplaceable == []
    shard.verdicts(verdict(quick, VerdictKind.CONFLICT, sequence=4), now=0.0)
    (proposal,) = proposals(shard)
    assert (proposal.unit.unit_id, proposal.nodes) == ("high", (3,))
    shard.validate()


def half_crowded(*extenders: Extender) -> tuple[Shard, Question]:
    """An empty node and one full of a pod of lower priority."""
    shard = shard_with(node(1), node(2, cpu_milli=1000), extenders=extenders)
    low = msgspec.structs.replace(shape(), priority=-10)
    shard.followed(came("low", node_id=2, sequence=2, number=1, what=low), now=0.0)
    (question,) = ask(shard, asked_unit("high"))
    assert [row.name for _, row in question.nodes] == ["node-1"]
    return shard, question


def test_where_extenders_refuse_all_nodes_with_room_a_pod_preempts_elsewhere() -> None:
    shard, question = half_crowded(FPGA)
    shard.answered(question, Reply(failed={"node-1": "no card"}))
    (proposal,) = proposals(shard)
    assert (proposal.nodes, proposal.victims) == ((2,), ("low",))
    assert proposal.diagnosis is not None
    assert proposal.diagnosis.message.startswith(
        "0/2 nodes are available: 1 Insufficient cpu, 1 no card. preemption: found"
    )
    shard.validate()


def test_extenders_that_refuse_are_asked_whom_to_preempt_elsewhere() -> None:
    shard, question = half_crowded(FPGA, TAKES)
    shard.answered(question, Reply(failed={"node-1": "no card"}))
    assert proposals(shard) == []
    (whom,) = shard.take_questions()
    assert [each.name for each in whom.doomed] == ["node-2"]
    shard.answered(whom, Reply(doomed={"node-2": ["low"]}))
    (proposal,) = proposals(shard)
    assert (proposal.nodes, proposal.victims) == ((2,), ("low",))
    assert proposal.diagnosis is not None
    assert "1 no card" in proposal.diagnosis.message
    shard.validate()
