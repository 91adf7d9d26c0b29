"""Leadership and events as the API server keeps them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from stretto.kube.events import EventWriter, PodEvent
from stretto.kube.lease import LeaseSettings
from stretto.kube.lease_keeper import LeaseKeeper
from tests.contract.cluster import Cluster, decoded

FAST = {"duration_s": 1.5, "renew_deadline_s": 1.0, "retry_s": 0.1}


def keeper_of(cluster: Cluster, identity: str, **settings: Any) -> LeaseKeeper:
    lease = LeaseSettings(
        namespace=cluster.namespace,
        name="binder",
        identity=identity,
        address=f"{identity}:7071",
        **{**FAST, **settings},
    )
    return LeaseKeeper(cluster.client, lease, rng=random.Random(1))


@asynccontextmanager
async def keeping(keeper: LeaseKeeper) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(keeper.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_lease_in_a_namespace_that_does_not_exist_says_so(cluster: Cluster) -> None:
    keeper = keeper_of(Cluster(cluster.client, "nowhere"), "one")
    acquiring = asyncio.create_task(keeper.acquire())
    async with asyncio.timeout(5):
        while not keeper.problem:
            await asyncio.sleep(0.05)
    assert '404 namespaces "nowhere" not found' in keeper.problem
    acquiring.cancel()
    await asyncio.gather(acquiring, return_exceptions=True)


async def test_a_lease_is_made_held_released_and_taken_over_at_once(cluster: Cluster) -> None:
    first = keeper_of(cluster, "one")
    tenure = await first.acquire()
    assert (tenure.first, tenure.clean) == (True, False)
    async with keeping(first):
        await asyncio.sleep(0.5)
        assert first.valid()
    await first.release(clean=True)
    assert not first.valid()
    second = keeper_of(cluster, "two")
    async with asyncio.timeout(2):
        later = await second.acquire()
    assert (later.first, later.clean) == (False, True)
    assert later.epoch > tenure.epoch
    third = keeper_of(cluster, "three", duration_s=60.0)
    waiting = asyncio.create_task(third.acquire())
    await asyncio.sleep(0.3)
    assert third.leader == ("two", "two:7071")
    waiting.cancel()


async def test_a_silent_holder_is_taken_over_after_the_duration_and_finds_out(
    cluster: Cluster,
) -> None:
    silent = keeper_of(cluster, "silent")
    before = await silent.acquire()
    loop = asyncio.get_running_loop()
    started = loop.time()
    async with asyncio.timeout(5):
        after = await keeper_of(cluster, "eager").acquire()
    assert loop.time() - started >= FAST["duration_s"]
    assert after.epoch > before.epoch
    assert after.clean is False
    assert not silent.valid(), "its deadline came before the other's turn"
    async with keeping(silent) as task, asyncio.timeout(5):
        await task
    assert silent.lost.is_set()


async def test_a_release_after_a_renewal_that_was_cut_off_still_works(cluster: Cluster) -> None:
    keeper = keeper_of(cluster, "one", duration_s=60.0)
    await keeper.acquire()
    unseen = dict(keeper._object)
    async with keeping(keeper):
        await asyncio.sleep(0.4)
    keeper._object = unseen  # as if the answers of the last renewals had not been seen
    await keeper.release(clean=True)
    async with asyncio.timeout(2):
        assert (await keeper_of(cluster, "two").acquire()).clean


async def test_of_many_that_want_it_one_gets_it(cluster: Cluster) -> None:
    keepers = [keeper_of(cluster, f"k{number}", duration_s=60.0) for number in range(8)]
    tasks = [asyncio.create_task(keeper.acquire()) for keeper in keepers]
    done, waiting = await asyncio.wait(tasks, timeout=1.0)
    assert len(done) == 1
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_successor_learns_the_epoch_of_a_leader_that_could_act(cluster: Cluster) -> None:
    """A leader that died right after acquiring has done nothing: it never announced its epoch."""
    first = keeper_of(cluster, "one")
    tenure = await first.acquire()
    async with keeping(first), asyncio.timeout(2):
        await first.announced.wait()
    silent = keeper_of(cluster, "two")
    await silent.acquire()
    assert not silent.announced.is_set()
    third = await keeper_of(cluster, "three").acquire()
    assert third.previous_epoch == tenure.epoch
    assert not third.clean


async def test_a_deleted_lease_is_lost(cluster: Cluster) -> None:
    keeper = keeper_of(cluster, "one")
    await keeper.acquire()
    async with keeping(keeper) as task, asyncio.timeout(5):
        await cluster.client.delete(
            f"/apis/coordination.k8s.io/v1/namespaces/{cluster.namespace}/leases/binder"
        )
        await task
    assert not keeper.valid()


async def test_labels_of_others_on_the_lease_stay(cluster: Cluster) -> None:
    folder = f"/apis/coordination.k8s.io/v1/namespaces/{cluster.namespace}/leases"
    made = await cluster.client.post(folder, {"metadata": {"name": "binder", "labels": {"a": "b"}}})
    assert made.status == 201, made.text
    keeper = keeper_of(cluster, "one")
    assert (await keeper.acquire()).first
    lease = decoded(await cluster.client.get(f"{folder}/binder"))
    assert lease["metadata"]["labels"] == {"a": "b"}
    assert lease["spec"]["holderIdentity"] == "one"
    assert lease["spec"]["leaseTransitions"] == 1


async def test_events_are_written(cluster: Cluster) -> None:
    pod = await cluster.create_pod("p1")
    writer = EventWriter(cluster.client)
    task = asyncio.create_task(writer.run())
    for number in range(50):
        writer.offer(
            PodEvent(
                cluster.namespace,
                "p1",
                pod["metadata"]["uid"],
                "Scheduled",
                "Binding",
                f"Successfully assigned p1 to n{number}",
            )
        )
    assert await writer.drain(10)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (writer.written, writer.dropped) == (50, 0)
    events = decoded(
        await cluster.client.get(f"/apis/events.k8s.io/v1/namespaces/{cluster.namespace}/events")
    )["items"]
    assert len(events) == 50
    assert events[0]["regarding"]["uid"] == pod["metadata"]["uid"]
    assert events[0]["reason"] == "Scheduled"
