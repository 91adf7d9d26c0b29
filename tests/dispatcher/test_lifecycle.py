"""A pod from its first sighting to its bind, and the ways in which it may leave before."""

from __future__ import annotations

from types import SimpleNamespace

from dispatcher.metrics import DispatcherCollector
from dispatcher.states import State
from stretto.model.shape import PodTerm, Requirement
from stretto.model.unit import Attempt, OutcomeKind
from stretto.telemetry.metrics import LeaseMetrics
from tests.dispatcher.brain import EPOCH, Brain, shape
from tests.dispatcher.gangs import gang


def test_a_pod_goes_from_active_over_a_shard_and_the_binder_to_bound() -> None:
    brain = Brain()
    brain.pod("a")
    assert brain.state("a") is State.ACTIVE
    brain.shard()
    sends = brain.dispatch()
    assert [unit.unit_id for unit in sends[0].units] == ["a"]
    assert brain.state("a") is State.DISPATCHED
    brain.settle("a")
    assert brain.state("a") is State.OWNED
    brain.bind("a")
    assert brain.state("a") is State.SETTLED
    brain.delete("a", leaving=False)
    assert brain.state("a") is None
    assert brain.machine.statistics.attempts == {("scheduled", "stretto"): 1}


def test_how_long_an_attempt_took_is_told_however_it_ended() -> None:
    """From the shard's answer, the Binder's failure and the bind; not from one that was sent by a
    former dispatcher."""
    brain = Brain()
    brain.pod("a")
    brain.shard()
    brain.dispatch()
    brain.wait(0.5)
    brain.unplaceable("a", at=5)
    brain.pod("b", shape(2))
    brain.dispatch()
    brain.settle("b")
    brain.wait(2)
    brain.outcome("b", OutcomeKind.FAILED)
    totals = {key: b.total for key, b in brain.machine.statistics.attempt_seconds.items()}
    assert totals == {("unschedulable", "stretto"): 0.5, ("error", "stretto"): 2.0}


def test_how_long_a_line_has_had_no_attempt_is_told() -> None:
    """Of lines that may be taken since the pod joined or came back, of parked ones since they were
    decided."""
    brain = Brain()
    client = SimpleNamespace(usage=SimpleNamespace(snapshot=dict, denied=list))
    collector = DispatcherCollector(
        brain.machine, client=client, lease=LeaseMetrics("d", lambda: 0.0), clock=lambda: brain.now
    )

    def longest() -> tuple[float, float]:
        name = "stretto_dispatcher_longest_wait_seconds"
        (family,) = [f for f in collector.collect() if f.name == name]
        seconds = {s.labels["queue"]: s.value for s in family.samples}
        return seconds["active"], seconds["unschedulable"]

    assert longest() == (0, 0)
    brain.pod("a")
    brain.wait(30)
    brain.pod("b", shape(2))
    brain.wait(10)
    assert longest() == (40, 0)
    brain.shard()
    brain.dispatch()
    assert longest() == (0, 0), "they are out"
    brain.unplaceable("a", at=5)
    brain.wait(7)
    assert longest() == (0, 7)


def test_members_of_a_gang_that_wait_are_in_a_queue_that_is_told() -> None:
    brain = gang()
    client = SimpleNamespace(usage=SimpleNamespace(snapshot=dict, denied=list))
    lease = LeaseMetrics("d", lambda: 0.0)
    collector = DispatcherCollector(brain.machine, client=client, lease=lease)
    (pending,) = [f for f in collector.collect() if f.name == "scheduler_pending_pods"]
    waiting = {s.labels["queue"]: s.value for s in pending.samples}
    assert waiting == {
        "active": 0, "backoff": 0, "gated": 0, "incomplete": 3, "unschedulable": 0,
    }  # fmt: skip


def test_the_watch_may_show_the_bind_before_the_outcome_and_it_counts_once() -> None:
    brain = Brain()
    brain.pod("a")
    brain.shard()
    brain.dispatch()
    brain.delete("a", leaving=False)
    assert brain.state("a") is None
    brain.bind("a")
    assert brain.machine.statistics.attempts == {("scheduled", "stretto"): 1}
    assert brain.machine.binder.requests().acknowledged == 1


def test_an_old_sighting_after_the_outcome_does_not_bring_the_pod_back() -> None:
    brain = Brain()
    brain.pod("a")
    brain.shard()
    brain.dispatch()
    brain.settle("a")
    brain.bind("a")
    brain.pod("a")
    assert brain.state("a") is State.SETTLED
    assert brain.units() == []


