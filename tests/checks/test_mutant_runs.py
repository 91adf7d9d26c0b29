"""What runs the mutants: forked runs see the fault that is there, and tests that take a line."""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
from coverage import CoverageData

from tests.mutants.machine import MachineMutant
from tests.mutants.reached import QUICK_TESTS, Reached
from tests.mutants.runner import Tree, killer

ROOT = pathlib.Path(__file__).parents[2]
BOUNDS = "def fits(room, size):\n    return size <= room\n"
TESTS = """
import os
import pathlib
import time

import bounds

def test_what_is_smaller_fits():
    assert bounds.fits(2, 1)

def test_what_is_equal_fits():
    assert bounds.fits(2, 2)

def test_on_a_busy_machine():
    seen = pathlib.Path("seen")
    first = not seen.exists()
    seen.touch()
    assert not first
"""


@dataclasses.dataclass(frozen=True)
class Swap:
    """One piece of text for another."""

    old: str
    new: str
    name: str = "swap"
    file: str = "bounds.py"
    tests: tuple[str, ...] = ("test_bounds.py",)

    def change(self, text: str) -> str:
        assert self.old in text
        return text.replace(self.old, self.new)


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> Iterator[Tree]:
    """A module of two lines and its tests, with a process that runs them."""
    (tmp_path / "bounds.py").write_text(BOUNDS)
    (tmp_path / "test_bounds.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\npythonpath = . \nmarkers =\n  kube\n  e2e\n  oracle\n"
    )
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.mutants.fork_server"], cwd=tmp_path, text=True,
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as server:  # fmt: skip
        yield Tree(tmp_path, server)


def test_a_fault_is_noticed_by_the_test_that_knows_it_and_is_gone_after(tree: Tree) -> None:
    quiet = ["test_bounds.py::test_what_is_smaller_fits", "test_bounds.py::test_what_is_equal_fits"]
    assert killer(tree, Swap("<=", "< "), [quiet[:1], quiet]) == quiet[1]
    assert (tree.folder / "bounds.py").read_text() == BOUNDS
    assert tree.first_failure(quiet) == ""
    # Of the same size and, on a quick machine, made within the same second.
    assert killer(tree, Swap("<=", ">="), [quiet]) == quiet[0]
    assert killer(tree, Swap("size <= room", "size <= room + 0"), [quiet]) == ""


def test_what_fails_once_has_noticed_nothing(tree: Tree) -> None:
    assert killer(tree, Swap("room\n", "room\n\n"), [("test_bounds.py",)]) == ""
    assert (tree.folder / "seen").exists()


def test_a_fault_that_hangs_the_tests_or_keeps_them_from_starting_is_noticed(tree: Tree) -> None:
    assert killer(tree, Swap("def", "df"), [("test_bounds.py",)]) == "test_bounds.py"
    tree.write("bounds.py", BOUNDS.replace("return", "while True: pass\n    return"))
    quiet = ["test_bounds.py::test_what_is_equal_fits"]
    assert tree.first_failure(quiet, timeout_s=1.0) == "no end within 1 s"
    tree.write("bounds.py", BOUNDS)
    assert tree.first_failure(quiet) == ""


def test_names_of_tests_that_do_not_exist_are_no_discovery(tree: Tree) -> None:
    with pytest.raises(SystemExit, match="no tests"):
        tree.first_failure(["-k", "nothing", "test_bounds.py"])


def mutant(line: int) -> MachineMutant:
    return MachineMutant("binder/order.py", line, "f", 0, 1, "<", "<=", "a < b")


def test_the_quick_tests_that_take_the_line_are_run_first(tmp_path: pathlib.Path) -> None:
    data = CoverageData(basename=str(tmp_path / "data"))
    for context, line in (("slow", 3), ("quick", 3), ("gone", 3), ("other", 9), ("endless", 3)):
        data.set_context(context)
        data.add_arcs({"binder/order.py": [(line - 1, line)]})
    reached = Reached(data, {"slow": 20.0, "quick": 0.1, "other": 0.1, "endless": 1e6})
    assert reached.rounds(mutant(3)) == [("quick",), ("slow",)]
    assert reached.rounds(mutant(5)) == [("quick",), ("slow",)], "of an expression on several lines"
    whole = [mutant(1).own_tests, mutant(1).tests]
    assert reached.rounds(mutant(1)) == whole, "no test takes it"


def test_tests_that_are_newer_than_the_measurement_are_run_last(tmp_path: pathlib.Path) -> None:
    data = CoverageData(basename=str(tmp_path / "data"))
    data.set_context("old")
    data.add_arcs({"binder/order.py": [(2, 3)]})
    reached = Reached(data, {"old": 0.1}, ("new", "newer"))
    assert reached.rounds(mutant(3)) == [("old",), ("new", "newer")]
    stale = dataclasses.replace(reached, changed=frozenset({"binder/order.py"}))
    assert stale.rounds(mutant(3)) == [mutant(3).own_tests, mutant(3).tests], "others lines now"


def test_without_a_measurement_the_tests_of_the_folder_are_run() -> None:
    own, whole = Reached(None, {}).rounds(mutant(3))
    assert own == ("tests/binder/test_order.py",)
    assert whole[0] == own[0]
    assert "tests/binder" in whole


def test_the_first_round_is_short(tmp_path: pathlib.Path) -> None:
    data = CoverageData(basename=str(tmp_path / "data"))
    names = [f"t{number:03}" for number in range(QUICK_TESTS + 5)]
    for name in names:
        data.set_context(name)
        data.add_arcs({"binder/order.py": [(2, 3)]})
    first, rest = Reached(data, dict.fromkeys(names, 0.001)).rounds(mutant(3))
    assert len(first) == QUICK_TESTS
    assert sorted((*first, *rest)) == names
