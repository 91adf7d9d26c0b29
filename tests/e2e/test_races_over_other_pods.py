"""Shards that both see a place next to nobody: anti-affinity and maxSkew hold among the winners,
on a real control plane."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.api import AT_ONCE, PODS, Api, node_of, scheduled_condition
from tests.e2e.stack import Stack, StackSettings, until

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(240)]

SLOTS = 40
ROUNDS = 3
SHARDS = 3
HOST = "kubernetes.io/hostname"


def contender(slot: int, *, kind: str) -> dict[str, Any]:
    """The part of a pod's spec that makes it race for the one place of a slot."""
    selector = {"matchLabels": {"slot": str(slot)}}
    if kind == "anti-affinity":
        term = {"topologyKey": HOST, "labelSelector": selector}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        return {"affinity": {"podAntiAffinity": required}}
    constraint = {
        "maxSkew": 1,
        "topologyKey": HOST,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
    }
    return {"topologySpreadConstraints": [constraint]}


@pytest.mark.parametrize("kind", ["anti-affinity", "spread"])
async def test_one_of_two_pods_gets_the_place_and_the_other_waits(
    api: Api, tmp_path: Path, kind: str
) -> None:
    # Two nodes a slot, one of them cordoned: it counts for the skew and takes no pod.
    for slot in range(SLOTS):
        labels = {"pair": str(slot)}
        await api.create_node(f"n-{slot}", labels=labels)
        await api.create_node(f"x-{slot}", labels=labels, cordoned=True)
    async with Stack(tmp_path, api.plane.kubeconfig, StackSettings(shards=SHARDS)) as stack:
        shards = [f"shard-{n + 1}" for n in range(SHARDS)]
        for number in range(ROUNDS):
            for shard in shards:
                stack.pause(shard, on=True)
            pods = [(slot, which) for slot in range(SLOTS) for which in range(2)]
            random.Random(number).shuffle(pods)
            await api.all(
                api.create_pod(
                    f"r{number}-{slot}-{which}",
                    cpu=f"{100 + which}m",
                    labels={"slot": str(slot)},
                    nodeSelector={"pair": str(slot)},
                    **contender(slot, kind=kind),
                )
                for slot, which in pods
            )
            for shard in shards:
                stack.pause(shard, on=False)

            async def decided() -> bool:
                found = await api.pods()
                told = [bool(node_of(pod) or scheduled_condition(pod)) for pod in found]
                # A shard may not have heard yet that the winners of the last round are gone.
                return all(told) and sum(bool(node_of(pod)) for pod in found) >= SLOTS

            await until(decided, timeout_s=60, what=f"round {number}: every pod decided")
            winners = Counter(node_of(pod) for pod in await api.pods() if node_of(pod))
            assert winners == {f"n-{slot}": 1 for slot in range(SLOTS)}
            # The losers first, or they would get the places of the winners.
            await api.call("DELETE", f"{PODS}?fieldSelector=spec.nodeName=", AT_ONCE)
            await api.call("DELETE", PODS, AT_ONCE)
        conflicts = (await stack.metrics("binder")).by_label("stretto_conflicts_total", "cause")
        assert conflicts.get("affinity" if kind == "anti-affinity" else "spread", 0) > 0, conflicts
        await stack.settle()
