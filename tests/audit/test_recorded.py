"""Histories of real runs: all roles, a simulated API server, a real ledger server."""

from __future__ import annotations

import asyncio
import pathlib

import pytest

from stretto.audit.checker import check, read_history
from stretto.audit.findings import Findings
from stretto.cli.main import main
from tests.binder.shells import create, delete
from tests.binder.whole import Whole, eventually, whole

pytestmark = pytest.mark.asyncio(loop_scope="session")

PODS = 90
"""Of a tenth of a cpu each; two nodes of four cpus take 80."""


async def filled(world: Whole) -> None:
    """More pods than there is room for, all decided."""
    world.binder()
    world.dispatcher()
    world.shard()
    await asyncio.gather(*(create(world.client, f"p{i}") for i in range(PODS)))

    async def decided() -> bool:
        return await world.bound() == 80 and await world.told() == PODS - 80

    await eventually(decided, "80 pods bound, the rest told why not", timeout_s=20)


async def judged(world: Whole) -> Findings:
    """The verdict after an orderly end."""
    await world.recorder.caught_up()
    for role in reversed(world.roles):
        await role.stop()
    return check(read_history(world.folder))


async def test_the_history_of_a_run_with_deletions_and_a_successor_holds(
    tmp_path: pathlib.Path,
) -> None:
    async with whole(tmp_path) as world:
        await filled(world)
        for number in range(5):
            await delete(world.client, f"p{number}")

        async def refilled() -> bool:
            return await world.bound() == 80

        await eventually(refilled, "the room is taken again", timeout_s=20)
        await world.roles[0].stop()
        world.binder(listen=world.binders[0])
        await world.roles[-1].ready.wait()
        await delete(world.client, "p5")
        await eventually(refilled, "the next binder binds", timeout_s=20)
        findings = await judged(world)
    assert findings.verdict == "held", findings.text()
    assert findings.checks["I10"] >= 2 * 86, "a POST and a bind are looked at for each pod"
    assert findings.checks["I24"] >= 2 * 80
    assert main(["check-history", str(tmp_path)]) == 0


async def test_a_bind_behind_our_back_is_found(tmp_path: pathlib.Path) -> None:
    async with whole(tmp_path) as world:
        await filled(world)
        waiting = next(pod for pod in await world.pods() if not pod.spec.node_name)
        meta = waiting.metadata
        answer = await world.client.bind(
            namespace="default",
            name=meta.name,
            uid=meta.uid,
            resource_version=meta.resource_version,
            node="n1",
        )
        assert answer.status == 201
        findings = await judged(world)
    assert findings.broken["I1b"] == 1
    assert findings.notes["binds of our pods by others"] == 1
    assert main(["check-history", str(tmp_path)]) == 1


async def test_no_history_is_one_line(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check-history", str(tmp_path)]) == 2
    assert "name the folder of a recorded history" in capsys.readouterr().err
    (tmp_path / "api.jsonl").write_text("")
    assert main(["check-history", str(tmp_path)]) == 3
