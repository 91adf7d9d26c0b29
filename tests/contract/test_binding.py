"""What an API server answers to a binding POST, and what that changes."""

from __future__ import annotations

import asyncio

import pytest

from stretto.kube.answers import BindKind, BindRefusal
from stretto.kube.client import MERGE
from tests.contract.cluster import Cluster, path_of, version_of


async def test_a_bind_is_answered_201_and_sets_node_and_condition(cluster: Cluster) -> None:
    pod = await cluster.create_pod("p1", schedulerName="stretto")
    answer = await cluster.bind(pod, "n1")
    assert (answer.kind, answer.status) == (BindKind.BOUND, 201)
    bound = await cluster.get_pod("p1")
    assert bound["spec"]["nodeName"] == "n1"
    assert version_of(bound) > version_of(pod)
    assert bound["metadata"]["uid"] == pod["metadata"]["uid"]
    conditions = {c["type"]: c["status"] for c in bound["status"]["conditions"]}
    assert conditions["PodScheduled"] == "True"


async def test_a_bind_to_a_node_that_does_not_exist_succeeds(cluster: Cluster) -> None:
    pod = await cluster.create_pod("p1")
    assert (await cluster.bind(pod, "no-such-node")).kind is BindKind.BOUND


async def test_an_old_resource_version_is_refused(cluster: Cluster) -> None:
    pod = await cluster.create_pod("p1")
    assert (await cluster.patch_status(pod, "no room")).status == 200
    answer = await cluster.bind(pod)
    assert (answer.kind, answer.refusal) == (BindKind.CONFLICT, BindRefusal.RESOURCE_VERSION)
    fresh = await cluster.get_pod("p1")
    assert not fresh["spec"].get("nodeName")
    assert (await cluster.bind(fresh)).kind is BindKind.BOUND


async def test_another_uid_is_refused(cluster: Cluster) -> None:
    pod = await cluster.create_pod("p1")
    answer = await cluster.bind(pod, uid="11111111-2222-3333-4444-555555555555")
    assert (answer.kind, answer.refusal) == (BindKind.CONFLICT, BindRefusal.UID)


async def test_a_second_bind_is_refused_by_version_and_by_assignment(cluster: Cluster) -> None:
    pod = await cluster.create_pod("p1")
    assert (await cluster.bind(pod)).kind is BindKind.BOUND
    again = await cluster.bind(pod)
    assert (again.kind, again.refusal) == (BindKind.CONFLICT, BindRefusal.RESOURCE_VERSION)
    fresh = await cluster.bind(await cluster.get_pod("p1"), "n2")
    assert (fresh.kind, fresh.refusal) == (BindKind.CONFLICT, BindRefusal.ASSIGNED)
    assert '"n1"' in fresh.text
    assert (await cluster.get_pod("p1"))["spec"]["nodeName"] == "n1"


async def test_a_gated_pod_is_refused(cluster: Cluster) -> None:
    pod = await cluster.create_pod("p1", schedulingGates=[{"name": "example.com/wait"}])
    answer = await cluster.bind(pod)
    assert (answer.kind, answer.refusal) == (BindKind.CONFLICT, BindRefusal.GATED)


async def test_a_pod_that_is_being_deleted_is_refused(cluster: Cluster) -> None:
    pod = await cluster.create_pod("p1")
    patch = {"metadata": {"finalizers": ["example.com/hold"]}}
    held = await cluster.client.patch(path_of(pod), patch, content_type=MERGE)
    assert held.status == 200, held.text
    assert (await cluster.client.delete(path_of(pod))).status == 200
    answer = await cluster.bind(await cluster.get_pod("p1"))
    assert (answer.kind, answer.refusal) == (BindKind.CONFLICT, BindRefusal.DELETING)


async def test_a_pod_that_is_gone_is_answered_404(cluster: Cluster) -> None:
    pod = await cluster.create_pod("p1")
    assert (await cluster.client.delete(path_of(pod))).status == 200
    answer = await cluster.bind(pod)
    assert (answer.kind, answer.status) == (BindKind.GONE, 404)


async def test_a_recreated_pod_of_the_same_name_is_safe_from_the_old_ones_bind(
    cluster: Cluster,
) -> None:
    old = await cluster.create_pod("p1")
    assert (await cluster.client.delete(path_of(old))).status == 200
    new = await cluster.create_pod("p1")
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    answer = await cluster.bind(old)
    assert answer.kind is BindKind.CONFLICT
    assert answer.refusal in (BindRefusal.UID, BindRefusal.RESOURCE_VERSION)
    assert not (await cluster.get_pod("p1"))["spec"].get("nodeName")


async def test_of_many_binds_at_once_exactly_one_wins(cluster: Cluster) -> None:
    pod = await cluster.create_pod("p1")
    answers = await asyncio.gather(*(cluster.bind(pod, f"n{k}") for k in range(20)))
    kinds = [answer.kind for answer in answers]
    assert kinds.count(BindKind.BOUND) == 1
    assert kinds.count(BindKind.CONFLICT) == 19
    winner = kinds.index(BindKind.BOUND)
    assert (await cluster.get_pod("p1"))["spec"]["nodeName"] == f"n{winner}"


@pytest.mark.parametrize("length", [1, 253])
async def test_names_of_any_length(cluster: Cluster, length: int) -> None:
    pod = await cluster.create_pod("a" * length)
    assert (await cluster.bind(pod)).kind is BindKind.BOUND
