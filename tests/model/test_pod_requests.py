"""Effective requests of a pod: upstream's cases, one by one."""

from __future__ import annotations

from typing import Any

import pytest

from stretto.model.objects import Pod
from stretto.model.requests import RequestError, pod_requests, read_requests
from tests.model.pods import container, pod_of, sidecar

MIB = 1024 * 1024


def cpu(pod: Pod) -> int:
    return pod_requests(pod)["cpu"]


def test_containers_add_up() -> None:
    pod = pod_of(container({"cpu": "100m", "memory": "1Mi"}), container({"cpu": "1", "x/y": "2"}))
    assert pod_requests(pod) == {"cpu": 1100, "memory": MIB, "x/y": 2}


def test_fractions_are_summed_before_they_are_rounded() -> None:
    halves = [container({"memory": "500m", "cpu": "500u"}) for _ in range(2)]
    assert pod_requests(pod_of(*halves)) == {"memory": 1, "cpu": 1}


def test_init_containers_count_by_their_peak() -> None:
    init = [container({"cpu": "2", "memory": "1Mi"}), container({"cpu": "1", "memory": "9Mi"})]
    pod = pod_of(container({"cpu": "500m"}), initContainers=init)
    assert pod_requests(pod) == {"cpu": 2000, "memory": 9 * MIB}


def test_sidecars_run_beside_all_that_starts_after_them() -> None:
    init = [container({"cpu": "1"}), sidecar({"cpu": "300m"}), container({"cpu": "900m"})]
    assert cpu(pod_of(container({"cpu": "500m"}), initContainers=init)) == 1200
    assert cpu(pod_of(container({"cpu": "950m"}), initContainers=init)) == 1250


def test_overhead_comes_on_top_of_pod_level_requests() -> None:
    pod = pod_of(
        container({"cpu": "100m", "memory": "1Mi", "ephemeral-storage": "5"}),
        resources={"requests": {"cpu": "2", "ephemeral-storage": "7"}},
        overhead={"cpu": "250m", "memory": "1Mi"},
    )
    amounts = pod_requests(pod)
    assert amounts == {"cpu": 2250, "memory": 2 * MIB, "ephemeral-storage": 5}


def status_of(**lists: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"name": "main"}
    if "resources" in lists:
        found["resources"] = {"requests": {"cpu": lists["resources"]}}
    if "allocated" in lists:
        found["allocatedResources"] = {"cpu": lists["allocated"]}
    return {"containerStatuses": [found], **lists.get("more", {})}


INFEASIBLE = {"conditions": [{"type": "PodResizePending", "reason": "Infeasible"}]}
DEFERRED = {"conditions": [{"type": "PodResizePending", "reason": "Deferred"}]}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (status_of(resources="3", allocated="2"), 3000),
        (status_of(resources="500m", allocated="2"), 2000),
        (status_of(resources="500m", allocated="600m"), 1000),
        (status_of(resources="500m", allocated="600m", more=INFEASIBLE), 600),
        (status_of(resources="500m", allocated="600m", more=DEFERRED), 1000),
        (status_of(allocated="600m", more=INFEASIBLE), 600),
        (status_of(resources="600m", more=INFEASIBLE), 600),
        (status_of(), 1000),
    ],
)
def test_a_resize_in_place_holds_both_ends(status: dict[str, Any], expected: int) -> None:
    assert cpu(pod_of(container({"cpu": "1"}), status=status)) == expected


def test_pod_level_resize() -> None:
    status = {"resources": {"requests": {"cpu": "4"}}, "allocatedResources": {"cpu": "3"}}
    pod = pod_of(container(), resources={"requests": {"cpu": "2"}}, status=status)
    assert cpu(pod) == 4000
    pod = pod_of(container(), resources={"requests": {"cpu": "8"}}, status=status | INFEASIBLE)
    assert cpu(pod) == 4000


def test_scoring_assumes_something_for_containers_that_say_nothing() -> None:
    found = read_requests(pod_of(container(), container({"cpu": "0"})))
    assert found.amounts == {"cpu": 0}
    assert found.nonzero == found.score == (100, 400 * MIB)


def test_with_pod_level_requests_the_node_side_assumes_only_what_is_named_nowhere() -> None:
    pod = pod_of(container({"cpu": "1"}), container(), resources={"requests": {"memory": "500Mi"}})
    found = read_requests(pod)
    assert found.amounts == {"cpu": 1000, "memory": 500 * MIB}
    assert found.nonzero == (1000, 500 * MIB)
    assert found.score == (1100, 400 * MIB), "the pod-side scorer reads containers only"


def test_hostile_requests_name_the_field() -> None:
    with pytest.raises(RequestError, match=r"spec\.containers\[1\]\.resources\.requests\[cpu\]"):
        pod_requests(pod_of(container(), container({"cpu": "1e200000"})))
    with pytest.raises(RequestError, match=r"spec\.overhead\[memory\]"):
        pod_requests(pod_of(container(), overhead={"memory": "-1"}))
    with pytest.raises(RequestError, match=r"spec\.containers\[0\]"):
        pod_requests(pod_of(container({"cpu": ["1"]})))


def test_a_thousand_huge_containers_do_not_wrap() -> None:
    amounts = pod_requests(pod_of(*[container({"memory": "8E"})] * 1000))
    assert amounts["memory"] == 2**53 - 1
