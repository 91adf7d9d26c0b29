"""What is wrong with a lock is found."""

from __future__ import annotations

import json
import tomllib

import pytest

from tests.checks.supply_chain import FOLDER, ROOT, SBOM, main, read_lock, sbom_of, unlocked

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUN = (FOLDER / "run.lock").read_text()
DEV = (FOLDER / "dev.lock").read_text()


def problems_of(run: str, dev: str = DEV) -> list[str]:
    locked, problems = read_lock(run, name="run.lock")
    other, more = read_lock(dev, name="dev.lock")
    return problems + more + unlocked(PROJECT, locked, other)


def test_the_locks_are_whole_and_the_bill_is_that_of_the_lock() -> None:
    assert problems_of(RUN) == []
    assert main([]) == 0


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("msgspec==", "msgspec>=", "neither name==version nor a hash"),
        ("aiohttp==3.", "aiohttp==2.", "for 'aiohttp>="),
        ("uvloop==", "uvlooop==", "holds nothing for 'uvloop"),
    ],
)
def test_a_loose_wrong_or_missing_requirement_is_named(old: str, new: str, words: str) -> None:
    assert RUN.count(old) >= 1
    assert any(words in problem for problem in problems_of(RUN.replace(old, new, 1)))


def test_a_requirement_without_hashes_is_named() -> None:
    assert "run.lock: here has no hash" in problems_of("here==1.0 \\\n" + RUN)


def test_what_runs_is_what_is_tested() -> None:
    other = DEV.replace("--hash=sha256:0", "--hash=sha256:1", 1)
    assert any("is not as in run.lock" in problem for problem in problems_of(RUN, other))


def test_the_bill_names_every_requirement_with_its_hashes() -> None:
    run, _ = read_lock(RUN, name="run.lock")
    bill = json.loads(sbom_of(PROJECT, run))
    assert bill["bomFormat"] == "CycloneDX"
    assert {part["name"] for part in bill["components"]} == set(run)
    assert all(part["hashes"] for part in bill["components"])
    assert SBOM.read_text() == sbom_of(PROJECT, run)
