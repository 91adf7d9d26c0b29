"""The embedded ledger dies again and again while the roles of `stretto run` still start."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest

from tests.e2e.api import Api
from tests.e2e.commands import children_of, running
from tests.e2e.stack import until

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(120)]

DEATHS = 5


async def kill_when_it_comes(parent: int) -> None:
    """SIGKILL the ledger's server as soon as there is one."""
    while True:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if (pid := children_of(parent).get("valkey-server")) is not None:
                os.kill(pid, signal.SIGKILL)
                await until(lambda: not os.path.exists(f"/proc/{pid}"), timeout_s=5, what="end")
                return
        await asyncio.sleep(0.02)


async def test_all_roles_are_ready_once_it_lives(api: Api, tmp_path: Path) -> None:
    await api.create_nodes(2)
    kubeconfig = str(api.plane.kubeconfig)
    async with running(tmp_path, "run", "--kubeconfig", kubeconfig) as process:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            # The first start is the command's own: without it, it would say so and end.
            while "binder" not in children_of(process.pid):
                await asyncio.sleep(0.02)
            for _ in range(DEATHS):
                await kill_when_it_comes(process.pid)
            said = []
            while not said or b"stretto: ready" not in said[-1]:
                said.append(await process.stdout.readline())
                assert said[-1], said
        await api.all(api.create_pod(f"p-{i}") for i in range(10))

        async def bound() -> bool:
            return await api.bound() == 10

        await until(bound, timeout_s=30, what="all bound")
        process.send_signal(signal.SIGTERM)
        said += (await process.stdout.read()).splitlines(keepends=True)
        assert await process.wait() == 0, said
    text = b"".join(said).decode()
    assert text.count("ended with code -9") == DEATHS, text
    assert "Traceback" not in text
