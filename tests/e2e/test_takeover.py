"""A standby takes over: after an orderly stop at once, after a kill when the Lease has stood still.

How long that took is printed (``pytest -s``); docs/reliability.md has the figures.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.api import Api, Oracle
from tests.e2e.stack import LEASE_FLAGS, Stack, StackSettings, until

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(120)]

BEFORE, AFTER = 30, 40


async def created(api: Api, first: int, count: int) -> None:
    await api.all(api.create_pod(f"p-{number}") for number in range(first, first + count))


async def all_bound(api: Api, count: int, *, timeout_s: float) -> None:
    async def bound() -> bool:
        return await api.bound() == count

    await until(bound, timeout_s=timeout_s, what=f"{count} pods bound")


async def gone(stack: Stack, name: str, how: str) -> None:
    """End a process; one that was killed is started again and stands by then."""
    role = stack.supervisor.roles[name]
    process = role.process
    assert process is not None
    role.stopping = how == "stopped"
    process.send_signal(signal.SIGTERM if how == "stopped" else signal.SIGKILL)


@pytest.mark.parametrize("how", ["stopped", "killed"])
@pytest.mark.parametrize("role", ["binder", "dispatcher"])
async def test_a_standby_takes_over(api: Api, tmp_path: Path, role: str, how: str) -> None:
    await api.create_nodes(4)
    async with (
        Stack(tmp_path, api.plane.kubeconfig, StackSettings(standbys=True)) as stack,
        Oracle(api) as oracle,
    ):
        await created(api, 0, BEFORE)
        await all_bound(api, BEFORE, timeout_s=30)
        old = await stack.leader(role)
        assert old
        await gone(stack, old, how)
        began = time.monotonic()
        await created(api, BEFORE, AFTER)

        async def bound_again() -> bool:
            return await api.bound() > BEFORE

        await until(bound_again, timeout_s=40, what="the standby binds")
        took = time.monotonic() - began
        sys.stdout.write(f"{role} {how}, {' '.join(LEASE_FLAGS)}: next bind after {took:.1f} s\n")
        await all_bound(api, BEFORE + AFTER, timeout_s=30)

        async def another_leads() -> bool:
            return await stack.leader(role) not in ("", old)

        await until(another_leads, timeout_s=10, what="the Lease names the standby")
        await oracle.caught_up()
        assert len(oracle.nodes) == BEFORE + AFTER
        starts = {name: r.starts for name, r in stack.supervisor.roles.items()}
        assert all(n == 1 for name, n in starts.items() if name != old), starts
        assert starts[old] == (1 if how == "stopped" else 2)
        await stack.settle()
