"""A second `stretto run` of a cluster ends before it starts what could disturb the first."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from stretto.cli import leads
from stretto.cli.leads import ServedError, until_ours
from stretto.cli.run import Ports, RunSettings, roles_of, start
from stretto.kube.config import KubeConfig
from stretto.kube.lease import ADDRESS
from tests.cli.test_run_order import Recorded
from tests.kube.api_server import Handler, answer, hang_up, refusal, serving

OURS, THEIRS, DEAD = "127.0.0.1:11111", "127.0.0.1:22222", "127.0.0.1:33333"


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leads, "PATIENCE_S", 0)
    monkeypatch.setattr(leads, "LOOK_S", 0)


def lease(address: str, version: int) -> Handler:
    metadata = {"annotations": {ADDRESS: address}, "resourceVersion": str(version)}
    return answer(200, {"metadata": metadata, "spec": {}})


async def look(*script: Handler) -> int:
    """How many times it took."""
    async with serving(*script) as server:
        config = KubeConfig.from_url(server.url)
        await until_ours(config, namespace="kube-system", role="binder", address=OURS)
    return len(server.requests)


async def test_a_leader_that_renews_its_lease_is_named() -> None:
    with pytest.raises(ServedError, match=f"another binder, at {THEIRS}, holds Lease kube-system/"):
        await look(lease(THEIRS, 1), lease(THEIRS, 1), lease(THEIRS, 2))


async def test_who_takes_the_place_of_a_dead_leader_is_named_when_it_renews() -> None:
    with pytest.raises(ServedError, match=THEIRS):
        await look(lease(DEAD, 1), lease(THEIRS, 2), lease(THEIRS, 3))


async def test_a_dead_leader_and_one_that_leaves_are_waited_for() -> None:
    assert await look(lease(DEAD, 1), lease(DEAD, 1), lease(DEAD, 1), lease(OURS, 2)) == 4
    assert await look(lease(THEIRS, 1), lease("", 2), lease("", 3), lease(OURS, 4)) == 4


async def test_a_lease_that_is_not_there_or_cannot_be_read_is_looked_at_again() -> None:
    assert await look(refusal(404), hang_up, refusal(403), lease(OURS, 1)) >= 4


class WaitsForEver(Recorded):
    """Its roles do not get ready: they stand by."""

    async def wait_ready(self, *, timeout_s: float, names: tuple[str, ...]) -> None:
        await super().wait_ready(timeout_s=timeout_s, names=names)
        await asyncio.Event().wait()


async def test_behind_a_binder_that_stands_by_nothing_is_started() -> None:
    async def leading(names: tuple[str, ...]) -> None:
        raise ServedError("served already")

    supervisor: Any = WaitsForEver()
    with pytest.raises(ServedError):
        await start(supervisor, leading=leading)
    assert [names for what, names in supervisor.asked if what == "start"] == [("binder",)]


def shard_names(settings: RunSettings) -> Iterator[str]:
    for role in roles_of(settings, redis_url="unix:///x", ports=Ports()):
        if role.arguments[0] == "shard":
            yield role.arguments[role.arguments.index("--name") + 1]


def test_shards_of_two_runs_do_not_pass_for_each_other() -> None:
    """Of two shards with one name a dispatcher keeps the one that came last."""
    settings = RunSettings(shards=2)
    assert len({*shard_names(settings), *shard_names(settings)}) == 4
