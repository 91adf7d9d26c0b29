"""Answers that the contract tests leave out."""

from __future__ import annotations

from typing import Any

import pytest

from stretto.simulator.api import ApiServer
from tests.simulator.brain import POD_PATH, STRATEGIC, api_server, bind, call, node, pod

JSON_PATCH = "application/json-patch+json"


@pytest.fixture
def api() -> ApiServer:
    return api_server()


@pytest.mark.parametrize(
    "path",
    [
        "/apis/policy/v1/poddisruptionbudgets",
        "/api/v1/services",
        "/apis/apps/v1/replicasets",
        "/apis/resource.k8s.io/v1/resourceclaims",
        "/apis/example.com/v1alpha1/widgets",
    ],
)
def test_kinds_without_objects_are_listed_empty(api: ApiServer, path: str) -> None:
    status, body = call(api, "GET", path)
    assert (status, body["items"]) == (200, [])
    assert body["kind"].endswith("List")


def test_objects_of_any_kind_are_kept(api: ApiServer) -> None:
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1}}
    assert call(api, "POST", path, budget)[0] == 201
    (item,) = call(api, "GET", "/apis/policy/v1/poddisruptionbudgets")[1]["items"]
    assert item["spec"] == {"minAvailable": 1}
    assert item["metadata"]["namespace"] == "default"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ([1], 400),
        ({"metadata": []}, 400),
        ({"metadata": {}}, 422),
        ({"metadata": {"name": "Upper"}}, 422),
        ({"metadata": {"name": "a" * 254}}, 422),
        ({"metadata": {"name": "a"}}, 422),
        ({"metadata": {"name": "a"}, "spec": {"containers": []}}, 422),
        ({"metadata": {"name": "a"}, "spec": {"containers": [1]}}, 400),
        ({"metadata": {"name": "a", "namespace": "b"}}, 400),
    ],
)
def test_hostile_pods_get_an_answer(api: ApiServer, body: Any, status: int) -> None:
    code, answer = call(api, "POST", POD_PATH, body)
    assert code == status
    assert answer["kind"] == "Status"
    assert "\n" not in answer["message"]


def test_quantities_are_checked_for_their_form_only(api: ApiServer) -> None:
    assert call(api, "POST", POD_PATH, pod("a", requests={"cpu": "zzz"}))[0] == 400
    assert call(api, "POST", POD_PATH, pod("b", requests={"cpu": "1e200000"}))[0] == 201


def test_priority_classes_are_looked_up(api: ApiServer) -> None:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    call(api, "POST", classes, {"metadata": {"name": "high"}, "value": 7})
    high = call(api, "POST", POD_PATH, pod("a", priorityClassName="high"))[1]
    critical = call(api, "POST", POD_PATH, pod("b", priorityClassName="system-node-critical"))[1]
    missing, _ = call(api, "POST", POD_PATH, pod("c", priorityClassName="nope"))
    assert (high["spec"]["priority"], critical["spec"]["priority"]) == (7, 2_000_001_000)
    assert missing == 403


def test_a_pods_generation_grows_with_its_spec(api: ApiServer) -> None:
    gated = pod("a", schedulingGates=[{"name": "x.y/z"}])
    made = call(api, "POST", POD_PATH, gated)[1]
    labelled = {"metadata": {"labels": {"a": "b"}}}
    same = call(api, "PATCH", f"{POD_PATH}/a", labelled, content_type=STRATEGIC)[1]
    opened = call(
        api,
        "PATCH",
        f"{POD_PATH}/a",
        [{"op": "remove", "path": "/spec/schedulingGates"}],
        content_type=JSON_PATCH,
    )[1]
    generations = [body["metadata"]["generation"] for body in (made, same, opened)]
    assert generations == [1, 1, 2]
    assert bind(api, "a", "n1")[0] == 201


def test_a_pods_spec_is_fixed(api: ApiServer) -> None:
    call(api, "POST", POD_PATH, pod("a"))
    change = {"spec": {"nodeSelector": {"a": "b"}}}
    code, answer = call(api, "PATCH", f"{POD_PATH}/a", change, content_type=STRATEGIC)
    assert (code, answer["reason"]) == (422, "Invalid")


def test_a_nodes_status_changes_through_its_own_path_only(api: ApiServer) -> None:
    call(api, "POST", "/api/v1/nodes", node("n1"))
    change = {"spec": {"unschedulable": True}, "status": {"allocatable": {"cpu": "9"}}}
    main = call(api, "PATCH", "/api/v1/nodes/n1", change, content_type=STRATEGIC)[1]
    assert main["spec"]["unschedulable"] is True
    assert main["status"]["allocatable"]["cpu"] == "4"
    own = call(api, "PATCH", "/api/v1/nodes/n1/status", change, content_type=STRATEGIC)[1]
    assert own["status"]["allocatable"] == {"cpu": "9", "memory": "8Gi", "pods": "10"}


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"fieldSelector": "spec.foo=x"}, "field label not supported"),
        ({"fieldSelector": "foo"}, "selector"),
        ({"labelSelector": "(("}, "requirement"),
        ({"limit": "x"}, "limit"),
        ({"continue": "x"}, "continue"),
    ],
)
def test_unreadable_parameters_are_refused(
    api: ApiServer, params: dict[str, str], text: str
) -> None:
    call(api, "POST", POD_PATH, pod("a"))
    code, answer = call(api, "GET", POD_PATH, **params)
    assert code == 400
    assert text in answer["message"]


def test_lists_are_merged_by_key_and_items_deleted(api: ApiServer) -> None:
    call(api, "POST", POD_PATH, pod("a"))
    for condition in ({"type": "A", "status": "True"}, {"type": "B", "status": "True"}):
        patch = {"status": {"conditions": [condition]}}
        call(api, "PATCH", f"{POD_PATH}/a/status", patch, content_type=STRATEGIC)
    patch = {"status": {"conditions": [{"type": "A", "$patch": "delete"}]}}
    body = call(api, "PATCH", f"{POD_PATH}/a/status", patch, content_type=STRATEGIC)[1]
    assert body["status"]["conditions"] == [{"type": "B", "status": "True"}]


def test_a_json_patch_is_applied_whole_or_not_at_all(api: ApiServer) -> None:
    call(api, "POST", POD_PATH, pod("a"))
    steps = [
        {"op": "add", "path": "/metadata/labels", "value": {"x": "1"}},
        {"op": "test", "path": "/metadata/labels/x", "value": "2"},
    ]
    code, _ = call(api, "PATCH", f"{POD_PATH}/a", steps, content_type=JSON_PATCH)
    assert code == 422
    assert "labels" not in call(api, "GET", f"{POD_PATH}/a")[1]["metadata"]
    assert call(api, "PATCH", f"{POD_PATH}/a", {}, content_type="text/plain")[0] == 415
