"""What each answer to a binding POST is taken to prove (the table of the bind protocol)."""

from __future__ import annotations

import json

import pytest

from stretto.kube.answers import BindKind, BindRefusal, Response, classify_bind
from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from tests.kube.api_server import (
    Handler,
    answer,
    client_of,
    hang_up,
    refusal,
    say_nothing,
    serving,
    status_body,
)

BIND = {"namespace": "default", "name": "p1", "uid": "u1", "resource_version": 7, "node": "n1"}


@pytest.mark.parametrize(
    ("handler", "kind"),
    [
        (answer(201, status_body(201)), BindKind.BOUND),
        (answer(201, b"{trunc"), BindKind.UNKNOWN),
        (answer(200, status_body(200)), BindKind.UNKNOWN),
        (refusal(404, 'pods "p1" not found', "NotFound"), BindKind.GONE),
        (answer(404, b"404 page not found"), BindKind.UNKNOWN),
        (refusal(409, "anything", "Conflict"), BindKind.CONFLICT),
        (refusal(429, "slow down", "TooManyRequests"), BindKind.THROTTLED),
        (refusal(401, "Unauthorized", "Unauthorized"), BindKind.UNAUTHORIZED),
        (refusal(403, "forbidden", "Forbidden"), BindKind.FORBIDDEN),
        (refusal(400, "bad", "BadRequest"), BindKind.INVALID),
        (refusal(422, "bad", "Invalid"), BindKind.INVALID),
        (refusal(500, "boom", "InternalError"), BindKind.UNKNOWN),
        (answer(502, b"<html>"), BindKind.UNKNOWN),
        (refusal(503), BindKind.UNKNOWN),
        (refusal(504, "timeout", "Timeout"), BindKind.UNKNOWN),
        (answer(302, b"", {"Location": "/elsewhere"}), BindKind.UNKNOWN),
        (hang_up, BindKind.UNKNOWN),
        (say_nothing, BindKind.UNKNOWN),
    ],
)
async def test_each_answer_has_one_meaning(handler: Handler, kind: BindKind) -> None:
    async with serving(handler) as server, client_of(server, timeout_s=0.2) as client:
        got = await client.bind(**BIND)
        assert got.kind is kind
        assert got.sent
        assert len(server.requests) == 1
        assert client.binds_in_flight == 0
        assert client.usage.total("create", "pods/binding") == 1


async def test_the_body_carries_both_preconditions() -> None:
    async with serving(answer(201, status_body(201))) as server, client_of(server) as client:
        await client.bind(**BIND)
        assert server.requests[0].path == "/api/v1/namespaces/default/pods/p1/binding"
        assert json.loads(server.bodies[0]) == {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "p1", "namespace": "default", "uid": "u1", "resourceVersion": "7"},
            "target": {"kind": "Node", "name": "n1"},
        }


async def test_a_throttled_bind_says_how_long_to_wait() -> None:
    named, unnamed = refusal(429, "", "", **{"Retry-After": "3"}), refusal(429)
    async with serving(named, unnamed) as server, client_of(server) as client:
        assert (await client.bind(**BIND)).retry_after == 3.0
        assert (await client.bind(**BIND)).retry_after == 1.0


async def test_nothing_was_sent_if_no_connection_opened() -> None:
    async with serving(hang_up) as server:
        url = server.url
    async with KubeClient(KubeConfig.from_url(url)) as client:
        got = await client.bind(**BIND)
    assert (got.kind, got.sent) == (BindKind.UNKNOWN, False)
    assert "cannot be reached" in got.text


@pytest.mark.parametrize("field", ["namespace", "name", "uid", "resource_version", "node"])
async def test_an_empty_field_is_refused_before_it_is_sent(field: str) -> None:
    async with serving(hang_up) as server, client_of(server) as client:
        got = await client.bind(**{**BIND, field: ""})
        assert (got.kind, got.status) == (BindKind.INVALID, 0)
        assert not server.requests


@pytest.mark.parametrize("name", ["a", "x" * 253, "o'dd/../name?x=1#%2f", "ünï"])
async def test_any_name_reaches_its_own_path(name: str) -> None:
    async with serving(answer(201, status_body(201))) as server, client_of(server) as client:
        await client.bind(**{**BIND, "name": name})
        assert server.requests[0].path == f"/api/v1/namespaces/default/pods/{name}/binding"
        assert json.loads(server.bodies[0])["metadata"]["name"] == name


@pytest.mark.parametrize(
    ("text", "refusal_kind"),
    [
        (
            "Precondition failed: ResourceVersion in precondition: 1, ResourceVersion in object "
            "meta: 2",
            BindRefusal.RESOURCE_VERSION,
        ),
        ("Precondition failed: UID in precondition: a, UID in object meta: b", BindRefusal.UID),
        ('pod p1 is already assigned to node "n1"', BindRefusal.ASSIGNED),
        ("pod p1 has non-empty .spec.schedulingGates", BindRefusal.GATED),
        ("pod p1 is being deleted, cannot be assigned to a host", BindRefusal.DELETING),
        ("something new", BindRefusal.OTHER),
    ],
)
def test_refusals_are_told_apart_by_text(text: str, refusal_kind: BindRefusal) -> None:
    body = json.dumps(status_body(409, text, "Conflict")).encode()
    assert classify_bind(Response(status=409, body=body)).refusal is refusal_kind
