"""Processes are kept running, a wrong flag ends the attempt, and nothing stays behind."""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
from typing import NoReturn

import pytest

from stretto.cli import forks
from stretto.cli.supervisor import Role, RoleError, Supervisor, answers, free_port
from tests.e2e.stack import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60)]


def simulator(folder: pathlib.Path, port: int) -> Role:
    """A role that starts quickly and has a readiness path."""
    return Role(
        name="simulator",
        arguments=["simulator", "--port", str(port)],
        ready_url=f"http://127.0.0.1:{port}/readyz",
        log=folder / "simulator.log",
    )


async def test_a_killed_role_comes_back(tmp_path: pathlib.Path) -> None:
    role = simulator(tmp_path, free_port())
    supervisor = Supervisor([role])
    await supervisor.start()
    try:
        await supervisor.wait_ready(timeout_s=20)
        assert role.process is not None
        first = role.process.pid
        supervisor.kill("simulator")
        await until(lambda: role.starts == 2, timeout_s=10, what="a second start")
        await supervisor.wait_ready(timeout_s=20)
        assert role.process is not None
        second = role.process.pid
        assert second != first
    finally:
        await supervisor.stop()
    assert not await answers(role.ready_url)
    with pytest.raises(ProcessLookupError):
        os.kill(second, 0)


async def test_a_role_with_an_excuse_is_started_again(tmp_path: pathlib.Path) -> None:
    """Its ledger had died; once the excuse is over, the next failure counts."""
    role = simulator(tmp_path, 99_999)
    role.excuse = lambda: role.starts < 3
    supervisor = Supervisor([role])
    await supervisor.start()
    try:
        with pytest.raises(RoleError, match="simulator could not start"):
            await supervisor.wait_ready(timeout_s=20)
    finally:
        await supervisor.stop()
    assert role.starts == 3


async def test_a_role_that_cannot_start_is_not_started_again(tmp_path: pathlib.Path) -> None:
    role = simulator(tmp_path, 99_999)
    supervisor = Supervisor([role])
    await supervisor.start()
    try:
        with pytest.raises(RoleError, match="simulator could not start"):
            await supervisor.wait_ready(timeout_s=20)
    finally:
        await supervisor.stop()
    assert role.starts == 1
    text = (tmp_path / "simulator.log").read_text()
    assert "99999" in text
    assert "Traceback" not in text


def test_free_ports_differ_and_are_none_that_an_outgoing_connection_gets() -> None:
    ports = [free_port() for _ in range(50)]
    assert len(set(ports)) == 50
    assert all(10_240 <= port < 32_768 for port in ports)


async def test_a_first_process_that_cannot_be_had_is_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = Supervisor([simulator(tmp_path, free_port())])

    async def refused(*_: object, **__: object) -> NoReturn:
        raise OSError("the fork server has ended")

    monkeypatch.setattr(supervisor.forks, "start", refused)
    with pytest.raises(
        RoleError, match="simulator could not be started: the fork server has ended"
    ):
        await supervisor.start()
    await supervisor.stop()


async def test_a_fork_server_that_hangs_keeps_nobody_from_stopping(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forks, "END_S", 0.2)
    role = simulator(tmp_path, free_port())
    supervisor = Supervisor([role], stop_grace_s=2)
    await supervisor.start()
    try:
        await supervisor.wait_ready(timeout_s=20)
        server = supervisor.forks.server_pid
        assert server is not None
        os.kill(server, signal.SIGSTOP)
    finally:
        async with asyncio.timeout(30):
            await supervisor.stop()
    assert not await answers(role.ready_url)
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)
