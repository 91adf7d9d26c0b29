"""`stretto run` keeps all its processes alive: each is killed under load, every pod ends bound."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.e2e.api import Api, Oracle
from tests.e2e.commands import children_of, ready_line, running
from tests.e2e.stack import until

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(180)]

NODES = 20
PODS_A_VICTIM = 60
BATCH = 10
FORKED = {"fork-server", "binder", "dispatcher", "shard-1", "shard-2"}
"""What ends with the process that the roles are forks of."""


async def pour(api: Api, *, first: int, count: int) -> None:
    """Create pods, a few at a time, for about four seconds."""
    for start in range(first, first + count, BATCH):
        await api.all(api.create_pod(f"p-{i}") for i in range(start, start + BATCH))
        await asyncio.sleep(0.7)


async def test_every_part_is_killed_in_turn_under_load(api: Api, tmp_path: Path) -> None:
    await api.create_nodes(NODES)
    kubeconfig = str(api.plane.kubeconfig)
    victims = ("valkey-server", "shard-1", "valkey-server", "binder", "fork-server", "dispatcher")
    created = 0

    async def all_bound() -> bool:
        return await api.bound() == created

    async with (
        running(tmp_path, "run", "--kubeconfig", kubeconfig, "--shards=2") as process,
        Oracle(api, cpu=4000, pods=110) as oracle,
    ):
        await ready_line(process)
        for victim in victims:
            before = children_of(process.pid)
            load = asyncio.create_task(pour(api, first=created, count=PODS_A_VICTIM))
            await asyncio.sleep(1)
            os.kill(before[victim], signal.SIGKILL)
            await load
            created += PODS_A_VICTIM
            # A killed leader's Lease has to run out first: 15 s.
            await until(all_bound, timeout_s=60, what=f"all bound after {victim} was killed")
            after = children_of(process.pid)
            assert after.keys() == before.keys()
            changed = {name for name, pid in after.items() if before[name] != pid}
            assert changed == (FORKED if victim == "fork-server" else {victim})
        assert not await api.overcommitted()
        await oracle.caught_up()
        assert len(oracle.nodes) == created
        process.send_signal(signal.SIGTERM)
        said = (await process.stdout.read()).decode()
        assert await process.wait() == 0, said
        assert "Traceback" not in said
        assert "--redis-url" not in said
        assert said.count("the ledger server runs again") == 2
    assert not any(os.path.exists(f"/proc/{pid}") for pid in after.values())  # noqa: ASYNC240
