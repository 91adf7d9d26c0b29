"""Running the `stretto` command as an operator does, for end-to-end tests."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import pathlib
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

COMMAND = (sys.executable, "-m", "stretto.cli.main")
READY_S = 30
"""The goal is 5 s on an idle machine; a test that shares its cores waits longer."""


def environment(folder: Path) -> dict[str, str]:
    """Ours, without a ledger or a cluster, and with a state folder of the test's own."""
    own = {k: v for k, v in os.environ.items() if k not in ("REDIS_URL", "KUBECONFIG")}
    return own | {"XDG_STATE_HOME": str(folder / "state")}


@contextlib.asynccontextmanager
async def running(folder: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A `stretto` command; killed if it is still there at the end."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND, *arguments, env=environment(folder),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def ready_line(process: asyncio.subprocess.Process) -> str:
    """Wait until `stretto run` says that it is ready; the line."""
    assert process.stdout is not None
    async with asyncio.timeout(READY_S):
        line = await process.stdout.readline()
        while line.endswith(b"trying again\n"):  # a machine so busy that roles say they wait
            line = await process.stdout.readline()
    assert line.startswith(b"stretto: ready"), line
    return line.decode()


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    lines: list[str]


async def ended(folder: Path, *arguments: str) -> Ended:
    """Run a command that is expected to end by itself."""
    async with running(folder, *arguments) as process:
        async with asyncio.timeout(60):
            out, _ = await process.communicate()
        assert process.returncode is not None
        return Ended(process.returncode, out.decode().splitlines())


def is_one_clear_line(end: Ended, *words: str) -> None:
    """A non-zero code, one line that starts with the program's name and holds the words."""
    assert end.code not in (0, -signal.SIGKILL), end
    assert len(end.lines) == 1, end.lines
    assert end.lines[0].startswith("stretto: "), end.lines
    for word in words:
        assert word in end.lines[0], (word, end.lines[0])


def children_of(pid: int) -> dict[str, int]:
    """Name → pid of the processes below a `stretto run`, by the names that ``ps`` shows."""
    found = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                found[pathlib.Path(f"/proc/{child}/comm").read_text().strip()] = int(child)
                found |= children_of(int(child))
    return found
