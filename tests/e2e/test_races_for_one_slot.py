"""Two shards that both see a free slot: exactly one pod gets it, a thousand times."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from tests.e2e.api import AT_ONCE, PODS, Api, Oracle, node_of
from tests.e2e.stack import Stack, until

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(240)]

SLOTS = 125
ROUNDS = 8
SHARDS = ("shard-1", "shard-2")
SHAPES = ("100m", "110m")
"""The contenders of a slot differ, so that they travel in different units."""


async def round_of_races(api: Api, stack: Stack, number: int) -> dict[str, int]:
    """Let two pods compete for each node's only slot; winners per node.

    The shards stand still until all pods exist, then decide at once on what they knew before.
    """
    for shard in SHARDS:
        stack.pause(shard, on=True)
    contenders = list(itertools.product(range(SLOTS), range(len(SHAPES))))
    # Mixed, so that the two of a slot seldom travel to the same shard.
    random.Random(number).shuffle(contenders)
    await api.all(
        api.create_pod(
            f"r{number}-{slot}-{contender}",
            cpu=SHAPES[contender],
            nodeSelector={"kubernetes.io/hostname": f"n-{slot}"},
        )
        for slot, contender in contenders
    )

    for shard in SHARDS:
        stack.pause(shard, on=False)

    async def decided() -> bool:
        return await api.bound() >= SLOTS

    await until(decided, timeout_s=60, what=f"round {number}: every slot taken")
    winners: dict[str, int] = {}
    for pod in await api.pods():
        if node := node_of(pod):
            winners[node] = winners.get(node, 0) + 1
    return winners


async def test_exactly_one_of_two_pods_gets_a_slot_in_a_thousand_races(
    api: Api, tmp_path: Path
) -> None:
    await api.create_nodes(SLOTS, pods="1")
    async with (
        Stack(tmp_path, api.plane.kubeconfig) as stack,
        Oracle(api, pods=1) as oracle,
    ):
        for number in range(ROUNDS):
            winners = await round_of_races(api, stack, number)
            assert winners == {f"n-{slot}": 1 for slot in range(SLOTS)}
            await oracle.caught_up()
            assert not oracle.wrong
            # The losers first, or they would get the slots of the winners.
            await api.call("DELETE", f"{PODS}?fieldSelector=spec.nodeName=", AT_ONCE)
            await api.call("DELETE", PODS, AT_ONCE)
        conflicts = (await stack.metrics("binder")).by_label("stretto_conflicts_total", "cause")
        assert sum(conflicts.values()) > 0
        await stack.settle()
