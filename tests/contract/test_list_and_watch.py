"""Lists in pages, watches with bookmarks, and what the selectors of the dispatcher and the Binder
see."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from stretto.kube.answers import BindKind
from stretto.kube.errors import WatchGone
from stretto.kube.readers import Bookmark, LineBuffer, Reader
from stretto.kube.reflections import EventKind
from tests.contract.cluster import Cluster, Follower, SeenPod, decoded, path_of, version_of

Follow = Callable[..., Awaitable[Follower]]
PENDING = "spec.nodeName=,spec.schedulerName=stretto,status.phase!=Succeeded,status.phase!=Failed"
NOMINATED = "spec.nodeName=,status.nominatedNodeName!="
BOUND = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


async def test_pages_show_one_version_and_all_objects(cluster: Cluster) -> None:
    for number in range(7):
        await cluster.create_pod(f"p{number}")
    names, versions, token = [], set(), ""
    for turn in range(4):
        page = decoded(
            await cluster.client.list_page(cluster.pods, {}, limit=2, continue_token=token)
        )
        names += [item["metadata"]["name"] for item in page["items"]]
        versions.add(page["metadata"]["resourceVersion"])
        token = page["metadata"].get("continue", "")
        assert bool(token) is (turn < 3)
        await cluster.create_pod(f"late{turn}")  # not in the pages that follow
    assert names == [f"p{number}" for number in range(7)]
    assert len(versions) == 1


async def test_a_list_of_an_earlier_version_shows_what_there_was(cluster: Cluster) -> None:
    gone, bound = await cluster.create_pod("gone"), await cluster.create_pod("bound")
    earlier = version_of(bound)
    assert (await cluster.bind(bound)).kind is BindKind.BOUND
    assert (await cluster.client.delete(path_of(gone))).status == 200
    await cluster.create_pod("late")

    exact = {"resourceVersion": str(earlier), "resourceVersionMatch": "Exact"}
    page = decoded(await cluster.client.get(cluster.pods, exact))
    assert page["metadata"]["resourceVersion"] == str(earlier)
    pods = {item["metadata"]["name"]: item for item in page["items"]}
    assert set(pods) == {"gone", "bound"}
    assert version_of(pods["bound"]) == earlier
    assert "nodeName" not in pods["bound"]["spec"]
    by_node = await cluster.client.get(cluster.pods, exact | {"fieldSelector": "spec.nodeName!="})
    assert decoded(by_node)["items"] == []


async def test_a_list_of_a_version_to_come_is_refused(cluster: Cluster) -> None:
    late = version_of(await cluster.create_pod("p")) + 1_000_000
    exact = {"resourceVersion": str(late), "resourceVersionMatch": "Exact"}
    assert (await cluster.client.get(cluster.pods, exact)).status == 504


async def test_a_list_without_limit_is_whole(cluster: Cluster) -> None:
    created = await cluster.create_pod("p1")
    page = decoded(await cluster.client.get(cluster.pods))
    assert [item["metadata"]["name"] for item in page["items"]] == ["p1"]
    assert int(page["metadata"]["resourceVersion"]) >= version_of(created)
    assert page["kind"] == "PodList"


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        (PENDING, {"ours"}),
        (BOUND, {"bound"}),
        ("spec.schedulerName=stretto", {"ours", "bound"}),
        ("metadata.name=other", {"other"}),
        ("status.phase=Pending", {"ours", "other", "bound"}),
    ],
)
async def test_field_selectors(cluster: Cluster, selector: str, names: set[str]) -> None:
    await cluster.create_pod("ours", schedulerName="stretto")
    await cluster.create_pod("other")
    bound = await cluster.create_pod("bound", schedulerName="stretto")
    assert (await cluster.bind(bound)).kind is BindKind.BOUND
    page = decoded(await cluster.client.get(cluster.pods, {"fieldSelector": selector}))
    assert {item["metadata"]["name"] for item in page["items"]} == names


async def test_label_selectors(cluster: Cluster) -> None:
    for name, labels in (("a", {"app": "x"}), ("b", {"app": "y"}), ("c", {})):
        body = {
            "metadata": {"name": name, "labels": labels},
            "spec": {"containers": [{"name": "c", "image": "pause"}]},
        }
        assert (await cluster.client.post(cluster.pods, body)).status == 201
    for selector, names in (("app=x", {"a"}), ("app in (x,y)", {"a", "b"}), ("!app", {"c"})):
        page = decoded(await cluster.client.get(cluster.pods, {"labelSelector": selector}))
        assert {item["metadata"]["name"] for item in page["items"]} == names


async def test_a_pods_life_as_a_watch_tells_it(cluster: Cluster, follow: Follow) -> None:
    follower = await follow()
    assert await follower.until_synced() == []
    pod = await cluster.create_pod("p1")
    added = await follower.next()
    assert (added.kind, added.uid) == (EventKind.ADDED, pod["metadata"]["uid"])
    assert added.resource_version == version_of(pod)
    assert (await cluster.bind(pod)).kind is BindKind.BOUND
    bound = await follower.next()
    assert bound.kind is EventKind.MODIFIED
    assert bound.new is not None
    assert bound.new.spec.node_name == "n1"
    options = {"gracePeriodSeconds": 0}
    assert (await cluster.client.delete(path_of(pod), options)).status == 200
    # A bound pod gets its deletionTimestamp first, even if it has no time left.
    while (gone := await follower.next()).kind is EventKind.MODIFIED:
        assert gone.new is not None
        assert gone.new.metadata.deletion_timestamp
    assert (gone.kind, gone.uid) == (EventKind.DELETED, pod["metadata"]["uid"])
    assert gone.resource_version > bound.resource_version


async def test_a_pod_that_leaves_the_selector_is_told_as_deleted(
    cluster: Cluster, follow: Follow
) -> None:
    pending = await follow(params={"fieldSelector": PENDING})
    bound = await follow(params={"fieldSelector": BOUND})
    await pending.until_synced()
    await bound.until_synced()
    pod = await cluster.create_pod("p1", schedulerName="stretto")
    await cluster.create_pod("p2")  # another scheduler's
    assert (await pending.next()).kind is EventKind.ADDED
    assert (await cluster.bind(pod)).kind is BindKind.BOUND
    left, entered = await pending.next(), await bound.next()
    assert (left.kind, entered.kind) == (EventKind.DELETED, EventKind.ADDED)
    assert left.uid == entered.uid == pod["metadata"]["uid"]
    assert left.resource_version == entered.resource_version > version_of(pod)
    assert left.new is not None
    assert not left.new.metadata.deletion_timestamp


async def test_nominated_pods_are_selected_and_leave_when_they_are_cleared_or_bound(
    cluster: Cluster, follow: Follow
) -> None:
    nominated = await follow(params={"fieldSelector": NOMINATED})
    await nominated.until_synced()
    versions = {}
    for name in ("p1", "p2"):
        pod = await cluster.create_pod(name, schedulerName="stretto")
        for node in ("n1", "n2"):
            meta = {"uid": pod["metadata"]["uid"]}
            patch = {"metadata": meta, "status": {"nominatedNodeName": node}}
            pod = decoded(await cluster.client.patch(f"{path_of(pod)}/status", patch))
        assert [(await nominated.next()).kind for _ in range(2)] == [
            EventKind.ADDED, EventKind.MODIFIED,
        ]  # fmt: skip
        versions[name] = pod
    patch = {"status": {"nominatedNodeName": None}}
    cleared = decoded(await cluster.client.patch(f"{path_of(versions['p1'])}/status", patch))
    assert "nominatedNodeName" not in cleared["status"]
    assert (await cluster.bind(versions["p2"])).kind is BindKind.BOUND
    for pod in versions.values():
        left = await nominated.next()
        assert (left.kind, left.uid) == (EventKind.DELETED, pod["metadata"]["uid"])
        assert left.new is not None
        assert not left.new.metadata.deletion_timestamp
    bound = decoded(await cluster.client.get(path_of(versions["p2"])))
    assert "nominatedNodeName" not in bound["status"], "a bind ends a nomination"


async def test_a_pending_pod_that_is_deleted_leaves_with_its_deletion_timestamp(
    cluster: Cluster, follow: Follow
) -> None:
    """What tells a deleted pod from a bound one, for who watches unbound pods only."""
    pending = await follow(params={"fieldSelector": PENDING})
    await pending.until_synced()
    pod = await cluster.create_pod("p1", schedulerName="stretto")
    assert (await pending.next()).kind is EventKind.ADDED
    assert (await cluster.client.delete(path_of(pod))).status == 200
    while (gone := await pending.next()).kind is EventKind.MODIFIED:
        assert gone.new is not None
        assert gone.new.metadata.deletion_timestamp
    assert gone.kind is EventKind.DELETED
    assert gone.new is not None
    assert gone.new.metadata.deletion_timestamp


async def test_a_watch_from_a_version_tells_all_that_came_after_it(cluster: Cluster) -> None:
    first = await cluster.create_pod("p1")
    await cluster.create_pod("p2")
    await cluster.create_pod("p3")
    params = {"resourceVersion": first["metadata"]["resourceVersion"], "timeoutSeconds": "5"}
    reader, buffer, names = Reader(SeenPod), LineBuffer(), []
    async with (
        asyncio.timeout(10),
        cluster.client.watch(cluster.pods, params, silence_s=10) as pieces,
    ):
        async for piece in pieces:
            names += [change.object.metadata.name for change in reader.lines(buffer.feed(piece))]
            if len(names) == 2:
                break
    assert names == ["p2", "p3"]


async def test_a_watch_ends_in_time_and_with_a_bookmark(cluster: Cluster) -> None:
    pod = await cluster.create_pod("p1")
    params = {
        "resourceVersion": pod["metadata"]["resourceVersion"],
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "3",
    }
    reader, buffer = Reader(SeenPod), LineBuffer()
    lines = []
    async with (
        asyncio.timeout(10),
        cluster.client.watch(cluster.pods, params, silence_s=10) as pieces,
    ):
        await cluster.create_pod("p2")
        async for piece in pieces:
            if whole := buffer.feed(piece):
                lines += list(reader.lines(whole))
    changes = [line for line in lines if not isinstance(line, Bookmark)]
    bookmarks = [line.version for line in lines if isinstance(line, Bookmark)]
    assert len(changes) == 1
    assert bookmarks
    assert bookmarks[-1] >= version_of(await cluster.get_pod("p2"))


async def test_a_watch_that_has_nothing_to_tell_says_before_its_end_how_far_it_is(
    cluster: Cluster,
) -> None:
    """Which is past what its selectors left out meanwhile."""
    first = version_of(await cluster.create_pod("p1"))
    params = {
        "resourceVersion": str(first),
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "3",
        "fieldSelector": PENDING,
    }
    reader, buffer, lines = Reader(SeenPod), LineBuffer(), []
    async with (
        asyncio.timeout(10),
        cluster.client.watch(cluster.pods, params, silence_s=10) as pieces,
    ):
        bound = version_of(await cluster.create_pod("p2", nodeName="n1"))
        async for piece in pieces:
            if whole := buffer.feed(piece):
                lines += list(reader.lines(whole))
    assert lines
    assert all(isinstance(line, Bookmark) and line.version >= bound for line in lines[-1:])
    assert all(isinstance(line, Bookmark) for line in lines)


async def test_a_version_that_is_too_old_is_gone(cluster: Cluster) -> None:
    await cluster.create_pod("p1")

    async def watch() -> None:
        reader, buffer = Reader(SeenPod), LineBuffer()
        params = {"resourceVersion": "1"}
        async with cluster.client.watch("/api/v1/pods", params, silence_s=10) as pieces:
            async for piece in pieces:
                list(reader.lines(buffer.feed(piece)))

    with pytest.raises(WatchGone):
        await watch()


async def test_many_pods_in_pages_then_a_burst_all_arrive_once(
    cluster: Cluster, follow: Follow
) -> None:
    for batch in range(6):
        await asyncio.gather(*(cluster.create_pod(f"a{batch}-{k}") for k in range(20)))
    follower = await follow(page=50)
    listed = await follower.until_synced()
    assert len({event.uid for event in listed}) == len(listed) == 120
    await asyncio.gather(*(cluster.create_pod(f"b-{k}") for k in range(100)))
    told = [await follower.next() for _ in range(100)]
    assert {event.name for event in told} == {f"b-{k}" for k in range(100)}
    versions = [event.resource_version for event in told]
    assert versions == sorted(versions)


async def test_no_read_shows_what_a_watch_does_not_tell(cluster: Cluster, follow: Follow) -> None:
    """Pods come, go, change and leave the selector all the while: nothing is ever called lost."""
    follower = await follow(params={"fieldSelector": PENDING}, page=5)
    await follower.until_synced()

    async def churn(lane: int) -> None:
        for number in range(12):
            pod = await cluster.create_pod(f"p{lane}-{number}", schedulerName="stretto")
            if number % 3 == 0:
                await cluster.bind(pod)
            elif number % 3 == 1:
                await cluster.client.delete(path_of(pod))
            else:
                await cluster.patch_status(pod, "changed")
            await asyncio.sleep(0.05)

    churning = asyncio.gather(*(churn(lane) for lane in range(4)))
    checks = 0
    while not churning.done():
        assert await follower._reflector._lost() == []
        checks += 1
    await churning
    assert checks >= 2
    assert await follower._reflector._lost() == []


async def test_nodes_are_cluster_wide_and_keep_what_the_kubelet_reports(cluster: Cluster) -> None:
    name = f"node-{cluster.namespace}"
    node = {
        "metadata": {"name": name, "labels": {"zone": "a"}},
        "spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"cpu": "4", "memory": "32Gi", "pods": "110"},
            "capacity": {"cpu": "4", "memory": "32Gi", "pods": "110"},
        },
    }
    created = await cluster.client.post("/api/v1/nodes", node)
    assert created.status == 201, created.text
    page = decoded(
        await cluster.client.get("/api/v1/nodes", {"fieldSelector": f"metadata.name={name}"})
    )
    (item,) = page["items"]
    assert item["status"]["allocatable"]["memory"] == "32Gi"
    assert item["spec"]["taints"][0]["key"] == "k"
    assert not item["metadata"].get("namespace")
    cordon = await cluster.client.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})
    assert decoded(cordon)["spec"]["unschedulable"] is True
    assert (await cluster.client.delete(f"/api/v1/nodes/{name}")).status == 200
    assert (await cluster.client.get(f"/api/v1/nodes/{name}")).status == 404


def test_the_tests_own_pod_type_reads_a_bare_object() -> None:
    assert msgspec.json.decode(b'{"metadata":{}}', type=SeenPod).spec.node_name == ""
