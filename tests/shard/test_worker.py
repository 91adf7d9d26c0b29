"""The brain of a shard: no loop, no network; every message by hand."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from scheduler_shard.picture import Step
from scheduler_shard.worker import Shard
from stretto.model.devices import CLAIM, Allocation, ClaimRow, Result, encode_row
from stretto.model.shape import ClaimRef, NodeTerm, Requirement
from stretto.model.unit import (
    Attempt,
    Cause,
    Proposal,
    Release,
    Unit,
    UnitId,
    Verdict,
    VerdictKind,
    Version,
)
from stretto.placement.profiles import Profiles
from stretto.rpc.messages import FollowKind, FollowMessage, FromShard, ToShard, VerdictBatch
from stretto.snapshot.delta import Delta, NodeChange, ObjectRow
from stretto.telemetry.story import StoryLog
from tests.shard.worlds import came, full, node, shape, step, unit

made: list[Shard] = []


@pytest.fixture(autouse=True)
def _validate() -> Iterator[None]:
    made.clear()
    yield
    for shard in made:
        shard.validate()


def shard_with(*nodes: NodeChange, window: int = 512, opened: bool = True) -> Shard:
    shard = Shard(profiles=Profiles.default(), window=window, stories=StoryLog())
    made.append(shard)
    for message in full(*nodes):
        shard.followed(message, now=0.0)
    if opened:
        shard.work_opened()
        shard.propose_opened(1)
    return shard


def give(shard: Shard, *units: Unit, cpu_milli: int = 1000) -> None:
    shard.work(ToShard(shapes=[(1, shape(cpu_milli))], units=list(units)))


def proposals(shard: Shard, *, now: float = 0.0) -> list[Proposal]:
    while shard.decide(now=now):
        pass
    found: list[Proposal] = []
    while (batch := shard.take_proposals()) is not None:
        found += batch.proposals
    return found


def verdict(
    proposal: Proposal,
    kind: VerdictKind = VerdictKind.COMMITTED,
    *,
    sequence: int = 0,
    node_id: int = 0,
) -> VerdictBatch:
    nodes = ((node_id,) if node_id else proposal.nodes) if kind is VerdictKind.COMMITTED else ()
    cause = Cause.NONE if kind is VerdictKind.COMMITTED else Cause.CAPACITY
    return VerdictBatch(
        1, [Verdict(proposal.unit.unit_id, proposal.unit.attempt, kind, cause, sequence, nodes)]
    )


def answers(shard: Shard) -> FromShard:
    return shard.take_answers() or FromShard()


def free_cpu(shard: Shard, node_id: int) -> int:
    snapshot = shard.picture.snapshot
    row = snapshot.row_of(node_id)
    assert row is not None
    column = snapshot.resources.columns["cpu"]
    return int(column.alloc[row]) - int(column.used[row])


def test_units_of_a_batch_are_spread_and_proposed_with_the_version() -> None:
    """Four pods that fill the cluster exactly, each on its own room."""
    shard = shard_with(node(1, cpu_milli=2000), node(2, cpu_milli=2000))
    give(shard, *(unit(f"p{i}") for i in range(4)))
    found = proposals(shard)
    assert sorted(p.nodes[0] for p in found) == [1, 1, 2, 2]
    assert {p.decided_at for p in found} == {1}
    assert [p.unit.unit_id for p in found] == ["p0", "p1", "p2", "p3"]


def test_a_committed_verdict_is_counted_until_its_version_is_applied() -> None:
    """Not a moment longer: afterwards the committed row counts."""
    shard = shard_with(node(1))
    give(shard, unit("a"))
    (proposal,) = proposals(shard)
    shard.verdicts(verdict(proposal, sequence=3), now=0.0)
    assert free_cpu(shard, 1) == 3000
    shard.followed(step(2), now=0.0)
    assert shard.picture.snapshot.tentative == 1
    shard.followed(step(3), now=0.0)
    assert shard.picture.snapshot.tentative == 0
    assert free_cpu(shard, 1) == 4000


def test_a_delta_that_names_the_pod_before_the_verdict_ends_the_overlay_row() -> None:
    """Whichever is first; the pod is never counted twice."""
    shard = shard_with(node(1))
    give(shard, unit("a"))
    (proposal,) = proposals(shard)
    shard.followed(came("a", node_id=1, sequence=2), now=0.0)
    assert free_cpu(shard, 1) == 3000
    shard.verdicts(verdict(proposal, sequence=2), now=0.0)
    assert free_cpu(shard, 1) == 3000
    assert shard.picture.snapshot.tentative == 0


def test_a_spare_that_was_taken_is_counted_where_it_went() -> None:
    """The Binder may commit another node than the first choice."""
    shard = shard_with(node(1), node(2))
    give(shard, unit("a"))
    (proposal,) = proposals(shard)
    other = 3 - proposal.nodes[0]
    assert proposal.spares == (other,)
    shard.verdicts(verdict(proposal, sequence=9, node_id=other), now=0.0)
    assert free_cpu(shard, other) == 3000
    assert free_cpu(shard, proposal.nodes[0]) == 4000


@pytest.mark.parametrize("kind", [k for k in VerdictKind if k is not VerdictKind.COMMITTED])
def test_a_lost_proposal_frees_its_room_at_once_and_grants_a_credit(kind: VerdictKind) -> None:
    """The outcome reaches the dispatcher from the Binder; the shard only says it holds it no
    more."""
    shard = shard_with(node(1), window=3)
    assert answers(shard).credits == 3
    give(shard, unit("a"))
    (proposal,) = proposals(shard)
    shard.verdicts(verdict(proposal, kind), now=1.0)
    assert free_cpu(shard, 1) == 4000
    told = answers(shard)
    assert told.settled == [("a", Attempt(1, 1))]
    assert told.credits == 1
    assert shard.verdict_counts[kind, Cause.CAPACITY] == 1


def test_a_unit_waits_for_the_sequence_it_names() -> None:
    """Its last attempt lost to a commit that the snapshot does not have yet."""
    shard = shard_with(node(1))
    give(shard, unit("a", after=3), unit("b"))
    assert [p.unit.unit_id for p in proposals(shard)] == ["b"]
    shard.followed(step(2), now=0.0)
    assert proposals(shard) == []
    shard.followed(step(3), now=0.0)
    assert [p.unit.unit_id for p in proposals(shard)] == ["a"]


def test_with_nothing_open_a_unit_that_fits_nowhere_is_reported_with_the_version() -> None:
    """Upstream's words, the dispatcher's shape number, and a credit back."""
    shard = shard_with(node(1, cpu_milli=500))
    answers(shard)
    give(shard, unit("a"))
    assert proposals(shard) == []
    told = answers(shard)
    (answer,) = told.unplaceable
    assert (answer.unit_id, answer.shape, answer.version) == ("a", 1, Version(1, 1))
    assert answer.diagnosis.message.startswith("0/1 nodes are available: 1 Insufficient cpu")
    assert told.credits == 1


def test_while_own_proposals_are_open_nothing_is_reported_unplaceable() -> None:
    """The room may come back: it does, and the held unit takes it."""
    shard = shard_with(node(1, cpu_milli=1000))
    give(shard, unit("a"), unit("b"))
    (first,) = proposals(shard)
    assert answers(shard).unplaceable == []
    assert shard.statistics()["held"] == 1
    shard.verdicts(verdict(first, VerdictKind.CONFLICT), now=0.0)
    (second,) = proposals(shard)
    assert second.unit.unit_id == "b"


def test_a_held_unit_is_reported_when_the_open_ones_are_committed_and_applied() -> None:
    """With the version at which it was found out, which contains the commit."""
    shard = shard_with(node(1, cpu_milli=1000))
    give(shard, unit("a"), unit("b"))
    (first,) = proposals(shard)
    shard.verdicts(verdict(first, sequence=2), now=0.0)
    assert proposals(shard) == []
    assert answers(shard).unplaceable == []
    shard.followed(came("a", node_id=1, sequence=2), now=0.0)
    assert proposals(shard) == []
    (answer,) = answers(shard).unplaceable
    assert answer.version == Version(1, 2)


def test_a_steady_stream_of_others_does_not_keep_an_unplaceable_unit_held() -> None:
    """After its hold the committed state is looked at by itself, the overlay lifted."""
    shard = shard_with(node(1, cpu_milli=4000))
    shard.work(
        ToShard(
            shapes=[(1, shape(1000)), (2, shape(9000))],
            units=[unit("a"), unit("big", number=2)],
        )
    )
    (first,) = proposals(shard)
    assert shard.statistics()["held"] == 1
    shard.work(ToShard(units=[unit("b")]))
    (_second,) = proposals(shard)
    shard.verdicts(verdict(first, VerdictKind.CONFLICT), now=0.0)
    assert proposals(shard) == []
    (answer,) = answers(shard).unplaceable
    assert answer.unit_id == "big"
    assert shard.statistics()["open"] == 1
    assert free_cpu(shard, 1) == 3000


def test_a_refused_shape_is_reported_with_the_refusal() -> None:
    """A constraint that is not built is never placed as if it were absent."""
    shard = shard_with(node(1))
    shard.work(ToShard(shapes=[(1, shape(profile="other"))], units=[unit("a")]))
    assert proposals(shard) == []
    (answer,) = answers(shard).unplaceable
    assert answer.diagnosis.message == "there is no profile for schedulerName other"


def test_a_reconnect_within_the_epoch_sends_open_proposals_again() -> None:
    """Marked as resent, with their shapes, to a stream that knows nothing."""
    shard = shard_with(node(1))
    give(shard, unit("a"), unit("b"))
    assert len(proposals(shard)) == 2
    shard.propose_lost()
    assert shard.take_proposals() is None
    shard.propose_opened(1)
    batch = shard.take_proposals()
    assert batch is not None
    assert batch.resent
    assert [number for number, _ in batch.shapes] == [1]
    assert [p.unit.unit_id for p in batch.proposals] == ["a", "b"]
    assert shard.take_proposals() is None


def test_a_new_epoch_drops_the_overlay_and_hands_the_units_back() -> None:
    """The new Binder knows from its own records what became of them."""
    shard = shard_with(node(1), window=5)
    assert answers(shard).credits == 5
    give(shard, unit("a"), unit("late", after=9))
    assert len(proposals(shard)) == 1
    shard.propose_lost()
    shard.propose_opened(2)
    told = answers(shard)
    assert {back.unit_id for back in told.handed_back} == {"a", "late"}
    assert told.credits == 2
    assert shard.take_proposals() is None
    give(shard, unit("b"))
    assert proposals(shard) == [], "nothing is proposed on the old picture"
    for message in full(node(7), epoch=2, sequence=1):
        shard.followed(message, now=0.0)
    (proposal,) = proposals(shard)
    assert proposal.nodes == (7,)


def test_a_new_epoch_may_be_seen_first_in_the_log() -> None:
    """Then proposals wait for the stream to the new Binder."""
    shard = shard_with(node(1))
    give(shard, unit("a"))
    assert len(proposals(shard)) == 1
    for message in full(node(7), epoch=2, sequence=1):
        shard.followed(message, now=0.0)
    assert [back.unit_id for back in answers(shard).handed_back] == ["a"]
    give(shard, unit("b"))
    assert proposals(shard) == []
    shard.propose_opened(2)
    assert [p.unit.unit_id for p in proposals(shard)] == ["b"]


def test_a_resync_within_the_epoch_keeps_open_proposals_counted() -> None:
    """The new snapshot object carries the overlay on."""
    shard = shard_with(node(1))
    give(shard, unit("a"))
    (proposal,) = proposals(shard)
    for message in full(node(1), sequence=6):
        shard.followed(message, now=0.0)
    assert free_cpu(shard, 1) == 3000
    shard.verdicts(verdict(proposal, sequence=4), now=0.0)
    assert free_cpu(shard, 1) == 4000, "the full state at 6 contains the commit at 4"


def test_a_step_that_does_not_continue_asks_for_a_full_state_and_stops_deciding() -> None:
    """A gap is never papered over."""
    shard = shard_with(node(1))
    bad = step(2, pod_sign=[1], pod_shape=[99], pod_node=[1], pod_uid=["x"])
    assert shard.followed(bad, now=0.0) is Step.LOST
    assert "shape 99" in shard.picture.problem
    give(shard, unit("a"))
    assert proposals(shard) == []
    for message in full(node(1), sequence=2):
        shard.followed(message, now=0.0)
    assert len(proposals(shard)) == 1


def test_a_silent_log_stops_proposals_until_it_speaks_again() -> None:
    """An old picture only makes conflicts."""
    shard = shard_with(node(1))
    give(shard, unit("a"))
    assert proposals(shard, now=5.1) == []
    shard.followed(FollowMessage(FollowKind.HEARTBEAT, Delta(epoch=1, sequence=1)), now=5.2)
    assert len(proposals(shard, now=5.3)) == 1


def test_when_the_dispatcher_is_lost_undecided_units_go_and_open_ones_stay() -> None:
    """The dispatcher gives the first to others; the second have an owner."""
    shard = shard_with(node(1), window=8)
    give(shard, unit("a"))
    (proposal,) = proposals(shard)
    shard.work(ToShard(units=[unit("b")]))
    shard.work_lost()
    assert proposals(shard) == []
    assert shard.take_answers() is None
    shard.work_opened()
    assert answers(shard).credits == 7
    shard.verdicts(verdict(proposal), now=0.0)
    assert answers(shard).credits == 1


def test_shape_numbers_of_a_new_dispatcher_never_mean_an_old_shape() -> None:
    """The same number on the next stream is another shape to the Binder."""
    shard = shard_with(node(1, cpu_milli=9000))
    give(shard, unit("a"))
    proposals(shard)
    shard.work_lost()
    shard.work_opened()
    shard.work(ToShard(shapes=[(1, shape(2000))], units=[unit("b", epoch=2)]))
    while shard.decide(now=0.0):
        pass
    batch = shard.take_proposals()
    assert batch is not None
    ((number, defined),) = batch.shapes
    assert number != 1
    assert defined == shape(2000)
    assert batch.proposals[0].unit.members[0].shape == number


def test_forgotten_shapes_are_forgotten_at_the_binder_when_nothing_open_has_them() -> None:
    """All-different pods must not pile up definitions."""
    shard = shard_with(node(1))
    give(shard, unit("a"))
    (proposal,) = proposals(shard)
    shard.verdicts(verdict(proposal), now=0.0)
    shard.work(ToShard(forgotten=[1], shapes=[(2, shape(10))], units=[unit("b", number=2)]))
    while shard.decide(now=0.0):
        pass
    batch = shard.take_proposals()
    assert batch is not None
    assert batch.forgotten == [1]
    assert shard.statistics()["shapes"] == 1


def test_a_unit_of_a_shape_that_was_not_defined_is_handed_back() -> None:
    """With the number, for the log."""
    shard = shard_with(node(1))
    shard.work(ToShard(units=[unit("a", number=9)]))
    (back,) = answers(shard).handed_back
    assert back.reason == "shape 9 is not defined here"


def test_draining_gives_back_what_is_undecided_and_waits_for_the_rest() -> None:
    """Idle only when every proposal has its verdict and the answers are sent."""
    shard = shard_with(node(1))
    give(shard, unit("a"))
    (proposal,) = proposals(shard)
    shard.work(ToShard(units=[unit("b", after=99)]))
    shard.drain()
    told = answers(shard)
    assert told.draining
    assert [back.unit_id for back in told.handed_back] == ["b"]
    assert not shard.idle
    shard.verdicts(verdict(proposal), now=0.0)
    assert not shard.idle
    assert len(answers(shard).settled) == 1
    assert shard.idle
    give(shard, unit("c"))
    assert [back.unit_id for back in answers(shard).handed_back] == ["c"]


def test_a_gang_is_proposed_whole_or_not_at_all() -> None:
    """Three pods on room for two: nothing is kept."""
    shard = shard_with(node(1, cpu_milli=2000))
    members = tuple(unit(f"m{i}").members[0] for i in range(3))
    shard.work(
        ToShard(
            shapes=[(1, shape())],
            units=[
                Unit(UnitId("three"), Attempt(1, 1), members),
                Unit(UnitId("two"), Attempt(1, 2), members[:2]),
            ],
        )
    )
    (proposal,) = proposals(shard)
    assert proposal.unit.unit_id == "two"
    assert proposal.nodes == (1, 1)
    assert proposal.spares == ()


def test_a_node_that_leaves_takes_its_overlay_rows_along() -> None:
    """A verdict that comes later has nothing to undo, on whatever node uses the row now."""
    shard = shard_with(node(1))
    give(shard, unit("a"))
    (proposal,) = proposals(shard)
    shard.followed(step(2, removed_nodes=[1]), now=0.0)
    shard.followed(step(3, nodes=[node(2)]), now=0.0)
    assert free_cpu(shard, 2) == 4000
    shard.verdicts(verdict(proposal, VerdictKind.CONFLICT), now=0.0)
    assert free_cpu(shard, 2) == 4000
    assert shard.picture.snapshot.tentative == 0


def test_a_verdict_on_an_older_attempt_does_not_settle_the_newer() -> None:
    """They are told apart by the pair."""
    shard = shard_with(node(1))
    give(shard, unit("a", attempt=1))
    (old,) = proposals(shard)
    shard.work(ToShard(units=[unit("a", attempt=2)]))
    (new,) = proposals(shard)
    shard.verdicts(verdict(old, VerdictKind.SUPERSEDED), now=0.0)
    assert shard.statistics()["open"] == 1
    shard.verdicts(verdict(new, sequence=3), now=0.0)
    assert shard.statistics()["open"] == 0


def test_what_happened_to_a_unit_can_be_told() -> None:
    """story(unit): proposed where, and the verdict."""
    stories = StoryLog()
    shard = Shard(profiles=Profiles.default(), stories=stories)
    for message in full(node(1)):
        shard.followed(message, now=0.0)
    shard.work_opened()
    shard.propose_opened(1)
    give(shard, unit("a"))
    (proposal,) = proposals(shard)
    shard.verdicts(verdict(proposal, VerdictKind.CONFLICT), now=0.0)
    texts = [line.text for line in stories.story("a")]
    assert texts == ["proposed on (1,), spares ()", "lost: CONFLICT CAPACITY"]


def test_a_claim_that_keeps_a_pod_from_its_node_is_to_be_given_up() -> None:
    shard = shard_with(node(1), node(2))
    field = NodeTerm(fields=(Requirement("metadata.name", "In", ("node-3",)),))
    result = Result("r", "driver", "pool", "device")
    row = ClaimRow("default", "c", "claim-uid", allocation=Allocation((result,), (field,)))
    claim = ObjectRow(CLAIM, row.key, payload=encode_row(row))
    shard.followed(step(2, objects=[claim]), now=0.0)
    wants = msgspec.structs.replace(shape(), device_claims=(ClaimRef("c"),))
    shard.work(ToShard(shapes=[(1, wants)], units=[unit("a"), unit("b")]))
    while shard.decide(now=0.0):
        pass
    batch = shard.take_proposals()
    assert batch is not None
    assert not batch.proposals
    assert batch.releases == [Release("default/c", "claim-uid", "a")]
    assert shard.take_proposals() is None
    answers = shard.take_answers()
    assert answers is not None
    assert {each.unit_id for each in answers.unplaceable} == {"a", "b"}
