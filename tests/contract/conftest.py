"""Every contract test runs twice: against the simulator and against a real kube-apiserver.

What they disagree on is a bug of the simulator.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.simulator.cluster import SimulatedCluster
from tests.contract.cluster import Cluster, Follower
from tests.kube_env.control_plane import ControlPlane


@pytest.fixture(params=["simulator", pytest.param("real", marks=pytest.mark.kube)])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[KubeClient]:
    async with AsyncExitStack() as stack:
        if request.param == "real":
            plane: ControlPlane = request.getfixturevalue("control_plane")
            config = await KubeConfig.from_file(plane.kubeconfig)
        else:
            simulator = await stack.enter_async_context(SimulatedCluster())
            config = KubeConfig.from_url(simulator.url)
        yield await stack.enter_async_context(KubeClient(config))


@pytest.fixture
async def cluster(client: KubeClient) -> Cluster:
    name = f"test-{secrets.token_hex(5)}"
    answer = await client.post("/api/v1/namespaces", {"metadata": {"name": name}})
    assert answer.status == 201, answer.text
    return Cluster(client, name)


@pytest.fixture
async def follow(cluster: Cluster) -> AsyncIterator[Callable[..., Awaitable[Follower]]]:
    followers: list[Follower] = []

    async def start(path: str = "", **settings: object) -> Follower:
        follower = Follower(cluster.reflector(path, **settings))
        followers.append(follower)
        return follower

    yield start
    for follower in followers:
        await follower.close()
