"""What the Binder's gauges tell that an operator acts on."""

from __future__ import annotations

import asyncio
import re

from prometheus_client import generate_latest

from binder.gauges import Ages, Gauges
from binder.rejections import WAITING, Rejections
from stretto.kube.client import KubeClient
from stretto.telemetry.binder_metrics import BinderMetrics
from tests.binder.shells import PODS, Rig, create, simulated, until
from tests.binder.world import World, shape_of


def text_of(metrics: BinderMetrics) -> str:
    return generate_latest(metrics.registry).decode()


def test_the_oldest_is_told_until_it_is_gone() -> None:
    ages = Ages()
    assert ages.oldest_s([], now=5.0) == 0.0
    assert ages.oldest_s(["a"], now=10.0) == 0.0
    assert ages.oldest_s(["a", "b"], now=40.0) == 30.0
    assert ages.oldest_s(["b"], now=41.0) == 1.0
    assert ages.oldest_s(["a", "b"], now=42.0) == 2.0, "one that comes again is a new one"


def test_each_generation_of_the_ledger_counts_once() -> None:
    metrics = BinderMetrics()
    gauges = Gauges(World().machine, metrics)
    for generations in (1, 1, 2):
        gauges.look(now=0.0, silence_s=0.0, generations=generations)
    assert "stretto_ledger_generations_total 2.0" in text_of(metrics)


def test_a_foreign_pod_beyond_the_room_beside_ours_is_a_collision() -> None:
    world, metrics = World(), BinderMetrics()
    for name in ("n1", "n2"):
        world.node(name)
    world.round()
    gauges = Gauges(world.machine, metrics)

    def told() -> tuple[bool, bool]:
        gauges.look(now=0.0, silence_s=0.0, generations=0)
        text = text_of(metrics)
        return (
            "stretto_overcommitted_nodes 1.0" in text,
            "stretto_foreign_collisions_total 1.0" in text,
        )

    def foreign(name: str, cpu: int, node: str) -> None:
        world.api.put(world.api.create(name, shape_of(cpu)), node, foreign=True)
        world.deliver(9)
        world.round()

    world.propose(world.incoming(world.api.create("ours", shape_of(3000)), nodes=("n1",)))
    world.settle_all()
    foreign("fits", 1000, "n1")
    foreign("too much for a node without ours", 5000, "n2")
    told()
    assert told() == (True, False)
    foreign("one too many", 1, "n1")
    told()
    assert told()[1]
    assert told()[1], "it counts once"


async def test_a_pod_that_the_kubelet_refused_is_counted_by_its_reason() -> None:
    """Its last sight in the watch of bound pods is of one that has not run; it is read once."""
    async with simulated() as (_, client):
        rig = Rig(client, epoch=1)
        rejections = Rejections(client, rig.metrics)
        rig.watches.unstarted = rejections.left
        await rig.open(clean=True)
        rig.start()
        reading = asyncio.create_task(rejections.run())
        try:
            for name in ("ran", "full", "gpu", "odd"):
                await create(client, name)
                rig.commits.propose([await rig.proposal(name, "n1")])
            await until(lambda: len(rig.machine.bindings) == 4 and not rig.machine.open, "bound")
            await becomes(client, "ran", {"phase": "Running"})
            await becomes(client, "ran", {"phase": "Failed", "reason": "Evicted"})
            await becomes(client, "full", {"phase": "Failed", "reason": "OutOfcpu"})
            await becomes(client, "gpu", {"phase": "Failed", "reason": "OutOfexample.com/gpu"})
            await becomes(client, "odd", {"phase": "Failed", "reason": "whatever a user wrote"})
            await until(lambda: 'reason="other"} 1.0' in text_of(rig.metrics), "counted")
        finally:
            reading.cancel()
            await rig.stop()
        lines = re.findall(r"stretto_kubelet_rejections_total{.*", text_of(rig.metrics))
        assert sorted(lines) == [
            f'stretto_kubelet_rejections_total{{reason="{reason}"}} 1.0'
            for reason in ("OutOfOther", "OutOfcpu", "other")
        ]


async def test_reads_are_bounded_and_what_is_not_read_is_told() -> None:
    async with simulated() as (_, client):
        metrics = BinderMetrics()
        rejections = Rejections(client, metrics)
        for number in range(WAITING + 2):
            rejections.left("default", f"p{number}", "uid")
        assert 'stretto_kubelet_rejections_total{reason="unread"} 2.0' in text_of(metrics)


async def becomes(client: KubeClient, name: str, status: dict[str, str]) -> None:
    """What the kubelet says of a pod."""
    answer = await client.patch(f"{PODS}/{name}/status", {"status": status})
    assert answer.ok, answer.text
