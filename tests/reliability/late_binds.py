"""A bind that its Binder sent before it died arrives at some moment of its successor's life (R6).

One slot, two pods. The first Binder reserves it for one pod and dies with the POST on its way; its
successor recovers and gives the slot to the other, if it is free. Whenever the old POST arrives, at
most one pod may be on the node, and if it is refused the other must be.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec

from stretto.kube.client import KubeClient
from stretto.ledger.twin_store import TwinStore
from tests.binder.shells import PODS, Rig, create, node_manifest, simulated, until

ROOM = {"cpu": "4", "memory": "1Gi", "pods": "1"}
MOMENTS = ("before it reads", "before it lists", "after it listed", "after it opened", "at the end")


async def run(*, repetitions: int, seed: int) -> int:
    """Print what happened; the number of violations."""
    rng = random.Random(seed)
    landed: Counter[tuple[str, str]] = Counter()
    wrong = 0
    async with simulated(nodes=0) as (_, client):
        for number in range(repetitions):
            moment = rng.choice(MOMENTS)
            how, bound = await once(client, number, moment)
            landed[moment, how] += 1
            wrong += bound != 1
    for (moment, how), count in sorted(landed.items()):
        print(f"  the old bind arrives {moment:18} and is {how:8} {count:6,} times")
    print(f"{repetitions:,} repetitions: {wrong} with another number of pods than one in the slot")
    return wrong


class Late:
    """The POST on its way."""

    def __init__(self, client: KubeClient, pod: dict[str, Any], node: str) -> None:
        self._client, self._pod, self._node = client, pod, node
        self.how = ""

    async def arrives(self) -> None:
        """The API server gets it now."""
        meta = self._pod["metadata"]
        answer = await self._client.bind(
            namespace="default",
            name=meta["name"],
            uid=meta["uid"],
            resource_version=meta["resourceVersion"],
            node=self._node,
        )
        self.how = "done" if answer.status == 201 else "refused"


async def once(client: KubeClient, number: int, moment: str) -> tuple[str, int]:
    """(what became of the old bind, pods on the node at the end)."""
    node, store = f"slot-{number}", TwinStore()
    manifest = node_manifest(node)
    manifest["status"]["allocatable"] = manifest["status"]["capacity"] = ROOM
    await client.post("/api/v1/nodes", manifest)
    first, second = f"old-{number}", f"new-{number}"
    late = Late(client, await create(client, first), node)
    await create(client, second)
    old = Rig(client, epoch=10, store=store)
    await old.open(clean=True)
    await old.reserve(first, node)
    await old.stop()
    new = Rig(client, epoch=11, store=store)
    await succeeds(new, late, moment, second=second, node=node)
    await new.stop()
    bound = await on(client, node)
    for name in (first, second):
        await client.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0})
    await client.delete(f"/api/v1/nodes/{node}")
    return late.how, bound


async def succeeds(new: Rig, late: Late, moment: str, *, second: str, node: str) -> None:
    """The successor recovers and tries to place the other pod; the old bind arrives in between."""
    if moment == "before it reads":
        await late.arrives()
    await new.prepare()
    if moment == "before it lists":
        await late.arrives()
    await new.lists()
    if moment == "after it listed":
        await late.arrives()
    await new.opening.finish(new.watches.bound_names or {})
    new.commits.publish()
    if moment == "after it opened":
        await late.arrives()
    new.start()
    new.commits.propose([await new.proposal(second, node)])
    await until(lambda: new.verdicts, "a verdict")
    await until(lambda: not new.machine.open, "bound, or not")
    if moment == "at the end":
        await late.arrives()


async def on(client: KubeClient, node: str) -> int:
    """How many pods a node has."""
    pods = msgspec.json.decode((await client.get(PODS)).body)["items"]
    return sum(pod["spec"].get("nodeName") == node for pod in pods)
