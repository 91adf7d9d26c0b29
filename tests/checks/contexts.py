"""Tells coverage.py which test is running, so that a line of the code knows the tests that take it.

A plugin of pytest (``-p tests.checks.contexts``). coverage.py's own ``dynamic_context`` follows the
frame of a test function: what a loop runs for an async test while that waits would be nobody's.
Beside the contexts it writes what each test took, so that the quick ones can be run first.
"""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Iterator

import coverage
import pytest

TOOK = pathlib.Path("out/coverage/took.json")
"""Test → seconds, set-up included."""
_took_s: dict[str, float] = {}


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
    TOOK.parent.mkdir(parents=True, exist_ok=True)
    TOOK.write_text(json.dumps(_took_s))
