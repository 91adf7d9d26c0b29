"""What the simulated kubelets admit, reject, and count."""

from __future__ import annotations

from typing import Any

import pytest

from stretto.simulator.api import ApiServer
from stretto.simulator.kubelet import End, Reject, Start
from tests.simulator.brain import (
    NODES,
    POD_PATH,
    STRATEGIC,
    Judged,
    api_server,
    bind,
    call,
    current,
    node,
    pod,
)


@pytest.fixture
def api() -> ApiServer:
    return api_server()


@pytest.fixture
def judged(api: ApiServer) -> Judged:
    return Judged(api)


def bound(api: ApiServer, body: dict[str, Any], node_name: str = "n1") -> None:
    assert call(api, "POST", POD_PATH, body)[0] == 201
    assert bind(api, body["metadata"]["name"], node_name)[0] == 201


def test_a_pod_that_fits_is_started_and_its_room_is_taken(api: ApiServer, judged: Judged) -> None:
    api.create(NODES, node("n1"))
    bound(api, pod("a", requests={"cpu": "1500m", "memory": "1Gi"}))
    assert [type(verdict) for verdict in judged.verdicts] == [Start]
    used, there = judged.kubelets.sums()["n1"]
    assert used == {"cpu": 1500, "memory": 1 << 30, "pods": 1}
    assert there["cpu"] == 4000
    judged.kubelets.validate()


@pytest.mark.parametrize(
    ("requests", "reason"),
    [
        ({"cpu": "4001m"}, "OutOfcpu"),
        ({"memory": "8193Mi"}, "OutOfmemory"),
        ({"ephemeral-storage": "1"}, "OutOfephemeral-storage"),
        ({"example.com/gpu": "3"}, "OutOfexample.com/gpu"),
        ({"cpu": "9", "memory": "9Gi"}, "OutOfcpu"),
    ],
)
def test_a_pod_that_does_not_fit_is_rejected_by_what_is_short(
    api: ApiServer, judged: Judged, requests: dict[str, str], reason: str
) -> None:
    api.create(NODES, node("n1", **{"example.com/gpu": "2"}))
    bound(api, pod("a", requests=requests))
    (verdict,) = judged.verdicts
    assert isinstance(verdict, Reject)
    assert verdict.reason == reason
    assert judged.kubelets.rejected == {reason: 1}
    assert list(judged.kubelets.overcommitted) == ["n1"]
    assert judged.kubelets.sums()["n1"][0] == {}


def test_the_last_of_too_many_pods_is_rejected(api: ApiServer, judged: Judged) -> None:
    api.create(NODES, node("n1", pods="2"))
    for name in "abc":
        bound(api, pod(name))
    reasons = [getattr(verdict, "reason", "") for verdict in judged.verdicts]
    assert reasons == ["", "", "OutOfpods"]


def test_a_node_that_the_pod_does_not_choose_is_rejected(api: ApiServer, judged: Judged) -> None:
    api.create(NODES, node("n1", {"zone": "a", "size": "5"}))
    bound(api, pod("a", nodeSelector={"zone": "b"}))
    bound(api, pod("b", nodeSelector={"zone": "a"}))
    for name, operator, values in (("c", "Gt", ["5"]), ("d", "Gt", ["4"]), ("e", "NotIn", ["5"])):
        term = {"matchExpressions": [{"key": "size", "operator": operator, "values": values}]}
        required = {"nodeSelectorTerms": [term]}
        affinity = {"requiredDuringSchedulingIgnoredDuringExecution": required}
        bound(api, pod(name, affinity={"nodeAffinity": affinity}))
    reasons = [getattr(verdict, "reason", "") for verdict in judged.verdicts]
    assert reasons == ["NodeAffinity", "", "NodeAffinity", "", "NodeAffinity"]
    assert judged.kubelets.overcommitted == {}


def test_an_ended_or_deleted_pod_gives_its_room_back(api: ApiServer, judged: Judged) -> None:
    api.create(NODES, node("n1"))
    for name in ("ends", "goes"):
        bound(api, pod(name, requests={"cpu": "2"}))
    status = {"status": {"phase": "Succeeded"}}
    call(api, "PATCH", f"{POD_PATH}/ends/status", status, content_type=STRATEGIC)
    assert judged.kubelets.sums()["n1"][0]["cpu"] == 2000
    call(api, "DELETE", f"{POD_PATH}/goes")
    assert isinstance(judged.verdicts[-1], End)
    assert judged.kubelets.sums()["n1"][0]["cpu"] == 2000, "it holds its room until it has ended"
    call(api, "DELETE", f"{POD_PATH}/goes", {"gracePeriodSeconds": 0})
    assert judged.kubelets.sums()["n1"][0] == {"cpu": 0, "pods": 0}
    judged.kubelets.validate()


def test_pods_on_a_node_that_comes_later_are_judged_when_it_comes(
    api: ApiServer, judged: Judged
) -> None:
    bound(api, pod("a", requests={"cpu": "3"}), "late")
    bound(api, pod("b", requests={"cpu": "3"}), "late")
    assert judged.verdicts == []
    assert judged.kubelets.statistics()["waiting_for_node"] == 2
    api.create(NODES, node("late"))
    assert [type(verdict) for verdict in judged.verdicts] == [Start, Reject]


def test_a_smaller_node_keeps_what_it_runs_and_takes_no_more(
    api: ApiServer, judged: Judged
) -> None:
    api.create(NODES, node("n1"))
    bound(api, pod("a", requests={"cpu": "3"}))
    smaller = {"status": {"allocatable": {"cpu": "2"}}}
    call(api, "PATCH", "/api/v1/nodes/n1/status", smaller, content_type=STRATEGIC)
    bound(api, pod("b", requests={"cpu": "1m"}))
    bound(api, pod("c", requests={"memory": "1"}))
    kinds = [type(verdict) for verdict in judged.verdicts]
    assert kinds == [Start, Reject, Start]
    assert judged.kubelets.running() == 2


def test_a_quantity_beyond_reading_is_an_admission_error(api: ApiServer, judged: Judged) -> None:
    api.create(NODES, node("n1"))
    bound(api, pod("a", requests={"cpu": "1e200000"}))
    (verdict,) = judged.verdicts
    assert isinstance(verdict, Reject)
    assert verdict.reason == "UnexpectedAdmissionError"
    assert current(api, "a").node_name == "n1"
