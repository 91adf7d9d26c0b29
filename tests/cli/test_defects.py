"""A defect ends the process that has it: one line says so, and the exit code is 1."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from typing import NoReturn

import pytest

from stretto.cli.runner import line_of, run_role


def broken() -> NoReturn:
    raise AssertionError("two reservations\nof one pod")


async def in_a_timer(stop: asyncio.Event) -> None:
    asyncio.get_running_loop().call_later(0.01, broken)
    await stop.wait()


async def in_a_forgotten_task(stop: asyncio.Event) -> None:
    async def work() -> None:
        broken()

    task = asyncio.get_running_loop().create_task(work())
    await asyncio.sleep(0.01)
    del task
    await stop.wait()


async def in_a_group(stop: asyncio.Event) -> None:
    async def work() -> None:
        broken()

    async with asyncio.TaskGroup() as group:
        group.create_task(work())
        group.create_task(asyncio.sleep(60))


@pytest.mark.parametrize("main", [in_a_timer, in_a_forgotten_task, in_a_group])
def test_an_assertion_ends_the_role_wherever_it_fails(
    main: object, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(BaseException) as caught:  # noqa: PT011  (a group or not)
        run_role(main)  # type: ignore[arg-type]
    expected = "AssertionError: two reservations of one pod"
    assert line_of(caught.value) == expected
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.CRITICAL]
    assert lines == [f"a defect ends this process: {expected}"]


def test_the_exit_code_of_a_defect_is_1() -> None:
    code = (
        "import tests.cli.test_defects as t; from stretto.cli.runner import run_role;"
        "raise SystemExit(run_role(t.in_a_timer))"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=False, timeout=30)
    assert ended.returncode == 1
