"""What side-by-side compares: each starts on a control plane that holds the nodes and the pods."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple

from bench.roles import compile_packages, last_words, leave_clean_lease
from stretto.cli.run import RunSettings
from stretto.ledger.server import die_with_parent
from tests.e2e.commands import children_of
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
    """`stretto run`, as a user starts it: all its processes count, the embedded ledger too."""
    logs = folder / "logs"
    own = logs / "run.log"
    settings = RunSettings(kubeconfig=plane.kubeconfig, shards=shards)
    await leave_clean_lease(settings)
    await asyncio.to_thread(compile_packages)
    logs.mkdir()
    with own.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "stretto.cli.main", "run",
            "--kubeconfig", str(plane.kubeconfig), "--shards", str(shards),
            "--state-dir", str(folder / "state"), "--log-dir", str(logs),
            stdout=out, stderr=out, preexec_fn=die_with_parent,
        )  # fmt: skip

    def check() -> None:
        said = own.read_text()
        if process.returncode is not None or "starting it again" in said:
            raise InvalidRun(f"a process has ended\n{last_words(logs)}")

    try:
        yield Running(lambda: groups_of(process.pid), check, lambda: last_words(logs))
        check()
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def groups_of(pid: int) -> Pids:
    """The processes of a `stretto run`."""
    groups: Pids = {"run": [pid]}
    for name, child in children_of(pid).items():
        groups.setdefault("shards" if name.startswith("shard-") else name, []).append(child)
    return groups


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