def test_a_bind_by_someone_else_is_noticed_and_nothing_is_withdrawn() -> None:
    brain = Brain()
    brain.pod("a")
    brain.delete("a", leaving=False)
    assert brain.state("a") is None
    assert brain.machine.statistics.bound_elsewhere == 1
    assert brain.machine.binder.requests().withdraw == []


def test_a_deleted_pod_is_withdrawn_from_whoever_holds_it() -> None:
    brain = Brain()
    brain.pods(3)
    brain.shard(credits_=2)
    brain.dispatch()
    brain.settle("p0")
    for uid in ("p0", "p1", "p2"):
        brain.delete(uid, leaving=True)
    assert brain.machine.binder.requests().withdraw == ["p0", "p1"]
    assert brain.machine.binder.requests().withdraw == []


def test_a_pod_with_a_deletion_timestamp_is_dropped_before_it_is_gone() -> None:
    brain = Brain()
    brain.pod("a")
    brain.pod("a", leaving=True)
    assert brain.state("a") is None
    brain.pod("b", leaving=True)
    assert brain.state("b") is None


def test_a_pod_that_a_relist_misses_is_asked_about_if_others_hold_it() -> None:
    brain = Brain()
    brain.pods(2)
    brain.shard(credits_=1)
    brain.dispatch()
    brain.delete("p0", leaving=None)
    brain.delete("p1", leaving=None)
    requests = brain.machine.binder.requests()
    assert requests.ask == ["p0"]
    assert requests.withdraw == []


def test_a_gated_pod_waits_until_its_gates_vanish() -> None:
    brain = Brain()
    brain.pod("a", gated=True)
    brain.shard()
    assert brain.state("a") is State.GATED
    assert brain.units() == []
    brain.pod("a")
    assert brain.units() == ["a"]


def test_nothing_is_dispatched_before_epoch_owned_set_and_lists() -> None:
    brain = Brain(start=False)
    brain.pods(2)
    brain.shard()
    assert brain.units() == []
    brain.machine.begin(EPOCH, sources=2)
    assert brain.units() == []
    brain.machine.synced()
    brain.machine.binder.owned_set(owned=["p1", "later"], complete=True, now=brain.now)
    assert brain.units() == []
    brain.machine.synced()
    assert brain.units() == ["p0"], "p1 belongs to the binder"
    brain.pod("later")
    assert brain.state("later") is State.OWNED


def test_an_outcome_settles_a_pod_that_a_former_dispatcher_sent() -> None:
    brain = Brain(start=False)
    brain.machine.begin(EPOCH, sources=1)
    brain.machine.binder.owned_set(owned=["a", "b"], complete=True, now=brain.now)
    brain.machine.synced()
    brain.pods(0)
    brain.pod("a")
    brain.pod("b")
    brain.shard()
    before = Attempt(EPOCH - 1, 99)
    brain.outcome("a", OutcomeKind.BOUND, attempt=before)
    brain.outcome("b", OutcomeKind.FAILED, attempt=before)
    assert brain.state("a") is State.SETTLED
    assert brain.state("b") is State.BACKOFF
    brain.wait(1.0)
    assert brain.units() == ["b"]


def test_a_pod_that_changes_its_shape_changes_its_line() -> None:
    brain = Brain()
    brain.pod("a", shape(100))
    brain.pod("a", shape(200))
    brain.shard()
    send = brain.dispatch()[0]
    assert [definition for _, definition in send.shapes] == [shape(200)]
    assert send.units[0].members[0].shape == send.shapes[0][0]


def test_a_newer_sighting_gives_the_next_attempt_its_version() -> None:
    brain = Brain()
    brain.pod("a", version=5)
    brain.pod("a", version=9)
    brain.pod("a", version=7)
    brain.shard()
    assert brain.dispatch()[0].units[0].members[0].resource_version == 9


def test_a_fence_gives_the_version_but_the_watch_still_brings_the_change() -> None:
    brain = Brain()
    brain.pod("a", shape(100), version=5)
    brain.shard()
    brain.dispatch()
    brain.settle("a")
    brain.outcome("a", OutcomeKind.FAILED, resource_version=20)
    brain.pod("a", shape(300), version=12)
    brain.wait(1.0)
    send = brain.dispatch()[0]
    assert send.units[0].members[0].resource_version == 20
    assert send.shapes[0][1] == shape(300)


