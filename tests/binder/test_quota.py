"""Quota at the Binder: checked at commit, counted in the log, and rebuilt from what is bound."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from binder.quota import AGES_SLACK, QuotaBook
from binder.quota_pods import Placed
from stretto.model.shape import QUEUE_LABEL
from stretto.model.unit import Cause, VerdictKind
from stretto.quota.accounts import NO_LEVEL, Accounts
from stretto.quota.rows import QUEUE, QUOTA_API, Amounts, QueueRow, encode_quota
from stretto.quota.tree import QueueNode
from stretto.quota.view import AGED, level_of
from tests.binder.test_any_order import BinderMachine
from tests.binder.world import World, shape_of


def cpu(amount: int) -> tuple[tuple[str, int], ...]:
    return (("cpu", amount),)


def queues(world: World, rows: dict[str, QueueRow], **namespaces: str) -> None:
    cluster = world.machine.cluster
    cluster.api_served(QUOTA_API)
    for name, row in rows.items():
        cluster.object_seen(QUEUE, name, encode_quota(row))
    for name, queue in namespaces.items():
        cluster.namespace_seen(name, {QUEUE_LABEL: queue})
    world.round()


TEAMS = {
    "org": QueueRow(limit=cpu(5000)),
    "a": QueueRow(parent="org", guaranteed=cpu(2000), limit=cpu(3000), min_runtime_s=60),
    "b": QueueRow(parent="org", guaranteed=cpu(2000), min_runtime_s=60),
}


def used(world: World, name: str) -> int:
    return dict(world.follower.quota.usage_of(name).used).get("cpu", 0)


def test_of_two_shards_that_want_the_last_of_a_quota_one_gets_it() -> None:
    world = World()
    world.node("n1", cpu=9000)
    world.node("n2", cpu=9000)
    queues(world, TEAMS)
    pods = [world.api.create(f"p{n}", shape_of(2000, queue="a")) for n in range(2)]
    verdicts = world.propose(*(
        world.incoming(pod, nodes=(node,)) for pod, node in zip(pods, ("n1", "n2"), strict=True)
    ))  # fmt: skip
    assert [(v.kind, v.cause) for v in verdicts] == [
        (VerdictKind.CONFLICT, Cause.QUOTA), (VerdictKind.COMMITTED, Cause.NONE),
    ]  # fmt: skip
    (outcome,) = world.outcomes()
    assert outcome.detail == "waiting for quota: queue a is at its limit of cpu"
    assert (used(world, "a"), used(world, "org")) == (2000, 2000)
    world.check()


def test_a_gang_is_over_its_quota_as_a_whole() -> None:
    world = World()
    world.node("n1", cpu=9000)
    queues(world, TEAMS)
    gang = [world.api.create(f"p{n}", shape_of(1500, queue="b")) for n in range(4)]
    (verdict,) = world.propose(world.incoming(*gang, nodes=("n1",) * 4))
    assert (verdict.kind, verdict.cause) == (VerdictKind.CONFLICT, Cause.QUOTA)
    assert world.machine.cluster.snapshot.tentative == 0
    (verdict,) = world.propose(world.incoming(*gang[:3], nodes=("n1",) * 3))
    assert verdict.kind is VerdictKind.COMMITTED
    assert (used(world, "b"), used(world, "org")) == (4500, 4500)


def test_nothing_is_placed_against_a_queue_that_is_not_there() -> None:
    world = World()
    world.node("n1")
    queues(world, {"loop": QueueRow(parent="loop")})
    for name in ("gone", "loop"):
        pod = world.api.create(name, shape_of(queue=name))
        (verdict,) = world.propose(world.incoming(pod, nodes=("n1",)))
        assert (verdict.kind, verdict.cause) == (VerdictKind.CONFLICT, Cause.QUOTA)
    assert "does not exist" in world.outcomes()[0].detail
    assert "cycle" in world.outcomes()[1].detail


def test_without_the_definition_the_label_means_nothing() -> None:
    world = World()
    world.node("n1")
    pod = world.api.create("p", shape_of(queue="gone"))
    (verdict,) = world.propose(world.incoming(pod, nodes=("n1",)))
    assert verdict.kind is VerdictKind.COMMITTED


def test_what_ends_gives_its_quota_back_and_a_failed_bind_too() -> None:
    world = World()
    world.node("n1", cpu=9000)
    queues(world, TEAMS)
    pod = world.api.create("p", shape_of(3000, queue="a"))
    world.bound(pod, "n1")
    assert used(world, "a") == 3000
    world.api.delete(pod)
    world.settle_all()
    assert used(world, "a") == 0
    gone = world.api.create("q", shape_of(3000, queue="a"))
    world.propose(world.incoming(gone, nodes=("n1",)))
    assert used(world, "a") == 3000
    world.api.delete(gone)
    world.settle_all()
    assert used(world, "a") == 0


def book_of(pods: dict[str, Placed], row: QueueRow) -> QuotaBook:
    """A book of one queue that all pods are in."""
    book = QuotaBook(placed=pods.get, all_pods=lambda: list(pods))
    book.served(True)
    book.namespace("default", "q")
    book.queue("q", row)
    book.settle()
    return book


def test_when_something_guaranteed_ends_kinds_are_looked_at_and_not_every_pod(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pods = {f"u{n}": Placed(shape_of(100), n + 1, False) for n in range(300)}
    book = book_of(pods, QueueRow(guaranteed=cpu(1000)))
    asked = 0
    level = Accounts.level

    def counted(self: Accounts, queue: QueueNode, amounts: Amounts) -> int:
        nonlocal asked
        asked += 1
        return level(self, queue, amounts)

    monkeypatch.setattr(Accounts, "level", counted)
    del pods["u0"]
    book.touch("u0")
    _, changed = book.settle()
    assert changed == ["u10"]
    assert asked == 2, "the one that is raised, and the one behind it"
    book.validate()


def test_pods_that_go_before_they_are_of_age_leave_nothing_behind() -> None:
    pods: dict[str, Placed] = {}
    book = book_of(pods, QueueRow(min_runtime_s=3600))
    for n in range(10 * AGES_SLACK):
        pods[f"u{n}"] = Placed(shape_of(100), 0, False)
        book.touch(f"u{n}")
        book.settle()
        del pods[f"u{n}"]
        book.touch(f"u{n}")
        book.settle()
    assert len(book._ages) <= AGES_SLACK + 3


def test_pods_that_were_bound_before_there_were_queues_count_oldest_first() -> None:
    world = World()
    world.node("n1", cpu=9000)
    pods = [world.api.create(f"p{n}", shape_of(1000)) for n in range(3)]
    for pod in pods:
        world.bound(pod, "n1")
    queues(world, TEAMS, default="a")
    book = world.machine.cluster.quota
    assert (used(world, "a"), used(world, "org")) == (3000, 3000)
    levels = [level_of(book.flags_of(pod.uid)) for pod in pods]
    assert levels == [1, 1, NO_LEVEL], "two are guaranteed, the youngest borrows"
    # The namespace goes to another queue: so do its pods.
    world.machine.cluster.namespace_seen("default", {QUEUE_LABEL: "b"})
    world.round()
    assert (used(world, "a"), used(world, "b"), used(world, "org")) == (0, 3000, 3000)
    world.check()


def test_a_borrower_comes_of_age_and_is_raised_when_a_guarantee_has_room() -> None:
    world = World()
    world.node("n1", cpu=9000)
    queues(world, TEAMS)
    book = world.machine.cluster.quota
    book.tick(1000)
    pods = [world.api.create(f"p{n}", shape_of(1000, queue="a")) for n in range(3)]
    for pod in pods:
        world.bound(pod, "n1")
    flags = [book.flags_of(pod.uid) for pod in pods]
    assert [bool(f & AGED) for f in flags] == [False] * 3
    book.tick(1060)
    world.round()
    flags = [book.flags_of(pod.uid) for pod in pods]
    assert [bool(f & AGED) for f in flags] == [False, False, True]
    row = world.follower.row_of_name("n1")
    assert row is not None
    in_log = {r.uid: r.flags for r in world.follower.records.of(row)}
    assert [in_log[pod.uid] for pod in pods] == flags
    assert world.follower.quota.usage_of("org").aged == 1
    world.api.delete(pods[0])
    world.settle_all()
    assert level_of(book.flags_of(pods[2].uid)) == 1, "it is guaranteed now"
    assert world.follower.quota.usage_of("org").aged == 0
    world.check()


def test_the_book_counts_nothing_while_it_is_off() -> None:
    book = QuotaBook(placed=lambda _uid: None, all_pods=list)
    assert not book.pending


class QuotaMachine(BinderMachine):
    """The Binder's state machine with every pod in a queue."""

    @initialize(alone=st.booleans())
    def begin(self, alone: bool) -> None:
        super().begin(alone)
        tree = {"org": QueueRow(limit=cpu(4000)), "a": QueueRow(parent="org")}
        queues(self.world, tree, default="a")

    @rule()
    def time(self) -> None:
        self.world.machine.cluster.quota.tick(1000)

    @invariant()
    def nothing_is_overspent(self) -> None:
        """What others bind may exceed a limit; what we commit never does."""
        machine = self.world.machine
        held = sum(dict(b.reservation.shape.requests)["cpu"] for b in machine.bindings.values())
        assert not self.alone or held <= 4000, f"{held} of 4000"
        self.world.publish()
        quota = self.world.follower.quota
        placed = [machine.cluster.shape(row.shape_id) for row in machine.cluster.pods.values()]
        waiting = [s for there in machine.cluster._waiting.values() for s in there.values()]
        expected = sum(dict(shape.requests)["cpu"] for shape in (*placed, *waiting))
        assert dict(quota.usage_of("a").used).get("cpu", 0) == expected
        assert quota.usage_of("a").used == quota.usage_of("org").used


QuotaMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestNothingIsOverspent = pytest.mark.timeout(120)(QuotaMachine.TestCase)
