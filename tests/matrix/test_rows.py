"""The rows are whole, and what makes a run count is what the reference says."""

from __future__ import annotations

import asyncio
import pathlib
import tomllib
from types import SimpleNamespace
from typing import Any

import setuptools

import tests.matrix.rows
from tests.matrix.load import Load
from tests.matrix.play import A_FIELD, plan
from tests.matrix.row import ROWS, Result, judged

ROOT = pathlib.Path(__file__).parents[2]
assert tests.matrix.rows.__doc__


def test_there_are_49_rows_and_each_is_played_or_says_why_not() -> None:
    assert sorted(ROWS) == list(range(1, 50))
    assert all(row.fault and row.expected for row in ROWS.values())


def test_a_plan_plays_every_row_once_and_those_that_need_it_alone() -> None:
    groups = plan(ROWS, seed=3)
    played = [row.number for group in groups for row in group]
    assert sorted(played) == sorted(n for n, row in ROWS.items() if row.scenario)
    for group in groups:
        assert len(group) <= A_FIELD
        assert len({row.real for row in group}) == 1
        assert len(group) == 1 or not any(row.alone for row in group)
    assert plan(ROWS, seed=3) == groups
    assert plan(ROWS, seed=4) != groups


def test_a_run_counts_only_if_its_fault_fired_and_load_was_on() -> None:
    fired = {"SIGKILL binder": 1}
    assert judged(error="", proof=fired, binds=200, gaps=[])[0] is Result.PASSED
    assert judged(error="", proof={"SIGKILL": 0}, binds=200, gaps=[])[0] is Result.INCONCLUSIVE
    assert judged(error="", proof=fired, binds=199, gaps=[])[0] is Result.INCONCLUSIVE
    assert judged(error="", proof=fired, binds=200, gaps=["cut"])[0] is Result.INCONCLUSIVE
    late, broken = "every pod bound: not within 60 s", "I2 …"
    assert judged(error=late, proof={}, binds=0, gaps=["cut"])[0] is Result.FAILED
    stopped = {"proof": fired, "binds": 200, "gaps": [], "stood_still_s": 9.0}
    assert judged(error=late, **stopped)[0] is Result.INCONCLUSIVE
    assert judged(error="", **stopped)[0] is Result.PASSED
    assert judged(error=late, violations=broken, **stopped) == (Result.FAILED, broken)


def test_no_release_has_a_failpoint() -> None:
    """They live in the tests, which no package includes, and the product does not know them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = project["tool"]["setuptools"]["packages"]["find"]["include"]
    packages = setuptools.find_namespace_packages(str(ROOT), include=wanted)
    assert packages
    assert not [name for name in packages if name.startswith("tests")]
    for package in packages:
        for source in (ROOT / package.replace(".", "/")).glob("*.py"):
            assert "failpoint" not in source.read_text().lower(), source


async def test_a_pod_that_a_row_takes_out_lends_its_name_to_no_other() -> None:
    """Row 33 deletes pods for good while others are made (seed 105: it waited for one of them)."""
    made: list[str] = []

    async def insist(_method: str, _path: str, pod: dict[str, Any]) -> None:
        made.append(pod["metadata"]["name"])
        if len(made) % 7 == 0:
            load.created.remove(made[-1])
        await asyncio.sleep(0)

    async def together(calls: Any) -> None:
        await asyncio.gather(*calls)

    cluster = SimpleNamespace(insist=insist, all=together, nodes={}, binds=0)
    field: Any = SimpleNamespace(cluster=cluster)
    load = Load(field, name="r33")
    load._pause_s = 0.0
    pouring = asyncio.create_task(load._pour())
    while len(made) < 100:
        await asyncio.sleep(0)
    load._over = True
    await pouring
    assert len(set(made)) == len(made)
