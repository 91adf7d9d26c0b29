"""The API server dies and comes back: watches go on, the leader stays the leader, nothing is
missed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from stretto.kube.answers import BindKind
from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.kube.lease import LeaseSettings
from stretto.kube.lease_keeper import LeaseKeeper
from stretto.kube.reflections import EventKind
from tests.contract.cluster import Cluster, Follower, path_of
from tests.kube_env.control_plane import ControlPlane

pytestmark = [pytest.mark.kube, pytest.mark.timeout(60)]


async def becomes(true: Callable[[], bool]) -> bool:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.05)
    return True


async def test_a_killed_api_server_is_waited_for(
    new_control_plane: Callable[..., ControlPlane],
) -> None:
    plane = await asyncio.to_thread(new_control_plane)
    config = await KubeConfig.from_file(plane.kubeconfig)
    async with KubeClient(config, timeout_s=2.0) as client:
        cluster = Cluster(client, "default")
        kept, gone = await cluster.create_pod("kept"), await cluster.create_pod("gone")
        reflector = cluster.reflector()
        follower = Follower(reflector)
        assert {event.name for event in await follower.until_synced()} == {"kept", "gone"}
        times: dict[str, Any] = {"duration_s": 3.0, "renew_deadline_s": 2.0, "retry_s": 0.2}
        lease = LeaseSettings(namespace="default", name="binder", identity="me", **times)
        keeper = LeaseKeeper(client, lease)
        epoch = (await keeper.acquire()).epoch
        renewing = asyncio.create_task(keeper.run())

        plane.kill("kube-apiserver")
        answer = await cluster.bind(kept)
        assert answer.kind is BindKind.UNKNOWN
        await asyncio.sleep(2.5)
        assert not keeper.valid(), "nothing may be done without a Lease that is sure"
        assert reflector.problem

        await asyncio.to_thread(plane.start_apiserver)
        assert (await client.delete(path_of(gone))).status == 200
        await cluster.create_pod("late")
        expected = {(EventKind.DELETED, "gone"), (EventKind.ADDED, "late")}
        while expected:  # a deletion may be told in two steps, and a list may come in between
            event = await follower.next()
            expected.discard((event.kind, event.name))
            assert event.kind is not EventKind.DELETED or event.name == "gone"
        assert await becomes(keeper.valid)
        assert not keeper.lost.is_set(), "nobody else took it, so the tenure goes on"
        assert keeper._machine.tenure is not None
        assert keeper._machine.tenure.epoch == epoch
        assert (await cluster.bind(kept)).kind is BindKind.BOUND
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        await follower.close()
