"""Keep a set of role processes running on this machine: start, wait until ready, restart, stop.

Used by `stretto run` and `stretto demo`. A child that dies is started again after a pause that
doubles from 0.2 s to 5 s while it keeps dying: recovery belongs to the roles, all that is needed
here is that they come back. A child that exits with code 2 before it was ever ready has said what
an operator must mend: the supervisor stops with that code, unless the role knows an excuse. Roles
are forks of a process that has their code loaded (:mod:`stretto.cli.forks`); they end when we end,
so that a killed supervisor leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pathlib
import random
import signal
import socket
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec

from stretto.cli.forks import Fork, Forks
from stretto.model.errors import OperatorError

logger = logging.getLogger(__name__)

PORTS = (10_240, 32_768)
"""Linux gives outgoing connections ports from 32768 on."""
LOOK_S = 0.05
LOOK_MAX_S = 0.2
"""Between looks whether a role is ready: seldomer the longer it takes, as each look costs both a
connection, at a time when they have enough to do."""
HEARD_S = 2.0
"""From the death of a role until we know."""
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class RoleError(OperatorError):
    """A child ended before it was ready, or would not get ready in time."""


_given: set[int] = set()
"""Ports that :func:`free_port` gave away; their users may not listen yet."""


def free_port() -> int:
    """A TCP port on loopback that was free a moment ago, below those that the kernel gives to
    outgoing connections: one of these could take it before its user listens."""
    for _ in range(100):
        port = random.randrange(*PORTS)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
    raise RoleError(f"no free port from {PORTS[0]} to {PORTS[1]} on 127.0.0.1")


class RestartPause:
    """Seconds to wait before a process that died is started again: doubling while it keeps dying,
    short again after it has lived a while."""

    FIRST_S = 0.2
    MAX_S = 5.0
    STEADY_S = 60.0

    def __init__(self) -> None:
        self._next_s = self.FIRST_S

    def after(self, *, lived_s: float) -> float:
        """The pause for a process that lived so long."""
        pause_s = self.FIRST_S if lived_s >= self.STEADY_S else self._next_s
        self._next_s = min(pause_s * 2, self.MAX_S)
        return pause_s


class Role(msgspec.Struct):
    """A process to keep running."""

    name: str
    """Unique, for people: "shard-1"."""
    arguments: list[str]
    """After ``stretto``."""
    ready_url: str = ""
    """Answers 200 when the role is ready; empty: ready once started."""
    log: pathlib.Path | None = None
    """Where its output goes; None: ours."""
    process: Fork | None = None
    starts: int = 0
    was_ready: bool = False
    excuse: Callable[[], bool] = lambda: False
    """Whether an exit with code 2 before it was ever ready is somebody else's fault that passes:
    then it is started again."""
    stopping: bool = False
    """It has been told to end, and is not started again."""


def process_cpu_s(pid: int) -> float:
    """User and system CPU seconds of a living process (0 when it is gone); from /proc."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def own_age_s() -> float:
    """Seconds since this process was started, imports included; from /proc."""
    fields = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / CLOCK_TICKS


async def answers(url: str) -> bool:
    """True if a GET of a URL on this machine answers 200 within a second."""
    parts = urlsplit(url)
    request = f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n"
    try:
        async with asyncio.timeout(1):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            try:
                writer.write(request.encode())
                return (await reader.readline()).split()[1:2] == [b"200"]
            finally:
                writer.close()
    except (OSError, ValueError):  # ValueError: no port, or a line without end
        return False


