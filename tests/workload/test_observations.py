"""What becomes of a pod, from any order of sightings."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from stretto.workload.observations import Observations, WatchedPod


def pod(name: str = "a", node: str = "", phase: str = "Pending", **status: Any) -> WatchedPod:
    return msgspec.convert(
        {
            "metadata": {"name": name},
            "spec": {"nodeName": node} if node else {},
            "status": {"phase": phase, **status},
        },
        WatchedPod,
    )


def unschedulable(message: str = "0/1 nodes") -> dict[str, Any]:
    condition = {
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
    }  # fmt: skip
    return {"conditions": [condition]}


def test_a_pod_on_its_way() -> None:
    watch = Observations()
    watch.created("a", lifetime_s=5.0, now=1.0)
    assert not watch.seen(pod(), now=1.1)
    assert watch.counts.waiting == 1
    assert watch.seen(pod(node="n"), now=2.0)
    assert not watch.seen(pod(node="n", phase="Running"), now=3.0)
    watch.seen(pod(node="n", phase="Succeeded"), now=4.0)
    watch.deleted("a", now=5.0)
    sight = watch.pods["a"]
    assert (sight.created, sight.decided, sight.bound, sight.ended) == (1.0, 2.0, 2.0, "Succeeded")
    assert (watch.counts.bound, watch.counts.ended, watch.counts.waiting) == (1, 1, 0)
    watch.validate()


def test_the_watch_may_be_faster_than_the_answer() -> None:
    watch = Observations()
    watch.seen(pod(node="n"), now=1.0)
    watch.created("a", lifetime_s=None, now=1.5)
    assert watch.counts.created == 1
    assert watch.pods["a"].created == 1.0
    watch.validate()


def test_a_pod_that_waits_is_told_why_and_may_be_bound_later() -> None:
    watch = Observations()
    watch.created("a", lifetime_s=None, now=1.0)
    watch.seen(pod(**unschedulable("0/3 nodes")), now=2.0)
    watch.seen(pod(**unschedulable("0/4 nodes")), now=3.0)
    assert watch.counts.told == 1
    assert watch.waiting_reasons() == {"Unschedulable: 0/4 nodes": 1}
    watch.seen(pod(node="n"), now=9.0)
    sight = watch.pods["a"]
    assert (sight.decided, sight.bound) == (2.0, 9.0)
    assert watch.counts.told == 0
    watch.validate()


def test_what_must_never_happen_is_counted() -> None:
    watch = Observations()
    watch.seen(pod(node="n"), now=1.0)
    watch.seen(pod(node="m"), now=2.0)
    assert watch.counts.rebound == 1
    watch.seen(pod(name="b", node="n", phase="Failed", reason="OutOfcpu"), now=1.0)
    assert watch.counts.refused == 1
    assert watch.counts.ended == 0


def test_pods_deleted_before_they_were_bound() -> None:
    watch = Observations()
    watch.created("a", lifetime_s=None, now=1.0)
    watch.deleted("a", now=2.0)
    watch.deleted("a", now=3.0)
    watch.deleted("unknown", now=3.0)
    assert watch.counts.gone_unbound == 1
    assert watch.waiting_reasons() == {}
    watch.validate()


EVENTS = st.tuples(
    st.sampled_from(["a", "b"]), st.sampled_from(["created", "seen", "told", "bound", "gone"])
)


@given(st.lists(EVENTS, max_size=30))
def test_the_totals_hold_in_any_order(events: list[tuple[str, str]]) -> None:
    watch = Observations()
    for now, (name, event) in enumerate(events):
        match event:
            case "created":
                watch.created(name, lifetime_s=None, now=now)
            case "seen":
                watch.seen(pod(name), now=now)
            case "told":
                watch.seen(pod(name, **unschedulable()), now=now)
            case "bound":
                watch.seen(pod(name, node="n"), now=now)
            case "gone":
                watch.deleted(name, now=now)
        watch.validate()
