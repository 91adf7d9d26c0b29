"""Without rights at a real API server: what is denied is told, what is not served needs none."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from binder.cluster import Cluster
from binder.kinds import DEVICE_API, KINDS, ObjectKind
from binder.object_watches import ObjectWatch
from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.model.groups import LEGACY_GROUPS
from tests.e2e.stack import until
from tests.kube_env.control_plane import ControlPlane

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(120)]

CLAIMS = next(k for k in KINDS if (k.api, k.resource) == (DEVICE_API, "resourceclaims"))
NOT_SERVED = next(kind for kind in KINDS if kind.key_suffix == LEGACY_GROUPS)


async def test_what_is_denied_is_one_line_and_what_is_not_served_needs_no_right(
    plane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "powerless"}}
    status, body = plane.request("POST", "/api/v1/namespaces/default/serviceaccounts", account)
    assert status in (201, 409), body
    config = await KubeConfig.from_file(plane.kubeconfig_for("default", "powerless"))
    synced: list[ObjectKind] = []
    async with KubeClient(config) as client:
        watches = [
            ObjectWatch(
                kind,
                client=client,
                cluster=Cluster(epoch=1),
                changed=lambda: None,
                synced=lambda kind=kind: synced.append(kind),  # type: ignore[misc]
            )
            for kind in (CLAIMS, NOT_SERVED)
        ]
        tasks = [asyncio.create_task(watch.run()) for watch in watches]

        await until(
            lambda: bool(client.usage.denied() and synced), timeout_s=30, what="both are answered"
        )
        await asyncio.sleep(1.0)
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        assert synced == [NOT_SERVED]
        assert client.usage.denied() == [("list", "resourceclaims")]
    (line,) = [line for line in caplog.messages if "403" in line]
    assert CLAIMS.path in line
    assert "give the role of this process list and watch of resourceclaims" in line
