"""How long nothing is bound after the leader has gone (R8), with the Leases of a deployment."""

from __future__ import annotations

import asyncio
import pathlib
import random
import signal
import tempfile
import time

from tests.e2e import stack as stacks
from tests.e2e.api import Api
from tests.e2e.stack import Stack, StackSettings, until
from tests.kube_env.binaries import build
from tests.kube_env.control_plane import ControlPlane

LEASES = ["--lease-duration-s=15", "--lease-renew-deadline-s=10", "--lease-retry-s=2"]
SETTLE_S = 6.0
"""A standby has warmed up, and a renewal was seen."""


async def run(*, repetitions: int, seed: int) -> int:
    """Print the times of each role and way to go."""
    stacks.LEASE_FLAGS[:] = LEASES
    rng = random.Random(seed)
    with (
        tempfile.TemporaryDirectory(prefix="stretto-takeover-") as text,
        ControlPlane(pathlib.Path(text) / "plane", build()) as plane,
    ):
        async with Api(plane) as api:
            await api.create_nodes(4)
            for role in ("binder", "dispatcher"):
                for how in (signal.SIGTERM, signal.SIGKILL):
                    times = []
                    for number in range(repetitions):
                        folder = pathlib.Path(text) / f"{role}-{how.name}-{number}"
                        folder.mkdir()
                        times.append(await once(api, plane, folder, role, how, rng))
                        await api.clear()
                        await api.create_nodes(4)
                    shown = ", ".join(f"{took:.1f}" for took in sorted(times))
                    print(f"  {role:10} {how.name}: next bind after {shown} s")
    return 0


async def once(
    api: Api,
    plane: ControlPlane,
    folder: pathlib.Path,
    role: str,
    how: signal.Signals,
    rng: random.Random,
) -> float:
    """Seconds from the signal to the next bind."""
    async with Stack(folder, plane.kubeconfig, StackSettings(standbys=True)) as stack:
        await api.create_pod("before")

        async def bound(count: int) -> bool:
            return await api.bound() >= count

        await until(lambda: bound(1), timeout_s=30, what="a first bind")
        await asyncio.sleep(SETTLE_S + rng.uniform(0, 2))
        leader = stack.supervisor.roles[await stack.leader(role)]
        assert leader.process is not None
        leader.stopping = True  # it is not started again: the standby is all there is
        leader.process.send_signal(how)
        began = time.monotonic()
        await api.create_pod("after")
        await until(lambda: bound(2), timeout_s=60, what="a bind by the standby")
        return time.monotonic() - began
