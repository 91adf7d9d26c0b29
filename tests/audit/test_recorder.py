"""The recorder misses nothing in silence."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from stretto.audit.api_log import read_api_log
from stretto.audit.recorder import PATHS, Recorder
from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.simulator.cluster import SimulatedCluster
from stretto.simulator.faults import Effect, FaultRule
from stretto.simulator.settings import KubeletMode, SimulatorSettings
from tests.binder.shells import create, delete, node_manifest, until
from tests.kube_env.control_plane import ControlPlane


def lines(path: pathlib.Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def names(path: pathlib.Path) -> list[tuple[object, object]]:
    """(kind, type) of what was recorded, pods and nodes only."""
    return [(line["kind"], line["type"]) for line in lines(path) if line["type"] != "LISTED"]


@contextlib.asynccontextmanager
async def simulated() -> AsyncIterator[tuple[SimulatedCluster, KubeClient]]:
    """A cluster without kubelets, with one node."""
    settings = SimulatorSettings(kubelet=KubeletMode.OFF)
    async with (
        SimulatedCluster(settings) as cluster,
        KubeClient(KubeConfig.from_url(cluster.url)) as client,
    ):
        await client.post("/api/v1/nodes", node_manifest("n1"))
        yield cluster, client


async def test_every_change_is_recorded_in_order(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "api.jsonl"
    async with simulated() as (cluster, client), Recorder(client, path) as recorder:
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
    async with simulated() as (cluster, client), Recorder(client, path) as recorder:
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
    gaps = [line for line in lines(path) if "gap" in line]
    assert bool(gaps) == changed
    for line in gaps:
        assert (line["kind"], line["type"]) == ("nodes", "LISTED")
        assert line["after"] < line["until"]


async def test_a_deletion_is_waited_for(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "api.jsonl"
    async with simulated() as (cluster, client), Recorder(client, path) as recorder:
        await create(client, "p")
        await recorder.caught_up()
        cluster.faults.hold("pods")
        await delete(client, "p")
        listed = client.usage.total("list", "pods")

        async def caught_up() -> list[tuple[object, object]]:
            await recorder.caught_up()
            return names(path)

        waiting = asyncio.create_task(caught_up())
        await until(lambda: client.usage.total("list", "pods") > listed, "the list is read")
        await asyncio.sleep(0.2)  # in which it would end if it did not wait
        cluster.release_watches()
        assert ("pods", "DELETED") in await waiting


async def test_an_end_that_was_not_watched_is_told_as_one(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "api.jsonl"
    async with simulated() as (cluster, client), Recorder(client, path) as recorder:
        await recorder.caught_up()
        cluster.faults.rules.append(FaultRule(effect=Effect.REFUSE, method="WATCH"))
        cluster.cut_watches("nodes")
        await until(lambda: set(recorder.away) == {"nodes"}, "the refusal is told")
        cluster.faults.rules.clear()
        await until(lambda: not recorder.away, "it is watched again")
        assert not recorder.gaps
        recorder.end_unknown("nobody answers")
        assert recorder.gaps == ["nobody answers"]
    log = read_api_log(path.read_bytes().splitlines())
    assert set(log.gaps) == {"nobody answers"}
    assert not log.known_at_the_end("pods")
    assert not log.known_at_the_end("nodes")


def told(path: pathlib.Path) -> list[tuple[str, str, str]]:
    """(type, pod, node) of the changes of pods, in order."""
    return [
        (line["type"], line["object"]["metadata"]["name"], line["object"]["spec"].get("nodeName"))
        for line in lines(path)
        if line["kind"] == "pods" and line["type"] != "LISTED"
    ]


async def test_what_a_restarted_server_does_not_tell_is_listed_version_by_version(
    tmp_path: pathlib.Path,
) -> None:
    path = tmp_path / "api.jsonl"
    async with simulated() as (cluster, client), Recorder(client, path) as recorder:
        await create(client, "kept")
        await create(client, "gone")
        await recorder.caught_up()
        cluster.faults.hold("pods")
        await create(client, "bound")
        await bind(client, "bound")
        await bind(client, "kept")
        await create(client, "brief")
        await delete(client, "brief")
        await delete(client, "gone")
        cluster.api.forget_watched()
        for number in range(40):
            await create(client, f"late{number}")
        listed = client.usage.total("list", "pods")
        cluster.cut_watches("pods")
        cluster.release_watches()
        await recorder.caught_up()
        listed = client.usage.total("list", "pods") - listed
    assert listed < 20, "what the watch can tell was listed too"
    assert not [line for line in lines(path) if "gap" in line]
    assert told(path) == [
        ("ADDED", "kept", None),
        ("ADDED", "gone", None),
        ("ADDED", "bound", None),
        ("MODIFIED", "bound", "n1"),
        ("MODIFIED", "kept", "n1"),
        ("ADDED", "brief", None),
        ("MODIFIED", "brief", None),
        ("DELETED", "brief", None),
        ("MODIFIED", "gone", None),
        ("DELETED", "gone", None),
        *(("ADDED", f"late{number}", None) for number in range(40)),
    ]
    pods = [line for line in lines(path) if line["kind"] == "pods" and "object" in line]
    versions = [int(line["object"]["metadata"]["resourceVersion"]) for line in pods]
    assert versions == sorted(set(versions))


async def test_a_list_that_is_refused_after_a_gap_is_asked_for_again(
    tmp_path: pathlib.Path,
) -> None:
    path = tmp_path / "api.jsonl"
    async with (
        SimulatedCluster(SimulatorSettings(kubelet=KubeletMode.OFF)) as cluster,
        KubeClient(KubeConfig.from_url(cluster.url)) as client,
        Recorder(client, path) as recorder,
    ):
        await create(client, "p")
        await recorder.caught_up()
        cluster.faults.hold("pods")
        await create(client, "q")
        cluster.api.compact()
        rule = FaultRule(effect=Effect.REFUSE, method="GET", resource="pods", limit=2)
        cluster.faults.rules.append(rule)
        cluster.cut_watches("pods")
        cluster.release_watches()
        await until(lambda: ("ADDED", "q", None) in told(path), "the list is read")
        await recorder.caught_up()
        listed = [line for line in lines(path) if line["type"] == "LISTED"][-1]
        assert listed["gap"]
        assert listed["gone"] == []


async def bind(client: KubeClient, name: str) -> None:
    """Bind a pod to n1."""
    meta = msgspec.json.decode((await client.get_pod("default", name)).body)["metadata"]
    answer = await client.bind(
        namespace="default", name=name, uid=meta["uid"],
        resource_version=int(meta["resourceVersion"]), node="n1",
    )  # fmt: skip
    assert answer.status == 201


@pytest.mark.kube
@pytest.mark.timeout(60)
async def test_a_restarted_api_server_lists_the_versions_that_its_watches_do_not_have(
    new_control_plane: Callable[..., ControlPlane], tmp_path: pathlib.Path
) -> None:
    """The real one. The recorder is away while things happen and until the restart is over, so
    that its watch is too old for certain."""
    path, plane = tmp_path / "api.jsonl", await asyncio.to_thread(new_control_plane)
    config = await KubeConfig.from_file(plane.kubeconfig)
    async with KubeClient(config) as client:
        await client.post("/api/v1/nodes", node_manifest("n1"))
        async with Recorder(client, path) as recorder:
            await create(client, "kept")
            await recorder.caught_up()
            for task in recorder._tasks:
                task.cancel()
            await create(client, "bound")
            await bind(client, "bound")
            await create(client, "brief")
            await delete(client, "brief")
            plane.kill("kube-apiserver")
            await asyncio.to_thread(plane.start_apiserver)
            recorder._tasks = [asyncio.create_task(recorder._follow(kind)) for kind in PATHS]
            await recorder.caught_up()
            await create(client, "late")
            await recorder.caught_up()
    assert not [line for line in lines(path) if "gap" in line]
    expected = [
        ("ADDED", "kept", None),
        ("ADDED", "bound", None),
        ("MODIFIED", "bound", "n1"),
        ("ADDED", "brief", None),
        ("MODIFIED", "brief", None),
        ("DELETED", "brief", None),
        ("ADDED", "late", None),
    ]
    assert told(path) == expected
    listed = [line for line in lines(path) if line["type"] == "LISTED" and line["kind"] == "pods"]
    assert len(listed) == 1, "the changes were told one by one, not as a list"
