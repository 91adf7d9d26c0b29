"""Whether an optional API is served: only a clear answer counts."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

import binder.object_watches
from binder.cluster import Cluster
from binder.kinds import KINDS
from binder.object_watches import ObjectWatch
from stretto.kube.reflector import Reflector
from stretto.quota.rows import QUEUE
from tests.binder.shells import Rig, simulated
from tests.kube.api_server import Handler, answer, client_of, serving, status_body

KIND = next(kind for kind in KINDS if kind.kind == QUEUE)
UNCLEAR = (
    answer(503, status_body(503, "try again")),
    answer(429, status_body(429, "too many")),
    answer(200, b"no JSON"),
)
SERVED = answer(200, {"resources": [{"name": "queues"}]})
ABSENT = (answer(404, status_body(404)), answer(200, {"resources": [{"name": "others"}]}))
DENIED = answer(403, status_body(403, "no list for you"))
EMPTY = answer(200, {"metadata": {"resourceVersion": "1"}, "items": []})


async def asked_at_start(*script: Handler) -> tuple[int, bool]:
    """(requests until the watch counts as synced, whether quota is on then)."""
    cluster, synced = Cluster(epoch=1), asyncio.Event()
    async with serving(*script) as server, client_of(server) as client:
        watch = ObjectWatch(
            KIND, client=client, cluster=cluster, changed=lambda: None, synced=synced.set
        )
        task = asyncio.create_task(watch.run())
        async with asyncio.timeout(20):
            await synced.wait()
        seen = len(server.requests), cluster.quota.on
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return seen


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binder.object_watches, "ASK_AGAIN_S", 0.01)


async def test_an_error_at_start_does_not_switch_quota_off() -> None:
    requests, on = await asked_at_start(*UNCLEAR, SERVED, EMPTY)
    assert on
    assert requests >= len(UNCLEAR) + 2


@pytest.mark.parametrize("absent", ABSENT)
async def test_what_is_not_served_is_synced_at_once(absent: Handler) -> None:
    requests, on = await asked_at_start(UNCLEAR[0], absent, EMPTY)
    assert (requests, on) == (2, False)


async def test_where_discovery_is_denied_the_list_says_what_is_served() -> None:
    assert await asked_at_start(DENIED, EMPTY) == (3, True)
    assert await asked_at_start(DENIED, ABSENT[0]) == (2, False)


async def test_a_right_that_lacks_is_one_line_and_nothing_opens_without_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    requests, on = await asked_at_start(*[DENIED] * 6, DENIED, EMPTY)
    assert (requests, on) == (9, True)
    lines = [line for line in caplog.messages if "403" in line]
    assert lines == [
        f"list {KIND.path}: 403 no list for you; give the role of this process list and watch of "
        "queues (deploy/base/rbac-*.yaml); it is tried again, and nothing opens before"
    ]


async def test_a_list_that_is_denied_though_it_is_served_is_one_line_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    requests, on = await asked_at_start(SERVED, DENIED, DENIED, EMPTY)
    assert (requests, on) == (4, True)
    (line,) = [line for line in caplog.messages if "403" in line]
    assert "give the role of this process list and watch of queues" in line


async def test_whatever_is_given_away_is_read_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """A volume or device that a watch has lost would be taken for free, or for taken, for ever."""
    rechecked = []

    async def noting(reflector: Reflector[object]) -> None:
        rechecked.append(reflector._path)
        reflector.losses = 1
        await asyncio.Event().wait()

    monkeypatch.setattr(Reflector, "recheck", noting)
    async with simulated() as (_, client):
        rig = Rig(client, epoch=1)
        await rig.open(clean=True)
        rig.start()
        try:
            given = {kind.path for kind in KINDS if kind.label_keys is None}
            assert {"/api/v1/persistentvolumes", "/api/v1/persistentvolumeclaims"} <= given
            assert {"deviceclasses", "resourceclaims", "resourceslices"} <= {
                path.rpartition("/")[2] for path in given
            }
            expected = ["/api/v1/nodes", "/api/v1/pods", *given]
            assert sorted(rechecked) == sorted(expected)
            assert rig.watches.losses == len(expected)
        finally:
            await rig.stop()
