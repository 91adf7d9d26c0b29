"""The whole process against a simulated cluster over HTTP; Binder and shard are played by the
test.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dispatcher.process import run
from stretto.cli.supervisor import answers, free_port
from stretto.config.dispatcher import DispatcherSettings
from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.model.diagnosis import Diagnosis, Rejected
from stretto.model.errors import OperatorError
from stretto.model.shape import Shape
from stretto.model.unit import Unit, Unplaceable, Version
from stretto.rpc.channels import Dialer
from stretto.rpc.messages import FollowKind, FollowMessage, FromShard, ShardHello
from stretto.rpc.services import WORK
from stretto.simulator.cluster import SimulatedCluster
from stretto.simulator.settings import SimulatorSettings
from stretto.snapshot.delta import Delta
from tests.dispatcher.fake_binder import BINDER, SECURITY, FakeBinder, until

pytestmark = pytest.mark.asyncio(loop_scope="session")


def pod(name: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulerName": "stretto", "containers": [container], **spec},
    }


class World:
    """A cluster, a Binder, a dispatcher, and the test's hands."""

    def __init__(self, *, client: KubeClient, binder: FakeBinder, port: int, http: int) -> None:
        self.client = client
        self.binder = binder
        self.port = port
        self.http = http

    async def create(self, name: str, **spec: Any) -> None:
        answer = await self.client.post("/api/v1/namespaces/default/pods", pod(name, **spec))
        assert answer.ok, answer.text

    async def read(self, name: str) -> dict[str, Any]:
        answer = await self.client.get_pod("default", name)
        found: dict[str, Any] = msgspec.json.decode(answer.body)
        return found

    async def condition(self, name: str) -> dict[str, Any]:
        conditions = (await self.read(name)).get("status", {}).get("conditions", [])
        found = [c for c in conditions if c["type"] == "PodScheduled"]
        return found[0] if found else {}

    async def events(self) -> list[dict[str, Any]]:
        answer = await self.client.get("/apis/events.k8s.io/v1/namespaces/default/events")
        items: list[dict[str, Any]] = msgspec.json.decode(answer.body)["items"]
        return items

    def condition_says(self, name: str, text: str) -> Callable[[], Awaitable[bool]]:
        async def says() -> bool:
            return bool((await self.condition(name)).get("message") == text)

        return says

    def metrics_say(self, text: str) -> Callable[[], Awaitable[bool]]:
        async def says() -> bool:
            return text in await self.metrics()

        return says

    async def shard(self) -> Any:
        dialer = Dialer(f"127.0.0.1:{self.port}", security=SECURITY, rng=random.Random(1))
        hello = ShardHello(shard="shard-1", incarnation="one")
        stream, _ = await dialer.connect(WORK, lambda: FromShard(hello=hello, credits=50))
        return stream

    async def metrics(self) -> str:
        return await self.get("/metrics")

    async def get(self, path: str) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.http)
        writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        text = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
        return text


async def eventually(read: Callable[[], Awaitable[Any]]) -> Any:
    """What ``read`` gives once that is not empty."""
    async with asyncio.timeout(5):
        while not (found := await read()):
            await asyncio.sleep(0.01)
    return found


async def next_units(stream: Any) -> list[Unit]:
    async with asyncio.timeout(5):
        message = await stream.receive()
    assert message is not None
    units: list[Unit] = message.units
    return units


@contextlib.asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    kubeconfig = folder / "kubeconfig"
    binder = FakeBinder()
    await binder.server.start()
    port, http = free_port(), free_port()
    settings = DispatcherSettings(
        kubeconfig=kubeconfig,
        listen=f"127.0.0.1:{port}",
        telemetry_listen=f"127.0.0.1:{http}",
        binder=f"127.0.0.1:{binder.server.port}",
    )
    stop, ready = asyncio.Event(), asyncio.Event()
    async with (
        SimulatedCluster(SimulatorSettings(kubeconfig=kubeconfig, seed=1)) as cluster,
        KubeClient(KubeConfig.from_url(cluster.url)) as client,
    ):
        running = asyncio.create_task(run(settings, stop=stop, ready=ready))
        try:
            async with asyncio.timeout(10):
                await asyncio.wait(
                    [running, waiting := asyncio.create_task(ready.wait())],
                    return_when=asyncio.FIRST_COMPLETED,
                )
                await waiting
            yield World(client=client, binder=binder, port=port, http=http)
        finally:
            stop.set()
            async with asyncio.timeout(5):
                await running
            await binder.server.stop(0)
        answer = await client.get(
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/stretto-dispatcher"
        )
        assert msgspec.json.decode(answer.body)["spec"]["holderIdentity"] == ""


