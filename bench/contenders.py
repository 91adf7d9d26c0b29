"""What side-by-side compares: each starts on a control plane that holds the nodes and the pods."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple

from bench.roles import Roles
from stretto.ledger.server import die_with_parent
from tests.kube_env.control_plane import ControlPlane

Pids = dict[str, list[int]]
"""Processes by group."""


class InvalidRun(Exception):  # noqa: N818 (it is no defect of ours)
    """What happened is not what was to be measured."""


class Running(NamedTuple):
    """A contender that works."""

    pids: Callable[[], Pids]
    check: Callable[[], None]
    """Raises :class:`InvalidRun` if a process has ended."""
    words: Callable[[], str] = str
    """The ends of its logs."""


@contextlib.asynccontextmanager
async def kube_scheduler(plane: ControlPlane, _: Path, __: int) -> AsyncIterator[Running]:
    """Upstream's, with its default profile."""
    plane.start_scheduler()
    pid = plane.pid("kube-scheduler")

    def check() -> None:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        if state in "ZX":
            raise InvalidRun(f"kube-scheduler has ended:\n{plane.log_of('kube-scheduler')}")

    yield Running(lambda: {"kube-scheduler": [pid]}, check, lambda: plane.log_of("kube-scheduler"))


@contextlib.asynccontextmanager
async def stretto(plane: ControlPlane, folder: Path, shards: int) -> AsyncIterator[Running]:
    """All roles of Stretto."""
    async with Roles(folder, plane.kubeconfig, shards=shards) as roles:

        def check() -> None:
            if roles.restarts():
                again = f"{roles.restarts()} processes had to be started again"
                raise InvalidRun(f"{again}\n{roles.last_words()}")

        await roles.begin()
        yield Running(roles.pids, check, roles.last_words)
        check()


@contextlib.asynccontextmanager
async def null_scheduler(plane: ControlPlane, _: Path, __: int) -> AsyncIterator[Running]:
    """Binds and events without decisions."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.null_scheduler", "--kubeconfig", str(plane.kubeconfig),
        preexec_fn=die_with_parent,
    )  # fmt: skip

    def check() -> None:
        if process.returncode is not None:
            raise InvalidRun("the null scheduler has ended; its lines are above")

    try:
        yield Running(lambda: {"null scheduler": [process.pid]}, check)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


Contender = Callable[[ControlPlane, Path, int], AbstractAsyncContextManager[Running]]
"""Of the control plane, a folder of its own and how many shards."""
CONTENDERS: dict[str, tuple[Contender, str]] = {
    "kube-scheduler": (kube_scheduler, "default-scheduler"),
    "stretto": (stretto, "stretto"),
    "null scheduler": (null_scheduler, "stretto"),
}
"""Each with the schedulerName of its pods."""
