"""Copies of the tree in which faults are made, and the tests that are run against each of them."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
import json
import os
import pathlib
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Protocol, TypeVar

ROOT = pathlib.Path(__file__).parents[2]
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+::.+?|\S+)(?: - .*)?$", re.MULTILINE)
TIMEOUT_S = 600
"""Of a run of all tests of a fault. One that makes them hang is noticed."""
QUICK_TIMEOUT_S = 120
"""Of the runs before, which are of quick tests, and of one test alone."""
BASELINE_TIMEOUT_S = 3600
TRIES = 3
NO_TESTS = 5
"""pytest's exit code when there is nothing to run."""


class Fault(Protocol):
    """One change of one file, and what is run against it."""

    @property
    def name(self) -> str:
        """For people."""
        ...

    @property
    def file(self) -> str:
        """From the root of the tree."""
        ...

    @property
    def tests(self) -> tuple[str, ...]:
        """Files or folders; the first failure is what kills it."""
        ...

    def change(self, text: str) -> str:
        """The file with the fault in it."""
        ...


F = TypeVar("F", bound=Fault)
STAMPS = itertools.count(1_500_000_000)
"""Modification times: Python takes a file of the same second and size for the same."""


@dataclasses.dataclass
class Tree:
    """A copy of the tree with a process that runs tests in it."""

    folder: pathlib.Path
    _server: subprocess.Popen[str]

    def run(self, tests: Sequence[str], *, timeout_s: float) -> tuple[int | None, str]:
        """pytest's exit code, ``None`` if it did not end in time, and what it said."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        request = {"tests": list(tests), "timeout_s": timeout_s}
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        answer = json.loads(self._server.stdout.readline())
        return answer["code"], answer["said"]

    def write(self, file: str, text: str) -> None:
        """Never with a time that it had before."""
        path = self.folder / file
        path.write_text(text)
        os.utime(path, (stamp := next(STAMPS), stamp))

    def every_test(self) -> frozenset[str]:
        """The names of all tests that there are."""
        code, said = self.run(["--collect-only", "tests"], timeout_s=BASELINE_TIMEOUT_S)
        if code != 0:
            raise SystemExit(f"the tests cannot be collected: {said}")
        return frozenset(line for line in said.splitlines() if "::" in line)

    def first_failure(self, tests: Sequence[str], *, timeout_s: float = TIMEOUT_S) -> str:
        """The test that fails first, "" if none does."""
        code, said = self.run(tests, timeout_s=timeout_s)
        if code is None:
            return f"no end within {timeout_s:.0f} s"
        if found := FAILED.search(said):
            return found[1]
        if code == NO_TESTS:
            raise SystemExit(f"no tests: {' '.join(tests)}")
        return "" if code == 0 else f"pytest ended with {code}: {said}"


def copy_of_the_tree(folder: pathlib.Path) -> pathlib.Path:
    """What git tracks or would track, as it is now."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True,
    )  # fmt: skip
    for name in listing.stdout.decode().split("\0"):
        source = ROOT / name
        if name and source.is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    return folder


@contextmanager
def trees(count: int) -> Iterator[list[Tree]]:
    """So many copies of the tree, for as long as they are needed."""
    with tempfile.TemporaryDirectory(prefix="stretto-mutants-") as name, ExitStack() as servers:
        first = copy_of_the_tree(pathlib.Path(name) / "tree-0")
        folders = [first, *(pathlib.Path(name) / f"tree-{number}" for number in range(1, count))]
        for folder in folders[1:]:
            shutil.copytree(first, folder)
        found = []
        for folder in folders:
            server = subprocess.Popen(
                [sys.executable, "-m", "tests.mutants.fork_server"],
                cwd=folder, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
            found.append(Tree(folder, servers.enter_context(server)))
        yield found


def killer(tree: Tree, fault: Fault, rounds: Sequence[Sequence[str]]) -> str:
    """The test that notices a fault, "" if it survives. It has to fail twice: on a busy machine
    one that waits may fail once without any fault."""
    text = (tree.folder / fault.file).read_text()
    tree.write(fault.file, fault.change(text))
    try:
        for tests in rounds:
            timeout_s = TIMEOUT_S if tests is rounds[-1] else QUICK_TIMEOUT_S
            for _ in range(TRIES):
                test = tree.first_failure(tests, timeout_s=timeout_s)
                if not test:
                    break
                if "::" not in test or tree.first_failure((test,), timeout_s=QUICK_TIMEOUT_S):
                    return test
        return ""
    finally:
        tree.write(fault.file, text)


def run(
    faults: Sequence[F],
    *,
    jobs: int,
    told: Callable[[F, str, float], None],
    rounds: Callable[[F, frozenset[str]], Sequence[Sequence[str]]],
) -> dict[int, str]:
    """Try all, ``jobs`` at a time; index → the test that noticed it, "" if it survived. ``rounds``
    says what is run one after the other, of all tests that there are; ``told`` hears of each, with
    the seconds it took. A test that fails without any fault has noticed nothing: those that were
    first to fail are run once more on the code as it is."""
    found: dict[int, str] = {}
    with trees(jobs) as copies:
        existing = copies[0].every_test()
        free: queue.SimpleQueue[Tree] = queue.SimpleQueue()
        for copy in copies:
            free.put(copy)

        def attempt(number: int) -> None:
            tree, began = free.get(), time.monotonic()
            try:
                found[number] = killer(tree, faults[number], rounds(faults[number], existing))
            finally:
                free.put(tree)
            told(faults[number], found[number], time.monotonic() - began)

        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            list(pool.map(attempt, range(len(faults))))
        noticed = [test for test in dict.fromkeys(found.values()) if "::" in test]
        if noticed and (test := copies[0].first_failure(noticed, timeout_s=BASELINE_TIMEOUT_S)):
            raise SystemExit(f"without any fault {test} fails: nothing is shown")
    return found
