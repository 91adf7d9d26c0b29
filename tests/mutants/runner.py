"""Copies of the tree in which faults are made, and the tests that are run against each of them."""

from __future__ import annotations

import concurrent.futures
import pathlib
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

ROOT = pathlib.Path(__file__).parents[2]
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
TIMEOUT_S = 600
"""Of the tests of one fault. One that makes them hang is noticed."""
BASELINE_TIMEOUT_S = 3600
TRIES = 3


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
def trees(count: int) -> Iterator[list[pathlib.Path]]:
    """So many copies of the tree, for as long as they are needed."""
    with tempfile.TemporaryDirectory(prefix="stretto-mutants-") as folder:
        first = copy_of_the_tree(pathlib.Path(folder) / "tree-0")
        others = [pathlib.Path(folder) / f"tree-{number}" for number in range(1, count)]
        for other in others:
            shutil.copytree(first, other)
        yield [first, *others]


def first_failure(tree: pathlib.Path, tests: Sequence[str], *, timeout_s: float = TIMEOUT_S) -> str:
    """The test that fails first, "" if none does."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not kube and not e2e",
             "-p", "no:cacheprovider", "--tb=no", *tests],
            check=False, cwd=tree, capture_output=True, text=True, timeout=timeout_s,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"no end within {timeout_s:.0f} s"
    found = FAILED.search(done.stdout)
    if found:
        return found[1]
    return "" if done.returncode == 0 else f"pytest ended with {done.returncode}: {done.stdout}"


def killer(tree: pathlib.Path, fault: Fault) -> str:
    """The test that notices a fault, "" if it survives. It has to fail twice: on a busy machine
    one that waits may fail once without any fault."""
    path = tree / fault.file
    text = path.read_text()
    path.write_text(fault.change(text))
    try:
        for _ in range(TRIES):
            test = first_failure(tree, fault.tests)
            if "::" not in test or first_failure(tree, (test,)):
                return test
        return f"{test}, not each time"
    finally:
        path.write_text(text)


def run(
    faults: Sequence[Fault], *, jobs: int, told: Callable[[Fault, str, float], None]
) -> dict[int, str]:
    """Try all, ``jobs`` at a time; index → the test that noticed it, "" if it survived. ``told``
    hears of each, with the seconds it took. A test that fails without any fault has noticed
    nothing: those that were first to fail are run once more on the code as it is."""
    found: dict[int, str] = {}
    with trees(jobs) as copies:
        free: queue.SimpleQueue[pathlib.Path] = queue.SimpleQueue()
        for copy in copies:
            free.put(copy)

        def attempt(number: int) -> None:
            tree, began = free.get(), time.monotonic()
            try:
                found[number] = killer(tree, faults[number])
            finally:
                free.put(tree)
            told(faults[number], found[number], time.monotonic() - began)

        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            list(pool.map(attempt, range(len(faults))))
        noticed = [test for test in dict.fromkeys(found.values()) if "::" in test]
        if noticed and (test := first_failure(copies[0], noticed, timeout_s=BASELINE_TIMEOUT_S)):
            raise SystemExit(f"without any fault {test} fails: nothing is shown")
    return found
