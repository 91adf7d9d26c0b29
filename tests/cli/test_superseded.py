"""A role in whose place another may lead ends with a code of its own: it is no defect."""

from __future__ import annotations

import asyncio
import pathlib

import msgspec
import pytest

from stretto.cli.supervisor import free_port
from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.kube.leadership import SUPERSEDED
from tests.e2e.commands import running
from tests.e2e.stack import LEASE_FLAGS, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


async def test_a_dispatcher_that_lost_its_lease(tmp_path: pathlib.Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    ports = (f"--{flag}=127.0.0.1:{free_port()}" for flag in ("listen", "telemetry-listen"))
    async with running(tmp_path, "simulator", f"--kubeconfig={kubeconfig}"):
        await until(kubeconfig.exists, timeout_s=60, what="a simulator")
        words = ("dispatcher", f"--kubeconfig={kubeconfig}", *ports, *LEASE_FLAGS)
        config = await KubeConfig.from_file(kubeconfig)
        async with KubeClient(config) as client, running(tmp_path, *words) as role:
            path = f"{LEASES}/stretto-dispatcher"

            async def held() -> bool:
                return (await client.get(path)).ok

            await until(held, timeout_s=60, what="its Lease")
            while True:  # a renewal may come in between
                lease = msgspec.json.decode((await client.get(path)).body)
                lease["spec"]["holderIdentity"] = "another"
                if (await client.put(path, lease)).ok:
                    break
            async with asyncio.timeout(30):
                out, _ = await role.communicate()
            assert role.returncode == SUPERSEDED, out
