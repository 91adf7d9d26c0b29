"""Tests that check nothing: no assertion, no expected error, nobody who asserts in their place.

A test counts as checking something if it asserts, expects an exception or a warning, or calls a
function that does so: of its own module, or else one of a name under which every function of the
tests checks something. What
is left and is right all the same stands in :data:`JUSTIFIED` with its reason. ``make check`` runs
it.
"""

from __future__ import annotations

import ast
import pathlib
import re
import sys
from collections.abc import Collection, Iterator

ROOT = pathlib.Path(__file__).parents[2]
CHECKS = re.compile(r"^(raises|warns|fail|timeout|validate|run_state_machine_as_test|assert_\w+)$")
"""Names of calls that fail a test by themselves (a wait that ends in an error too), beside
functions of the tests that do."""
JUSTIFIED: dict[str, str] = {
    "tests/simulation/test_simulation.py::"
    "test_a_pod_that_is_bound_and_deleted_in_a_gap_of_the_watch_keeps_no_room": (
        "a run of the simulation raises at the first thing that is wrong, and if it does not rest"
    ),
}
"""``file::test`` → why it needs no assertion of its own."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def called(node: ast.AST) -> Iterator[str]:
    """Last names of what is called in a function."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call):
            function = each.func
            if isinstance(function, ast.Attribute):
                yield function.attr
            elif isinstance(function, ast.Name):
                yield function.id


def checks_itself(function: Function) -> bool:
    """Whether it asserts, or calls what is named as if it did."""
    if any(isinstance(each, ast.Assert | ast.Raise) for each in ast.walk(function)):
        return True
    return any(CHECKS.search(name) for name in called(function))


def all_functions(tree: ast.AST) -> list[Function]:
    """Every function of a module, those in classes and functions too."""
    return [each for each in ast.walk(tree) if isinstance(each, Function)]


def checking(trees: dict[str, ast.Module], known: Collection[str] = ()) -> set[str]:
    """Names of helpers of the tests that check something, themselves or by what they call. One
    that is the name of something else, too, says nothing. ``known``: names that check besides."""
    helpers = [
        f for tree in trees.values() for f in all_functions(tree) if not f.name.startswith("test_")
    ]
    found: set[str] = set()
    while True:
        checks = found.union(known)
        good = [checks_itself(f) or not checks.isdisjoint(called(f)) for f in helpers]
        bad = {f.name for f, well in zip(helpers, good, strict=True) if not well}
        now = {f.name for f in helpers} - bad
        if now == found:
            return found
        found = now


def idle(trees: dict[str, ast.Module]) -> Iterator[str]:
    """Tests that check nothing."""
    everywhere = checking(trees)
    for path, tree in sorted(trees.items()):
        here = {f.name for f in all_functions(tree)}
        helpers = everywhere - here
        helpers |= checking({path: tree}, helpers)
        for function in all_functions(tree):
            if not function.name.startswith("test_") or checks_itself(function):
                continue
            if helpers.isdisjoint(called(function)):
                yield f"{path}::{function.name}"


def read_trees() -> dict[str, ast.Module]:
    """All test modules."""
    paths = sorted((ROOT / "tests").rglob("*.py"))
    return {p.relative_to(ROOT).as_posix(): ast.parse(p.read_text()) for p in paths}


def main() -> int:
    """Print what checks nothing, and justifications that nobody needs; 1 if there is any."""
    found = set(idle(read_trees()))
    wrong = [f"{test} checks nothing" for test in sorted(found - JUSTIFIED.keys())]
    wrong += [f"{test} is justified for nothing" for test in sorted(JUSTIFIED.keys() - found)]
    for line in wrong:
        sys.stderr.write(line + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
