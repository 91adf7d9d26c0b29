"""Tells coverage.py which test is running, so that a line of the code knows the tests that take it.

A plugin of pytest (``-p tests.checks.contexts``). coverage.py's own ``dynamic_context`` follows the
frame of a test function: what a loop runs for an async test while that waits would be nobody's.
Beside the contexts it writes what each test took, so that the quick ones can be run first, and of
which sources that was: numbers of lines mean nothing in others.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import time
from collections.abc import Iterator

import coverage
import pytest

RUN = pathlib.Path("out/coverage/run.json")
"""Test → seconds, set-up included; file → digest of its text."""
FOLDERS = ("binder", "dispatcher", "scheduler_shard", "stretto")
_took_s: dict[str, float] = {}
_sources: dict[str, str] = {}


def digest_of(file: pathlib.Path) -> str:
    """Of its text."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def pytest_sessionstart() -> None:
    """Before anything is imported."""
    for folder in FOLDERS:
        _sources.update({str(f): digest_of(f) for f in pathlib.Path(folder).rglob("*.py")})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """All of a test, with what its fixtures do."""
    measured = coverage.Coverage.current()
    assert measured is not None, "this plugin is for runs under coverage.py"
    measured.switch_context(item.nodeid)
    began = time.monotonic()
    try:
        return (yield)
    finally:
        _took_s[item.nodeid] = round(time.monotonic() - began, 3)
        measured.switch_context("")


def pytest_sessionfinish() -> None:
    """Beside the data of coverage.py."""
    RUN.parent.mkdir(parents=True, exist_ok=True)
    RUN.write_text(json.dumps({"took_s": _took_s, "sources": _sources}))
