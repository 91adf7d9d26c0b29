"""A second deployment for one schedulerName does not get to work, and the first does not mind."""

from __future__ import annotations

from pathlib import Path

import pytest

from stretto.cli.supervisor import free_port
from tests.e2e.api import Api
from tests.e2e.commands import ended, is_one_clear_line
from tests.e2e.stack import Stack, until

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(120)]


async def test_a_second_deployment_ends_with_one_line(api: Api, tmp_path: Path) -> None:
    await api.create_nodes(2)
    kubeconfig = api.plane.kubeconfig
    async with Stack(tmp_path, kubeconfig) as stack:
        end = await ended(
            tmp_path, "dispatcher", "--kubeconfig", str(kubeconfig), "--log-level=error",
            f"--listen=127.0.0.1:{free_port()}", "--telemetry-listen=127.0.0.1:0",
            f"--binder=127.0.0.1:{stack.ports.binder}", "--lease-namespace=default",
            # The first renews twice a second.
            "--lease-duration-s=12", "--lease-renew-deadline-s=6", "--lease-retry-s=0.5",
        )  # fmt: skip
        is_one_clear_line(
            end,
            "schedulerName stretto is served by the deployment of Lease "
            "kube-system/stretto-dispatcher, not by that of default/stretto-dispatcher",
            "another --scheduler-name",
        )
        assert end.code == 2
        await api.create_pod("p")

        async def bound() -> bool:
            return await api.bound() == 1

        await until(bound, timeout_s=30, what="bound by the first")
        assert stack.supervisor.roles["dispatcher"].starts == 1
