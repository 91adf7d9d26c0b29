"""A request that the API server has put off is not sent again before its time."""

from __future__ import annotations

from stretto.kube.answers import Response
from stretto.kube.put_off import MOST, PutOff
from tests.kube.api_server import answer, client_of, serving

POD = "/api/v1/namespaces/default/pods/p"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l"
PUT_OFF = Response(429, b"slow down", retry_after=3.0)


def test_the_same_request_waits_its_time_and_others_do_not() -> None:
    now = 10.0
    put_off = PutOff(lambda: now)
    put_off.note("PATCH", POD, PUT_OFF)
    early = put_off.answer("PATCH", POD)
    assert early == PUT_OFF
    assert put_off.answer("GET", POD) is None
    assert put_off.answer("PATCH", POD + "2") is None
    now = 12.0
    early = put_off.answer("PATCH", POD)
    assert early is not None
    assert early.retry_after == 1.0
    now = 13.0
    assert put_off.answer("PATCH", POD) is None


def test_other_answers_put_nothing_off() -> None:
    put_off = PutOff(lambda: 0.0)
    for other in (Response(200, b""), Response(429, b""), Response(503, b"", retry_after=3.0)):
        put_off.note("GET", POD, other)
    assert put_off.answer("GET", POD) is None


def test_what_is_never_asked_for_again_is_forgotten() -> None:
    now = 0.0
    put_off = PutOff(lambda: now)
    for number in range(10 * MOST):
        put_off.note("GET", f"{POD}{number}", PUT_OFF)
        now += 1.0
    assert len(put_off._until) <= MOST


async def test_a_client_sends_it_once_and_answers_for_the_server_until_then() -> None:
    slow = answer(429, b"slow down", {"Retry-After": "30"})
    async with serving(slow) as server, client_of(server) as client:
        first, second = await client.get(POD), await client.get(POD)
        assert (first.status, second.status) == (429, 429)
        assert second.text == "slow down"
        assert first.retry_after == 30.0
        assert second.retry_after is not None
        assert 0 < second.retry_after <= 30.0
        assert len(server.requests) == 1
        await client.get(POD + "2")
        assert len(server.requests) == 2


async def test_writers_of_one_object_share_a_put_off_other_requests_to_it_do_not() -> None:
    slow = answer(429, b"slow down", {"Retry-After": "30"})
    async with serving(slow) as server, client_of(server) as client:
        for reason in ("Unschedulable", "SchedulerError"):
            patch = {"metadata": {"resourceVersion": "7"}, "status": {"reason": reason}}
            told = await client.patch_pod_status("default", "p", patch)
            assert told.status == 429
        assert len(server.requests) == 1
        await client.evict("default", "p", uid="u")
        await client.delete(POD)
        assert len(server.requests) == 3


async def test_no_event_waits_for_another() -> None:
    slow = answer(429, b"slow down", {"Retry-After": "30"})
    async with serving(slow) as server, client_of(server) as client:
        for _ in range(2):
            (told,) = await client.create_events([("default", b"{}")])
            assert told.status == 429
        assert len(server.requests) == 2


async def test_leases_and_what_is_created_in_one_folder_are_sent() -> None:
    slow = answer(429, b"slow down", {"Retry-After": "30"})
    async with serving(slow) as server, client_of(server) as client:
        for _ in range(2):
            await client.put(LEASE, {})
            await client.post("/api/v1/namespaces/default/pods", {})
        assert len(server.requests) == 4
