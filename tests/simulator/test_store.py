"""Lists, watches and versions below HTTP."""

from __future__ import annotations

import msgspec
import pytest

from stretto.simulator.answers import Refusal
from stretto.simulator.api import ApiServer
from stretto.simulator.request import Request
from stretto.simulator.store import KEPT_LISTS
from tests.simulator.brain import POD_PATH, STRATEGIC, api_server, bind, call, pod


def told(lines: list[bytes]) -> list[tuple[str, str]]:
    events = [msgspec.json.decode(line) for line in lines]
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


def watching(api: ApiServer, **params: str) -> list[bytes]:
    _, watch = api.watch(Request("GET", POD_PATH, {"watch": "1", **params}), wake=lambda: None)
    return watch.lines


def test_a_watch_from_before_the_window_is_gone() -> None:
    api = api_server(watch_window=3)
    for number in range(5):
        call(api, "POST", POD_PATH, pod(f"p{number}"))
    since = str(api.version - 3)
    assert told(watching(api, resourceVersion=since)) == [("ADDED", f"p{k}") for k in (2, 3, 4)]
    with pytest.raises(Refusal) as refused:
        watching(api, resourceVersion=str(api.version - 4))
    assert refused.value.code == 410


def test_compaction_makes_older_watches_and_lists_gone() -> None:
    api = api_server()
    for name in "abc":
        call(api, "POST", POD_PATH, pod(name))
    _, page = call(api, "GET", POD_PATH, limit="1")
    api.compact()
    assert call(api, "GET", POD_PATH, **{"continue": page["metadata"]["continue"]})[0] == 410
    with pytest.raises(Refusal):
        watching(api, resourceVersion=str(api.version - 1))
    assert watching(api, resourceVersion=str(api.version)) == []


def test_a_list_in_pages_is_of_one_moment_even_if_all_is_deleted_meanwhile() -> None:
    api = api_server()
    for name in "abc":
        call(api, "POST", POD_PATH, pod(name))
    _, first = call(api, "GET", POD_PATH, limit="2")
    assert first["metadata"]["remainingItemCount"] == 1
    call(api, "DELETE", POD_PATH)
    token = first["metadata"]["continue"]
    for _ in range(2):  # a token may be used again
        status, last = call(api, "GET", POD_PATH, limit="2", **{"continue": token})
        assert status == 200
        assert [item["metadata"]["name"] for item in last["items"]] == ["c"]
        assert last["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert call(api, "GET", POD_PATH)[1]["items"] == []


def test_only_so_many_lists_are_remembered() -> None:
    api = api_server()
    for name in "ab":
        call(api, "POST", POD_PATH, pod(name))
    tokens = [
        call(api, "GET", POD_PATH, limit="1")[1]["metadata"]["continue"]
        for _ in range(KEPT_LISTS + 1)
    ]
    codes = [call(api, "GET", POD_PATH, **{"continue": token})[0] for token in tokens]
    assert codes == [410] + [200] * KEPT_LISTS


def test_what_leaves_a_selection_is_told_as_it_was_inside_under_the_new_version() -> None:
    api = api_server()
    lines = watching(
        api, fieldSelector="spec.nodeName=", labelSelector="app!=x", resourceVersion="1000000"
    )
    call(api, "POST", POD_PATH, pod("p"))
    bind(api, "p", "n1")
    assert told(lines) == [("ADDED", "p"), ("DELETED", "p")]
    gone = msgspec.json.decode(lines[1])["object"]
    assert "nodeName" not in gone["spec"]
    assert gone["metadata"]["resourceVersion"] == str(api.version)


def test_a_watch_without_a_version_begins_with_what_is_there() -> None:
    api = api_server()
    call(api, "POST", POD_PATH, pod("p"))
    lines = watching(api, sendInitialEvents="true")
    assert told(lines) == [("ADDED", "p"), ("BOOKMARK", "")]


def test_a_finalizer_holds_a_deleted_pod_until_it_is_taken_away() -> None:
    api = api_server()
    body = pod("p")
    body["metadata"]["finalizers"] = ["example.com/hold"]
    call(api, "POST", POD_PATH, body)
    lines = watching(api, resourceVersion=str(api.version))
    call(api, "DELETE", f"{POD_PATH}/p")
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/hold"]}}
    assert call(api, "PATCH", f"{POD_PATH}/p", patch, content_type=STRATEGIC)[0] == 200
    assert told(lines) == [("MODIFIED", "p"), ("DELETED", "p")]
    assert call(api, "GET", f"{POD_PATH}/p")[0] == 404


def test_old_events_give_way() -> None:
    api = api_server(event_window=2)
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    for number in range(4):
        assert call(api, "POST", path, {"metadata": {"name": f"e{number}"}})[0] == 201
    names = [item["metadata"]["name"] for item in call(api, "GET", path)[1]["items"]]
    assert names == ["e2", "e3"]
