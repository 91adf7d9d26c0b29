"""The simulated cluster over HTTP: faults that are proved, watches that are cut, its own pages."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stretto.kube.answers import BindAnswer, BindKind
from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.kube.errors import KubeUnreachable
from stretto.simulator.cluster import SimulatedCluster, SimulatorError, SimulatorSettings
from stretto.simulator.faults import Effect
from stretto.simulator.process import run
from stretto.simulator.settings import KubeletMode
from tests.simulator.brain import POD_PATH, node, pod


@contextlib.asynccontextmanager
async def serving(
    settings: SimulatorSettings | None = None,
) -> AsyncIterator[tuple[SimulatedCluster, KubeClient]]:
    async with (
        SimulatedCluster(settings) as cluster,
        KubeClient(KubeConfig.from_url(cluster.url), timeout_s=5) as client,
    ):
        yield cluster, client


async def created(client: KubeClient, body: dict[str, Any], path: str = POD_PATH) -> dict[str, Any]:
    answer = await client.post(path, body)
    assert answer.status == 201, answer.text
    meta: dict[str, Any] = msgspec.json.decode(answer.body)["metadata"]
    return meta


async def bind(client: KubeClient, meta: dict[str, Any], node_name: str = "n1") -> BindAnswer:
    return await client.bind(
        namespace="default",
        name=meta["name"],
        uid=meta["uid"],
        resource_version=meta["resourceVersion"],
        node=node_name,
    )


async def body_of(client: KubeClient, path: str) -> Any:
    answer = await client.get(path)
    return msgspec.json.decode(answer.body) if answer.status == 200 else None


async def until(client: KubeClient, path: str, phase: str) -> dict[str, Any]:
    async with asyncio.timeout(5):
        while True:
            body: dict[str, Any] = await body_of(client, path)
            if body["status"]["phase"] == phase:
                return body
            await asyncio.sleep(0.01)


async def until_gone(client: KubeClient, path: str) -> None:
    async with asyncio.timeout(5):
        while (await client.get(path)).status != 404:
            await asyncio.sleep(0.01)


async def test_a_reply_that_is_dropped_leaves_the_bind_done() -> None:
    async with serving() as (cluster, client):
        meta = await created(client, pod("p"))
        rule = cluster.faults.add(Effect.DROP_REPLY, resource="pods/binding", limit=1)
        answer = await bind(client, meta)
        assert (answer.kind, answer.sent) == (BindKind.UNKNOWN, True)
        assert rule.struck == 1
        assert (await body_of(client, f"{POD_PATH}/p"))["spec"]["nodeName"] == "n1"
        assert (await bind(client, meta)).kind is BindKind.CONFLICT


async def test_a_late_bind_is_carried_out_after_the_connection_broke() -> None:
    async with serving() as (cluster, client):
        meta = await created(client, pod("p"))
        rule = cluster.faults.add(Effect.LATE, resource="pods/binding", limit=1, delay_s=0.1)
        assert (await bind(client, meta)).kind is BindKind.UNKNOWN
        assert not (await body_of(client, f"{POD_PATH}/p"))["spec"].get("nodeName")
        await asyncio.sleep(0.2)
        assert (await body_of(client, f"{POD_PATH}/p"))["spec"]["nodeName"] == "n1"
        assert rule.struck == 1


async def test_refused_and_throttled_requests_are_not_carried_out() -> None:
    async with serving() as (cluster, client):
        meta = await created(client, pod("p"))
        cluster.faults.add(Effect.REFUSE, resource="pods/binding", limit=1, status=500)
        cluster.faults.add(Effect.THROTTLE, resource="pods/binding", limit=1, retry_after_s=3)
        assert (await bind(client, meta)).kind is BindKind.UNKNOWN
        throttled = await bind(client, meta)
        assert (throttled.kind, throttled.retry_after) == (BindKind.THROTTLED, 3)
        assert (await bind(client, meta)).kind is BindKind.BOUND


async def test_faults_are_ordered_and_proved_over_http() -> None:
    async with serving() as (_, client):
        rule = {"effect": "delay", "method": "GET", "resource": "pods", "delay_s": 0.05}
        assert (await client.post("/simulator/faults", {"rules": [rule]})).status == 200
        started = time.monotonic()
        await client.get(POD_PATH)
        assert time.monotonic() - started >= 0.05
        (told,) = (await body_of(client, "/simulator/faults"))["rules"]
        assert told["struck"] == 1
        assert (await client.post("/simulator/faults", {"clear": True})).status == 200
        assert (await body_of(client, "/simulator/faults"))["rules"] == []
        for wrong in ({"rulez": []}, {"rules": [{"effect": "explode"}]}, {"rules": [{}]}):
            answer = await client.post("/simulator/faults", wrong)
            assert answer.status == 400
            assert "cannot be read" in answer.text
        assert (await client.get("/simulator/nothing")).status == 404


async def test_watches_are_held_back_and_cut() -> None:
    async with serving() as (cluster, client):
        since = {"resourceVersion": str(cluster.api.version)}
        with pytest.raises(KubeUnreachable):  # noqa: PT012 - the cut ends the watch
            async with client.watch(POD_PATH, since, silence_s=5) as pieces:
                cluster.faults.hold("pods")
                await created(client, pod("held"))
                piece = asyncio.ensure_future(anext(pieces))
                await asyncio.sleep(0.05)
                assert not piece.done()
                assert cluster.faults.held >= 1
                cluster.release_watches("pods")
                assert b"held" in await piece
                assert cluster.cut_watches("nodes") == 0
                assert cluster.cut_watches("pods") == 1
                await anext(pieces)
        assert cluster.faults.cut == 1


async def test_a_bound_pod_runs_for_its_time_and_a_deleted_one_is_ended() -> None:
    async with serving() as (cluster, client):
        await created(client, node("n1"), "/api/v1/nodes")
        short = pod("short", requests={"cpu": "1"})
        short["metadata"]["annotations"] = {"stretto.io/duration-ms": "50"}
        assert (await bind(client, await created(client, short))).kind is BindKind.BOUND
        done = await until(client, f"{POD_PATH}/short", "Succeeded")
        conditions = {one["type"]: one["status"] for one in done["status"]["conditions"]}
        assert conditions == {"PodScheduled": "True", "Ready": "False", "ContainersReady": "False"}
        assert (await bind(client, await created(client, pod("long")))).kind is BindKind.BOUND
        await until(client, f"{POD_PATH}/long", "Running")
        await client.delete(f"{POD_PATH}/long")
        await until_gone(client, f"{POD_PATH}/long")
        stats = await body_of(client, "/simulator/stats")
        assert stats["kubelet"]["admitted"] == 2
        assert stats["kubelet"]["succeeded"] == 1
        assert stats["kubelet"]["holding_room"] == 0
        assert stats["kubelet"]["overcommitted_nodes"] == 0
        assert stats["api"]["requests"]["POST pods/binding 201"] == 2
        assert cluster.stats()["kubelet"] == stats["kubelet"]


async def test_a_rejected_pod_has_failed_with_its_reason() -> None:
    async with serving() as (cluster, client):
        await created(client, node("n1"), "/api/v1/nodes")
        for name in "ab":
            await bind(client, await created(client, pod(name, requests={"cpu": "3"})))
        failed = await until(client, f"{POD_PATH}/b", "Failed")
        assert failed["status"]["reason"] == "OutOfcpu"
        assert "requested: 3000, used: 3000, capacity: 4000" in failed["status"]["message"]
        assert cluster.stats()["kubelet"]["rejected"] == {"OutOfcpu": 1}


async def test_counting_kubelets_write_nothing() -> None:
    async with serving(SimulatorSettings(kubelet=KubeletMode.COUNT, nodes=1, pods=2)) as (
        cluster,
        client,
    ):
        for name in ("pod-000000", "pod-000001"):
            meta = (await body_of(client, f"{POD_PATH}/{name}"))["metadata"]
            await bind(client, meta, "node-00000")
        await asyncio.sleep(0.05)
        assert (await body_of(client, f"{POD_PATH}/pod-000001"))["status"]["phase"] == "Pending"
        assert cluster.stats()["kubelet"]["admitted"] == 2


async def test_a_taken_port_is_one_clear_line() -> None:
    async with serving() as (cluster, _):
        port = int(cluster.url.rpartition(":")[2])
        with pytest.raises(SimulatorError, match=rf"port {port}: .*--port"):
            await run(SimulatorSettings(port=port), stop=asyncio.Event(), ready=None)


async def test_a_host_that_is_no_address_is_one_clear_line() -> None:
    with pytest.raises(SimulatorError, match=r"127.0.0.1.5: [A-Z].*--host"):
        await run(SimulatorSettings(host="127.0.0.1.5"), stop=asyncio.Event(), ready=None)


async def test_the_process_writes_a_kubeconfig_that_leads_to_it(tmp_path: Path) -> None:
    file = tmp_path / "new" / "kubeconfig"
    stop, ready = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(
        run(SimulatorSettings(kubeconfig=file, nodes=2), stop=stop, ready=ready)
    )
    async with asyncio.timeout(5):
        await ready.wait()
        async with KubeClient(await KubeConfig.from_file(file)) as client:
            assert (await client.check()).startswith("v1.37")
            assert len((await body_of(client, "/api/v1/nodes"))["items"]) == 2
        stop.set()
        await task


@pytest.mark.parametrize(
    "wrong", [{"port": 70000}, {"nodes": -1}, {"pod_shapes": 0}, {"bookmark_s": 0.0}]
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="--"):
        SimulatorSettings(**wrong)


async def test_what_is_no_request_is_answered_and_cut_off() -> None:
    async with SimulatedCluster() as cluster:
        host, _, port = cluster.url.removeprefix("http://").partition(":")
        for junk, code in (
            (b"nonsense\r\n\r\n", b"400"),
            (b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", b"413"),
            (b"GET /" + b"a" * 70_000, b"431"),
        ):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(junk)
            async with asyncio.timeout(5):
                assert (await reader.read()).split(b" ", 2)[1] == code
            writer.close()
            await writer.wait_closed()


async def test_bodies_in_chunks_and_requests_sent_ahead_are_understood() -> None:
    async with SimulatedCluster() as cluster:
        host, _, port = cluster.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        body = msgspec.json.encode(pod("p"))
        head = f"POST {POD_PATH} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        chunks = b"5\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (body[:5], len(body) - 5, body[5:])
        ahead = b"GET /livez HTTP/1.1\r\nConnection: close\r\n\r\n"
        for byte in (head + chunks, ahead):
            writer.write(byte)
        async with asyncio.timeout(5):
            text = await reader.read()
        assert text.startswith(b"HTTP/1.1 201")
        assert text.endswith(b"ok")
        writer.close()
        await writer.wait_closed()
