"""The recorder misses nothing in silence."""

from __future__ import annotations

import asyncio
import json
import pathlib

import pytest

from stretto.audit.recorder import Recorder
from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.simulator.cluster import SimulatedCluster
from stretto.simulator.settings import KubeletMode, SimulatorSettings
from tests.binder.shells import create, delete, node_manifest, until


def lines(path: pathlib.Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def names(path: pathlib.Path) -> list[tuple[object, object]]:
    """(kind, type) of what was recorded, pods and nodes only."""
    return [(line["kind"], line["type"]) for line in lines(path) if "kind" in line]


async def test_every_change_is_recorded_in_order(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "api.jsonl"
    settings = SimulatorSettings(kubelet=KubeletMode.OFF)
    async with (
        SimulatedCluster(settings) as cluster,
        KubeClient(KubeConfig.from_url(cluster.url)) as client,
    ):
        await client.post("/api/v1/nodes", node_manifest("n1"))
        async with Recorder(client, path) as recorder:
            await create(client, "p")
            cluster.cut_watches()
            await create(client, "q")
            await recorder.caught_up()
            await delete(client, "p")
            await until(lambda: ("pods", "DELETED") in names(path), "the deletion is recorded")
    assert names(path)[0] == ("nodes", "ADDED")
    assert [type_ for kind, type_ in names(path) if kind == "pods"][:2] == ["ADDED", "ADDED"]
    assert not [line for line in lines(path) if "gap" in line]


@pytest.mark.parametrize("changed", [False, True])
async def test_a_version_that_is_too_old_is_a_gap_only_if_something_was_missed(
    tmp_path: pathlib.Path, changed: bool
) -> None:
    path = tmp_path / "api.jsonl"
    settings = SimulatorSettings(kubelet=KubeletMode.OFF)
    async with (
        SimulatedCluster(settings) as cluster,
        KubeClient(KubeConfig.from_url(cluster.url)) as client,
    ):
        await client.post("/api/v1/nodes", node_manifest("n1"))
        async with Recorder(client, path) as recorder:
            await create(client, "p")
            await recorder.caught_up()
            cluster.faults.hold("nodes")
            if changed:
                await client.post("/api/v1/nodes", node_manifest("n2"))
            await create(client, "q")
            cluster.api.compact()
            cluster.cut_watches("nodes")
            cluster.release_watches()
            await recorder.caught_up()
            await asyncio.sleep(0.5)
    gaps = [line["gap"] for line in lines(path) if "gap" in line]
    assert bool(gaps) == changed
