"""The harness itself: it starts, serves, and hands out what tests need."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from tests.kube_env import binaries
from tests.kube_env.control_plane import ControlPlane

pytestmark = pytest.mark.kube


async def test_the_kubeconfig_it_writes_is_usable(control_plane: ControlPlane) -> None:
    config = await KubeConfig.from_file(control_plane.kubeconfig)
    async with KubeClient(config) as client:
        version = await client.check()
    assert version.startswith("v1.")


def test_a_service_account_token_identifies_the_account(
    control_plane: ControlPlane, kube_namespace: str
) -> None:
    path = f"/api/v1/namespaces/{kube_namespace}/serviceaccounts"
    assert control_plane.request("POST", path, {"metadata": {"name": "robot"}})[0] == 201
    token = control_plane.token_for(kube_namespace, "robot")
    status, body = control_plane.request("GET", path, token=token)
    assert status == 403
    assert f"system:serviceaccount:{kube_namespace}:robot" in body["message"]


async def test_a_pod_of_an_account_reaches_the_server(
    control_plane: ControlPlane, kube_namespace: str, tmp_path: Path
) -> None:
    accounts = f"/api/v1/namespaces/{kube_namespace}/serviceaccounts"
    assert control_plane.request("POST", accounts, {"metadata": {"name": "robot"}})[0] == 201
    (tmp_path / "token").write_text(control_plane.token_for(kube_namespace, "robot"))
    (tmp_path / "ca.crt").write_text(control_plane.authority.read_text())
    environ = {
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(control_plane.port),
    }
    async with KubeClient(KubeConfig.in_cluster(environ=environ, folder=tmp_path)) as client:
        assert (await client.check()).startswith("v1.")
        refused = await client.get(f"/api/v1/namespaces/{kube_namespace}/pods")
    assert refused.status == 403
    assert f"system:serviceaccount:{kube_namespace}:robot" in refused.text


def test_kube_scheduler_runs_beside_it_for_comparison(
    new_control_plane: Callable[..., ControlPlane],
) -> None:
    plane = new_control_plane()
    node = {
        "metadata": {"name": "n1"},
        "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
            "capacity": {"cpu": "4", "memory": "8Gi", "pods": "10"},
        },
    }
    assert plane.request("POST", "/api/v1/nodes", node)[0] == 201
    pods = "/api/v1/namespaces/default/pods"
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "pause"}]}}
    assert plane.request("POST", pods, pod)[0] == 201
    plane.start_scheduler()
    deadline = time.monotonic() + 15
    while not plane.request("GET", f"{pods}/p")[1]["spec"].get("nodeName"):
        assert time.monotonic() < deadline, plane.log_of("kube-scheduler")
        time.sleep(0.1)


def test_what_to_do_is_named_when_the_programs_are_missing(tmp_path: os.PathLike[str]) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    assert binaries.find(environ) is None
    assert "KUBEBUILDER_ASSETS" in binaries.how_to_get(environ)
    assert "lacks etcd" in binaries.how_to_get({"KUBEBUILDER_ASSETS": str(tmp_path)})