def test_a_pod_with_an_unbuilt_hard_constraint_is_refused_and_told_its_name() -> None:
    brain = Brain()
    brain.pod("a", shape(unbuilt_hard=("required pod affinity",)))
    brain.pod("b", refusal="spec.containers[0]: bad quantity")
    brain.shard()
    assert brain.units() == []
    assert brain.state("a") is State.REFUSED
    orders = {order.uid: order.condition for order in brain.machine.patches(brain.now)}
    assert "required pod affinity" in orders["a"].message
    assert orders["b"].message == "spec.containers[0]: bad quantity"
    assert orders["b"].reason == "Unschedulable"


def test_a_refused_pod_that_changes_into_a_good_one_is_dispatched() -> None:
    brain = Brain()
    brain.pod("a", refusal="bad quantity")
    brain.pod("a", shape())
    brain.shard()
    assert brain.units() == ["a"]


def test_a_pod_waits_until_the_log_shows_the_labels_that_its_selectors_read() -> None:
    term = PodTerm("zone", ("default",), None, (Requirement("app", "In", ("x",)),))
    brain = Brain()
    brain.shard()
    brain.pod("a", shape(affinity=(term,)), labels=(("app", "x"),))
    brain.pod("b", labels=(("app", "x"),))
    assert brain.units() == ["b"]
    assert brain.machine.binder.requests().label_keys == ("app",)
    assert brain.machine.binder.requests().label_keys == ()
    assert brain.machine.binder.wanted_keys() == ("app",)
    brain.machine.validate()
    brain.machine.label_keys(("app",), brain.now)
    assert brain.units() == ["a"]
    brain.machine.validate()


def test_selectors_that_read_too_many_labels_are_refused() -> None:
    def reading(*keys: str) -> PodTerm:
        return PodTerm("zone", (), (), tuple(Requirement(key, "Exists") for key in keys))

    brain = Brain()
    brain.shard()
    brain.pod("a", shape(affinity=(reading(*(f"k{n}" for n in range(1000))),)))
    brain.pod("b", shape(affinity=(reading("more"),)))
    assert len(brain.machine.binder.wanted_keys()) == 1000
    orders = {order.uid: order.condition for order in brain.machine.patches(brain.now)}
    assert "beyond the 1000" in orders["b"].message


def test_keys_that_only_pods_read_that_are_gone_do_not_count_for_ever() -> None:
    """Over the life of a dispatcher pods with ever other keys come and go, and Binders too."""

    def reading(*keys: str) -> PodTerm:
        return PodTerm("zone", (), (), tuple(Requirement(key, "Exists") for key in keys))

    brain = Brain()
    brain.shard()
    for batch in range(3):
        keys = [f"k{batch}-{n}" for n in range(600)]
        brain.pod("a", shape(affinity=(reading(*keys),)))
        assert set(brain.machine.binder.requests().label_keys) == set(keys), "the Binder is asked"
        assert not list(brain.machine.patches(brain.now)), "nobody is refused"
        brain.delete("a", leaving=True)
        brain.machine.validate()
        assert brain.machine.binder.wanted_keys() == (), "all that another Binder is told"
    brain.pod("b", shape(affinity=(reading("k0-1"),)))
    assert brain.machine.binder.requests().label_keys == ("k0-1",), "it has to be asked anew"


def test_a_shape_that_was_refused_for_its_keys_is_not_refused_for_ever() -> None:
    def reading(*keys: str) -> PodTerm:
        return PodTerm("zone", (), (), tuple(Requirement(key, "Exists") for key in keys))

    brain = Brain()
    brain.shard()
    brain.pod("a", shape(affinity=(reading(*(f"k{n}" for n in range(1000))),)))
    brain.pod("b", shape(affinity=(reading("more"),)))
    assert brain.state("b") is State.REFUSED
    for uid in "ab":
        brain.delete(uid, leaving=True)
    assert brain.machine.binder.wanted_keys() == (), "another Binder leads"
    brain.pod("c", shape(affinity=(reading("more"),)))
    assert brain.state("c") is not State.REFUSED
    assert brain.machine.binder.requests().label_keys == ("more",)


def test_growing_label_keys_project_the_pods_anew() -> None:
    brain = Brain()
    brain.pod("a", labels=(("app", "x"), ("pod-index", "0")))
    brain.pod("b", labels=(("app", "y"), ("pod-index", "1")))
    assert len([s for s in brain.machine.shapes.by_number.values() if s.refs]) == 1
    brain.machine.label_keys(("app",), brain.now)
    brain.machine.validate()
    shapes = [s.shape for s in brain.machine.shapes.by_number.values() if s.refs]
    assert sorted(s.labels for s in shapes if s) == [(("app", "x"),), (("app", "y"),)]
    brain.pod("c", labels=(("app", "x"),))
    assert brain.machine.pods.records["c"].shape is brain.machine.pods.records["a"].shape  # type: ignore[index]