async def test_a_pod_is_sent_told_why_it_waits_woken_and_forgotten_when_bound(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as here:
        assert await answers(f"http://127.0.0.1:{here.http}/readyz")
        await here.create("a")
        await here.create("other", schedulerName="default-scheduler")
        stream = await here.shard()
        units = await next_units(stream)
        assert [unit.members[0].name for unit in units] == ["a"]
        text = "0/1 nodes are available: 1 Insufficient cpu."
        fit = "NodeResourcesFit"
        rejected = (Rejected(fit, "Insufficient cpu", 1),)
        diagnosis = Diagnosis(text, (fit,), 1, rejected, plugin_nodes=((fit, 1),))
        shape = units[0].members[0].shape
        version = Version(BINDER, 1)
        answer = Unplaceable(units[0].unit_id, units[0].attempt, shape, version, diagnosis)
        await stream.send(FromShard(unplaceable=[answer]))
        await eventually(here.condition_says("a", text))
        events = await eventually(here.events)
        assert (await here.condition("a"))["reason"] == "Unschedulable"
        assert (await here.condition("a"))["lastTransitionTime"]
        assert [(e["reason"], e["note"]) for e in events] == [("FailedScheduling", text)]
        asked = await here.get(f"/debug/diagnosis?unit={units[0].unit_id}")
        told = msgspec.json.decode(asked.partition("\r\n\r\n")[2])
        assert told["message"] == text
        assert told["version"] == {"epoch": BINDER, "sequence": 1}
        reasons = [{"reason": "Insufficient cpu", "nodes": 1, "unresolvable": 0}]
        assert told["plugins"] == [{"plugin": fit, "nodes": 1, "reasons": reasons}]
        await eventually(
            here.metrics_say(f'rejected_nodes{{plugin="{fit}",profile="stretto"}} 1.0')
        )
        freed = Delta(epoch=BINDER, sequence=2)
        freed.shapes = [(1, Shape(profile="stretto", namespace="default"))]
        freed.add_pod(shape_id=1, node_id=1, uid="gone", sign=-1)
        await here.binder.log.put(FollowMessage(FollowKind.DELTA, freed))
        again = await next_units(stream)
        version_now = int((await here.read("a"))["metadata"]["resourceVersion"])
        assert again[0].members[0].resource_version == version_now, "after our own patch"
        member = again[0].members[0]
        bound = await here.client.bind(
            namespace="default",
            name="a",
            uid=member.uid,
            resource_version=member.resource_version,
            node="n1",
        )
        assert bound.status == 201
        await eventually(here.metrics_say('profile="stretto",result="scheduled"} 1'))
        metrics = await here.metrics()
        assert 'scheduler_pending_pods{queue="active"} 0.0' in metrics
        await stream.close()


async def test_a_gated_pod_and_a_deleted_one(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        stream = await here.shard()
        await here.create("gated", schedulingGates=[{"name": "wait"}])
        await here.create("doomed")
        units = await next_units(stream)
        assert [unit.members[0].name for unit in units] == ["doomed"]
        await here.client.delete("/api/v1/namespaces/default/pods/doomed")
        uid = units[0].unit_id
        await until(lambda: any(uid in request.withdraw for request in here.binder.requests))
        patch = {"spec": {"schedulingGates": None}}
        answer = await here.client.patch("/api/v1/namespaces/default/pods/gated", patch)
        assert answer.ok, answer.text
        units = await next_units(stream)
        assert [unit.members[0].name for unit in units] == ["gated"]
        await stream.close()


async def test_a_pod_that_asks_for_what_is_not_built_is_refused_by_name(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.create("pair", workloadRef={"name": "w"})
        condition = await eventually(lambda: here.condition("pair"))
        assert condition["reason"] == "Unschedulable"
        assert "GangScheduling" in condition["message"]


async def test_an_unreachable_api_server_is_one_clear_line(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    async with SimulatedCluster(SimulatorSettings(kubeconfig=kubeconfig)):
        pass
    settings = DispatcherSettings(kubeconfig=kubeconfig, listen="127.0.0.1:0")
    with pytest.raises(OperatorError):
        await run(settings, stop=asyncio.Event())
