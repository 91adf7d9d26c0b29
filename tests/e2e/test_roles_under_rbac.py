"""The manifests' service accounts are enough for all that the roles do, and shards need none."""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from pathlib import Path

import pytest

from stretto.workload.exposition import Reading
from tests.deploy.test_manifests import MANIFESTS, folder_of
from tests.e2e.api import Api, node_of, scheduled_condition
from tests.e2e.stack import Stack, StackSettings, until
from tests.kube_env.control_plane import ControlPlane

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(240)]

NAMESPACE = "stretto"
IDLE_S = 3.0
"""Long enough for a few renewals of leases, so that anything else that polls would show."""


@pytest.fixture
def accounts(plane: ControlPlane) -> ControlPlane:
    """The control plane with all manifests of deploy/base applied."""
    for manifest in MANIFESTS:
        status, body = plane.request("POST", folder_of(manifest), manifest)
        assert status in (201, 409), body
    return plane


def settings_of(plane: ControlPlane) -> StackSettings:
    """Binder and dispatcher with their own accounts' tokens and Leases."""
    return StackSettings(
        binder_kubeconfig=plane.kubeconfig_for(NAMESPACE, "stretto-binder"),
        dispatcher_kubeconfig=plane.kubeconfig_for(NAMESPACE, "stretto-dispatcher"),
        lease_namespace=NAMESPACE,
    )


def requests_of(reading: Reading) -> Counter[tuple[str, str, str]]:
    """Requests by verb, resource and code; renewals of Leases left out, which time alone drives."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for pairs, count in reading.family("stretto_api_requests_total").items():
        labels = dict(pairs)
        if labels["resource"] != "leases":
            counts[labels["verb"], labels["resource"], labels["code"]] += round(count)
    return counts


def peers_of(pid: int) -> set[int]:
    """TCP ports that a process is connected to."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        target = os.readlink(link)
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    rows = [
        line.split()
        for file in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{file}").read_text().splitlines()[1:]
    ]
    return {int(row[2].rpartition(":")[2], 16) for row in rows if row[9] in inodes}


async def decided_without_overcommitment(api: Api) -> None:
    """More pods than there is room for: what sat on the nodes before still counts."""
    await api.all(api.create_pod(f"more-{i}", cpu="500m") for i in range(40))

    async def decided() -> bool:
        return all(scheduled_condition(pod) for pod in await api.pods())

    # A unit that a shard does not answer goes to another one after a minute at the latest.
    await until(decided, timeout_s=100, what="every pod bound or told why not")
    assert await api.bound() < 81
    assert not await api.overcommitted()


async def test_all_roles_do_their_work_with_their_own_accounts(
    accounts: ControlPlane, api: Api, tmp_path: Path
) -> None:
    await api.create_nodes(5, cpu="2")
    async with Stack(tmp_path, accounts.kubeconfig, settings_of(accounts)) as stack:
        await api.all(api.create_pod(f"p-{i}") for i in range(40))
        await api.create_pod("big", cpu="3")

        async def told() -> bool:
            events = (await api.events("Scheduled"), await api.events("FailedScheduling"))
            return len(events[0]) == 40 and "big" in events[1]

        await until(told, timeout_s=40, what="bound, and told why not")
        assert scheduled_condition(await api.pod("big"))["reason"] == "Unschedulable"
        # A Binder that finds no ledger fences every pending pod: it reads and patches them.
        await stack.flush_ledger()
        before = requests_of(await stack.metrics("binder", "dispatcher"))
        await stack.kill("binder")
        await stack.ready_again("binder")
        after = requests_of(await stack.metrics("binder", "dispatcher"))
        await api.create_node("large", cpu="8")

        async def placed() -> bool:
            return node_of(await api.pod("big")) == "large"

        await until(placed, timeout_s=40, what="bound to the new node")
        await decided_without_overcommitment(api)
        last = requests_of(await stack.metrics("binder", "dispatcher"))
        for counts in (before, after, last):
            assert not [call for call in counts if call[2] in ("401", "403")]
        assert before["create", "pods/binding", "201"] == 40
        assert last["patch", "pods/status", "200"] > 0
        for role in ("binder", "dispatcher"):
            # As a word: ports and epochs may hold these digits.
            refused = re.search(r"\b403\b", stack.log_of(role, lines=10_000))
            assert refused is None, stack.log_of(role)


async def test_one_more_shard_adds_no_request_to_the_api_server(
    accounts: ControlPlane, api: Api, tmp_path: Path
) -> None:
    await api.create_nodes(3)
    async with Stack(tmp_path, accounts.kubeconfig, settings_of(accounts)) as stack:
        await api.create_pod("first")

        async def told() -> bool:
            return len(await api.events("Scheduled")) == 1

        await until(told, timeout_s=30, what="a first pod bound")
        await asyncio.sleep(IDLE_S)
        before = requests_of(await stack.metrics("binder", "dispatcher"))
        assert before["create", "pods/binding", "201"] == 1
        name = await stack.add_shard(3)
        await asyncio.sleep(IDLE_S)
        assert requests_of(await stack.metrics("binder", "dispatcher")) == before
        assert accounts.port in peers_of(stack.pid("binder"))
        for shard in ("shard-1", "shard-2", name):
            ports = peers_of(stack.pid(shard))
            assert stack.ports.binder in ports
            assert accounts.port not in ports
