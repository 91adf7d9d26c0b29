"""Creating, reading, patching, evicting and deleting pods."""

from __future__ import annotations

from tests.contract.cluster import Cluster, decoded, path_of, pod_body, version_of


async def test_a_created_pod_has_identity_version_phase_and_defaults(cluster: Cluster) -> None:
    pod = await cluster.create_pod("p1")
    meta = pod["metadata"]
    assert (meta["name"], meta["namespace"]) == ("p1", cluster.namespace)
    assert len(meta["uid"]) == 36
    assert int(meta["resourceVersion"]) > 0
    assert meta["creationTimestamp"]
    assert pod["status"]["phase"] == "Pending"
    assert pod["spec"]["schedulerName"] == "default-scheduler"
    assert not pod["spec"].get("nodeName")


async def test_a_name_is_taken_once(cluster: Cluster) -> None:
    await cluster.create_pod("p1")
    answer = await cluster.client.post(cluster.pods, pod_body("p1"))
    assert answer.status == 409
    assert decoded(answer)["reason"] == "AlreadyExists"


async def test_generate_name_gives_a_fresh_name(cluster: Cluster) -> None:
    names = set()
    for _ in range(3):
        body = pod_body("")
        body["metadata"] = {"generateName": "job-"}
        answer = await cluster.client.post(cluster.pods, body)
        assert answer.status == 201, answer.text
        names.add(decoded(answer)["metadata"]["name"])
    assert len(names) == 3
    assert all(name.startswith("job-") and len(name) > 4 for name in names)


async def test_a_namespace_that_does_not_exist_is_answered_404(cluster: Cluster) -> None:
    path = "/api/v1/namespaces/no-such-namespace/pods"
    assert (await cluster.client.post(path, pod_body("p1"))).status == 404


async def test_a_missing_pod_is_answered_404_with_a_status(cluster: Cluster) -> None:
    answer = await cluster.client.get_pod(cluster.namespace, "nobody")
    assert answer.status == 404
    assert decoded(answer)["reason"] == "NotFound"


async def test_a_status_patch_that_changes_something_bumps_the_version(cluster: Cluster) -> None:
    pod = await cluster.create_pod("p1")
    answer = await cluster.patch_status(pod, "no room")
    assert answer.status == 200
    patched = decoded(answer)
    assert version_of(patched) > version_of(pod)
    (condition,) = [c for c in patched["status"]["conditions"] if c["type"] == "PodScheduled"]
    assert (condition["status"], condition["message"]) == ("False", "no room")


async def test_a_status_patch_that_changes_nothing_leaves_the_version(cluster: Cluster) -> None:
    first = decoded(await cluster.patch_status(await cluster.create_pod("p1"), "no room"))
    second = await cluster.patch_status(first, "no room")
    assert second.status == 200
    assert version_of(decoded(second)) == version_of(first)


async def test_conditions_merge_by_type(cluster: Cluster) -> None:
    pod = decoded(await cluster.patch_status(await cluster.create_pod("p1"), "no room"))
    fence = {"type": "stretto.io/BindFence", "status": "True", "message": "7"}
    answer = await cluster.client.patch_pod_status(
        cluster.namespace,
        "p1",
        {
            "metadata": {"resourceVersion": pod["metadata"]["resourceVersion"]},
            "status": {"conditions": [fence]},
        },
    )
    assert answer.status == 200, answer.text
    types = {c["type"]: c for c in decoded(answer)["status"]["conditions"]}
    assert types["PodScheduled"]["message"] == "no room"
    assert types["stretto.io/BindFence"]["message"] == "7"


async def test_a_later_bind_keeps_the_fence_and_turns_the_condition(cluster: Cluster) -> None:
    pod = await cluster.create_pod("p1")
    fence = {"type": "stretto.io/BindFence", "status": "True", "message": "7"}
    answer = await cluster.client.patch_pod_status(
        cluster.namespace,
        "p1",
        {
            "metadata": {"resourceVersion": pod["metadata"]["resourceVersion"]},
            "status": {"conditions": [fence]},
        },
    )
    fenced = decoded(answer)
    fenced = decoded(await cluster.patch_status(fenced, "no room"))
    assert (await cluster.bind(fenced)).status == 201
    conditions = {c["type"]: c for c in (await cluster.get_pod("p1"))["status"]["conditions"]}
    assert conditions["PodScheduled"]["status"] == "True"
    assert conditions["stretto.io/BindFence"]["message"] == "7"


async def test_a_status_patch_on_an_old_version_is_refused(cluster: Cluster) -> None:
    pod = await cluster.create_pod("p1")
    assert (await cluster.patch_status(pod, "one")).status == 200
    answer = await cluster.patch_status(pod, "two")
    assert answer.status == 409
    assert "the object has been modified" in answer.text


async def test_a_status_patch_with_another_uid_is_refused(cluster: Cluster) -> None:
    pod = await cluster.create_pod("p1")
    other = "11111111-2222-3333-4444-555555555555"
    assert (await cluster.patch_status(pod, "one", uid=other)).status == 422
    assert (await cluster.patch_status(pod, "one", uid=pod["metadata"]["uid"])).status == 200


async def test_a_status_patch_of_a_missing_pod_is_answered_404(cluster: Cluster) -> None:
    pod = await cluster.create_pod("p1")
    assert (await cluster.client.delete(path_of(pod))).status == 200
    assert (await cluster.patch_status(pod, "one")).status == 404


async def test_a_pending_pod_is_removed_at_once(cluster: Cluster) -> None:
    pod = await cluster.create_pod("p1")
    answer = await cluster.client.delete(path_of(pod), {"gracePeriodSeconds": 30})
    assert answer.status == 200
    assert (await cluster.client.get_pod(cluster.namespace, "p1")).status == 404


async def test_a_delete_with_another_uid_is_refused(cluster: Cluster) -> None:
    pod = await cluster.create_pod("p1")
    options = {"preconditions": {"uid": "11111111-2222-3333-4444-555555555555"}}
    assert (await cluster.client.delete(path_of(pod), options)).status == 409
    options = {"preconditions": {"uid": pod["metadata"]["uid"]}}
    assert (await cluster.client.delete(path_of(pod), options)).status == 200


async def test_an_eviction_asks_for_the_uid_and_marks_a_bound_pod(cluster: Cluster) -> None:
    pod = await cluster.create_pod("p1")
    assert (await cluster.bind(pod)).status == 201
    running = {"status": {"phase": "Running"}, "metadata": {}}
    running["metadata"] = {
        "resourceVersion": (await cluster.get_pod("p1"))["metadata"]["resourceVersion"]
    }
    patched = await cluster.client.patch_pod_status(cluster.namespace, "p1", running)
    assert patched.status == 200, patched.text
    other = "11111111-2222-3333-4444-555555555555"
    assert (await cluster.client.evict(cluster.namespace, "p1", uid=other)).status == 409
    answer = await cluster.client.evict(cluster.namespace, "p1", uid=pod["metadata"]["uid"])
    assert answer.status == 201, answer.text
    assert (await cluster.get_pod("p1"))["metadata"]["deletionTimestamp"]
