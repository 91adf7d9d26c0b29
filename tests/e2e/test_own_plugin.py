"""The example plugin in all roles, on a real API server: its label makes shapes, its mask and its
scores decide, its words are in the condition, and the Binder re-checks it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.api import MERGE, PODS, Api, node_of, pod_manifest, scheduled_condition
from tests.e2e.commands import ready_line, running
from tests.e2e.stack import until

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(90)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "licence-plugin"
CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: stretto
    plugins: {multiPoint: {enabled: [{name: Licence, weight: 50}]}}
"""


async def label(api: Api, node: str, **labels: str) -> None:
    named = {f"example.com/{key}": value for key, value in labels.items()}
    body = {"metadata": {"labels": named}}
    await api.call("PATCH", f"/api/v1/nodes/{node}", body, kind=MERGE)


async def create(api: Api, name: str, licence: str) -> None:
    manifest = pod_manifest(name)
    manifest["metadata"]["labels"] = {"example.com/licence": licence}
    await api.call("POST", PODS, manifest)


async def test_an_installed_plugin_decides_with_the_others(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--disable-pip-version-check", "--target", str(site)]
    await asyncio.to_thread(subprocess.run, [*command, str(EXAMPLE)], check=True)
    monkeypatch.setenv("PYTHONPATH", f"{site}:{os.environ.get('PYTHONPATH', '')}")
    await api.create_nodes(4)
    await label(api, "n-1", licences="nuke", gen="3")
    await label(api, "n-2", licences="nuke.houdini", gen="1")
    path = tmp_path / "scheduler.yaml"
    path.write_text(CONFIGURATION)
    flags = ("--kubeconfig", str(api.plane.kubeconfig), "--config", str(path))
    async with running(tmp_path, "run", *flags) as process:
        await ready_line(process)
        await create(api, "old-first", "nuke")
        await create(api, "nowhere", "fusion")
        await api.create_pod("plain")

        async def decided() -> bool:
            told = scheduled_condition(await api.pod("nowhere"))
            return bool(told) and await api.bound() == 2

        await until(decided, timeout_s=40, what="two bound, one told why not")
        assert node_of(await api.pod("old-first")) == "n-2"
        told = scheduled_condition(await api.pod("nowhere"))["message"]
        assert told.startswith("0/4 nodes are available: 4 node(s) didn't hold the licence.")
        await label(api, "n-3", licences="fusion")

        async def found() -> bool:
            return node_of(await api.pod("nowhere")) == "n-3"

        await until(found, timeout_s=40, what="bound to the node that holds it now")
