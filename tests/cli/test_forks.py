"""Forks of the fork server: what a process started afresh would be, and gone when it has to be."""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
import sys
from collections.abc import AsyncIterator

import pytest

from stretto.cli.forks import LOST, Fork, Forks
from stretto.cli.supervisor import Role, Supervisor, free_port
from tests.e2e.stack import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

READY_S = 60


@pytest.fixture
async def forks() -> AsyncIterator[Forks]:
    made = Forks()
    yield made
    await made.close()


async def started(forks: Forks, log: pathlib.Path, *words: str) -> Fork:
    with log.open("ab") as out:
        return await forks.start("a-role", list(words), output=out.fileno())


def status_of(pid: int) -> dict[str, str]:
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def alive(pid: int) -> bool:
    try:
        return status_of(pid)["State"][0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_words_and_exit_code_are_the_command_s(forks: Forks, tmp_path: pathlib.Path) -> None:
    log = tmp_path / "log"
    fork = await started(forks, log, "shard", "--nonsense")
    assert await fork.wait() == 2
    assert "stretto: unknown flag --nonsense; see `stretto shard --help`" in log.read_text()


async def test_a_fork_has_the_signals_the_session_and_the_name_of_its_own(
    forks: Forks, tmp_path: pathlib.Path
) -> None:
    port = str(free_port())
    log = tmp_path / "log"
    fork = await started(forks, log, "simulator", "--port", port, f"--kubeconfig={tmp_path / 'k'}")
    await until((tmp_path / "k").exists, timeout_s=READY_S, what="a simulator")
    status = status_of(fork.pid)
    assert status["Name"] == "a-role"
    assert status["NSsid"].split()[-1] == str(fork.pid)
    for blocked_or_ignored in ("SigBlk", "SigIgn"):
        mask = int(status[blocked_or_ignored], 16)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            assert not mask >> (number - 1) & 1, (blocked_or_ignored, number)
    # Of the server's descriptors none is left: its socket would keep it from noticing our end.
    server = forks.server_pid
    assert server is not None
    assert not sockets_of(server) & sockets_of(fork.pid)
    fork.send_signal(signal.SIGTERM)
    assert await fork.wait() == 0


def sockets_of(pid: int) -> set[str]:
    links = (str(link.readlink()) for link in pathlib.Path(f"/proc/{pid}/fd").iterdir())
    return {link for link in links if link.startswith("socket:")}


async def test_a_server_that_is_told_to_end_waits_for_its_parent(
    forks: Forks, tmp_path: pathlib.Path
) -> None:
    """A service manager tells all processes at once, and the roles need their time."""
    first = await started(forks, tmp_path / "log", "shard", "--nonsense")
    await first.wait()
    server = forks.server_pid
    assert server is not None
    os.kill(server, signal.SIGTERM)
    os.kill(server, signal.SIGINT)
    again = await started(forks, tmp_path / "log", "shard", "--nonsense")
    assert await again.wait() == 2
    assert forks.server_pid == server


async def test_a_killed_server_takes_its_forks_along_and_all_come_back(
    tmp_path: pathlib.Path,
) -> None:
    port = free_port()
    role = Role(
        name="simulator",
        arguments=["simulator", "--port", str(port)],
        ready_url=f"http://127.0.0.1:{port}/readyz",
        log=tmp_path / "log",
    )
    supervisor = Supervisor([role])
    await supervisor.start()
    try:
        await supervisor.wait_ready(timeout_s=READY_S)
        assert role.process is not None
        first, server = role.process, supervisor.forks.server_pid
        assert server is not None
        os.kill(server, signal.SIGKILL)
        assert await first.wait() == LOST
        await until(lambda: not alive(first.pid), timeout_s=10, what="the fork's end")
        await until(lambda: role.starts == 2, timeout_s=READY_S, what="a second start")
        await supervisor.wait_ready(timeout_s=READY_S)
        assert supervisor.forks.server_pid not in (None, server)
    finally:
        await supervisor.stop()
    assert supervisor.forks.server_pid is None


PARENT = """
import asyncio, os, sys
from stretto.cli.forks import Forks
async def main():
    forks = Forks()
    fork = await forks.start("orphan", sys.argv[1:], output=None)
    print(fork.pid, forks.server_pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


async def test_forks_of_a_killed_parent_end_in_order(tmp_path: pathlib.Path) -> None:
    kubeconfig = tmp_path / "k"
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, "simulator", "--port=0", f"--kubeconfig={kubeconfig}",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert parent.stdout is not None
        pids = [int(word) for word in (await parent.stdout.readline()).split()]
        await until(kubeconfig.exists, timeout_s=READY_S, what="a simulator")
    finally:
        parent.kill()
        await parent.wait()
    assert len(pids) == 2
    await until(lambda: not any(map(alive, pids)), timeout_s=30, what="all gone")


AHEAD = """
import asyncio, os, pathlib, signal
from stretto.cli.fork_server import serve_ahead
from stretto.cli.forks import LOST, Ahead, Forks, fork_ahead
parent = os.getpid()
server = fork_ahead()
if not isinstance(server, Ahead):
    raise SystemExit(serve_ahead(server, parent=parent))
async def main():
    forks = Forks(server)
    fork = await forks.start("ahead", ["shard", "--nonsense"], output=None)
    assert await fork.wait() == 2
    assert forks.server_pid == server.pid
    assert pathlib.Path(f"/proc/{server.pid}/comm").read_text() == "fork-server\\n"
    assert os.getsid(server.pid) == server.pid, "Ctrl-C in the terminal would reach it"
    os.kill(server.pid, signal.SIGKILL)
    while forks.server_pid is not None:
        await asyncio.sleep(0.01)
    fork = await forks.start("again", ["shard", "--nonsense"], output=None)
    assert await fork.wait() == 2
    assert forks.server_pid not in (None, server.pid)
    await forks.close()
    print("as it should be", flush=True)
asyncio.run(main())
"""


async def test_a_server_forked_ahead_serves_and_is_replaced_when_it_dies() -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", AHEAD,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await parent.communicate()
    assert (parent.returncode, out) == (0, b"as it should be\n"), err.decode()