class Supervisor:
    """Owns the processes of the roles; see the module docstring."""

    def __init__(
        self, roles: list[Role], *, stop_grace_s: float = 8.0, forks: Forks | None = None
    ) -> None:
        self.roles = {role.name: role for role in roles}
        self.stop_grace_s = stop_grace_s
        self.forks = forks or Forks()
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self.failed: asyncio.Future[RoleError] = asyncio.get_running_loop().create_future()

    async def start(self, *names: str) -> None:
        """Start the named roles (all when none is named) and keep them running.

        Raises:
            RoleError: the first process of a role, or its log, cannot be had.
        """
        for name in names or tuple(self.roles):
            role = self.roles[name]
            try:
                await self._spawn(role)
            except OSError as error:
                raise RoleError(f"{name} could not be started: {error}") from error
            self._keepers[name] = asyncio.create_task(self._keep(role), name=f"keep {name}")

    async def _spawn(self, role: Role) -> None:
        out = role.log.open("ab") if role.log else None
        try:
            output = out.fileno() if out else None
            role.process = await self.forks.start(role.name, role.arguments, output=output)
        finally:
            if out:
                out.close()
        role.starts += 1

    async def _keep(self, role: Role) -> None:
        pause = RestartPause()
        while not role.stopping:
            assert role.process is not None
            began = time.monotonic()
            code = await role.process.wait()
            role.process = None
            if is_stopping(role):
                return
            if code == 2 and not role.was_ready and not role.excuse():
                if not self.failed.done():
                    self.failed.set_result(
                        RoleError(f"{role.name} could not start; its line above says why")
                    )
                return
            pause_s = pause.after(lived_s=time.monotonic() - began)
            logger.warning(
                "%s ended with code %s; starting it again in %.1f s.", role.name, code, pause_s
            )
            await asyncio.sleep(pause_s)
            await self._spawn_again(role, pause)

    async def _spawn_again(self, role: Role, pause: RestartPause) -> None:
        """However often it takes: a machine may have no process left for a while."""
        while not is_stopping(role):
            try:
                await self._spawn(role)
            except OSError as error:
                logger.warning("%s could not be started: %s; trying again.", role.name, error)
                await asyncio.sleep(pause.after(lived_s=0))
            else:
                return

    async def wait_ready(self, *, timeout_s: float, names: tuple[str, ...] = ()) -> None:
        """Wait until every role (or the named ones) answers ready.

        Raises:
            RoleError: one ended for good, or the time is over.
        """
        deadline = time.monotonic() + timeout_s
        for role in [self.roles[name] for name in names or tuple(self.roles)]:
            pause_s = LOOK_S
            while role.ready_url and not await answers(role.ready_url):
                if self.failed.done():
                    raise self.failed.result()
                if time.monotonic() > deadline:
                    where = f"; see {role.log}" if role.log else ""
                    raise RoleError(f"{role.name} is not ready after {timeout_s:.0f} s{where}")
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 1.5, LOOK_MAX_S)
            role.was_ready = True

    def kill(self, name: str) -> None:
        """Kill a role with SIGKILL; its keeper starts it again."""
        process = self.roles[name].process
        if process is not None:
            process.kill()

    async def stop(self, *names: str) -> None:
        """Ask the named roles to end, then make them: at most ``stop_grace_s`` seconds. All, and
        what they are forked from, when none is named."""
        roles = [self.roles[name] for name in names or tuple(self.roles)]
        for role in roles:
            role.stopping = True
        running = [role.process for role in roles if role.process is not None]
        for process in running:
            process.send_signal(signal.SIGTERM)
        waits = [asyncio.ensure_future(process.wait()) for process in running]
        if waits:
            _, late = await asyncio.wait(waits, timeout=self.stop_grace_s)
            for process in running if late else []:
                process.kill()
            # What is killed is gone; only a fork server that hangs keeps us from hearing of it.
            await asyncio.wait(waits, timeout=HEARD_S)
        keepers = [self._keepers[role.name] for role in roles if role.name in self._keepers]
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
        if not names:
            await self.forks.close()
        for wait in waits:
            wait.cancel()


def is_stopping(role: Role) -> bool:
    """Asked again after each wait: mypy would take an attribute for unchanged."""
    return role.stopping
