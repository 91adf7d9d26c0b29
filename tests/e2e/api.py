"""The tests' own access to the control plane, independent of Stretto's client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Iterable
from typing import Any, Self

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

from stretto.model.quantity import milli_value
from tests.kube_env.control_plane import ControlPlane

PODS = "/api/v1/namespaces/default/pods"
MERGE = "application/merge-patch+json"
AT_ONCE = {"gracePeriodSeconds": 0}
CREATES_IN_FLIGHT = 16
Pod = dict[str, Any]


def node_manifest(name: str, *, cpu: str, memory: str, pods: str) -> dict[str, Any]:
    """A ready node."""
    room = {"cpu": cpu, "memory": memory, "pods": pods}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def pod_manifest(
    name: str,
    *,
    cpu: str = "100m",
    memory: str = "64Mi",
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Pod:
    """A pod for Stretto that asks for a little."""
    container = {
        "name": "c",
        "image": "registry.example/app:1",
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels or {}},
        "spec": {"schedulerName": "stretto", "containers": [container], **spec},
    }


def node_of(pod: Pod) -> str:
    """Where a pod is bound, "" if it is not."""
    return str(pod["spec"].get("nodeName", ""))


def scheduled_condition(pod: Pod) -> dict[str, str]:
    """Its PodScheduled condition, empty if it has none."""
    for condition in pod.get("status", {}).get("conditions", []):
        if condition["type"] == "PodScheduled":
            return dict(condition)
    return {}


def cpu_of(pod: Pod) -> int:
    """Thousandths of a CPU that a pod of these tests asks for."""
    return sum(
        milli_value(container["resources"]["requests"]["cpu"])
        for container in pod["spec"]["containers"]
    )


class Api:
    """``async with Api(plane) as api``."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane

    async def __aenter__(self) -> Self:
        trust = ssl.create_default_context(cafile=str(self.plane.authority))
        self._session = ClientSession(
            connector=TCPConnector(ssl=trust, limit=0),
            timeout=ClientTimeout(total=30),
            headers={"Authorization": f"Bearer {self.plane.admin_token}"},
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        # TLS connections close in the background; their warnings would fail the test.
        await asyncio.sleep(0.05)

    async def answer(
        self, method: str, path: str, body: Any = None, *, kind: str = "application/json"
    ) -> tuple[int, Any]:
        """One request: (status, decoded body)."""
        data = None if body is None else json.dumps(body)
        url = self.plane.url + path
        headers = {"Content-Type": kind}
        async with self._session.request(method, url, data=data, headers=headers) as reply:
            return reply.status, await reply.json(content_type=None)

    async def call(
        self, method: str, path: str, body: Any = None, *, kind: str = "application/json"
    ) -> Any:
        """The decoded body of an answer below 300; anything else fails the test."""
        status, reply = await self.answer(method, path, body, kind=kind)
        assert status < 300, (method, path, status, reply)
        return reply

    async def all(self, calls: Iterable[Any]) -> None:
        """Await all, a few at a time."""
        gate = asyncio.Semaphore(CREATES_IN_FLIGHT)

        async def one(call: Any) -> None:
            async with gate:
                await call

        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(one(call))

    async def create_node(
        self,
        name: str,
        *,
        cpu: str = "4",
        memory: str = "32Gi",
        pods: str = "110",
        labels: dict[str, str] | None = None,
        cordoned: bool = False,
    ) -> None:
        """Create a node and set its status, as a kubelet does."""
        manifest = node_manifest(name, cpu=cpu, memory=memory, pods=pods)
        manifest["metadata"]["labels"] |= labels or {}
        manifest["spec"] = {"unschedulable": cordoned}
        await self.call("POST", "/api/v1/nodes", manifest)
        status = {"status": manifest["status"]}
        await self.call("PATCH", f"/api/v1/nodes/{name}/status", status, kind=MERGE)

    async def create_nodes(self, count: int, **room: str) -> None:
        """Create nodes n-0, n-1 …"""
        await self.all(self.create_node(f"n-{number}", **room) for number in range(count))

    async def create_pod(self, name: str, **options: Any) -> Pod:
        """Create a pod in namespace default."""
        reply: Pod = await self.call("POST", PODS, pod_manifest(name, **options))
        return reply

    async def pod(self, name: str) -> Pod:
        """A pod that exists."""
        reply: Pod = await self.call("GET", f"{PODS}/{name}")
        return reply

    async def pods(self) -> list[Pod]:
        """All pods of namespace default."""
        return list((await self.call("GET", PODS))["items"])

    async def bound(self) -> int:
        """How many pods sit on nodes."""
        return sum(bool(node_of(pod)) for pod in await self.pods())

    async def delete_pod(self, name: str) -> None:
        """Delete a pod at once, without a kubelet's help."""
        await self.call("DELETE", f"{PODS}/{name}", AT_ONCE)

    async def events(self, reason: str) -> dict[str, str]:
        """Name of pod → text of its events with this reason."""
        path = "/apis/events.k8s.io/v1/namespaces/default/events"
        items = (await self.call("GET", path))["items"]
        return {e["regarding"]["name"]: e.get("note", "") for e in items if e["reason"] == reason}

    async def clear(self) -> None:
        """Delete all pods and events of namespace default and all nodes."""
        await self.call("DELETE", PODS, AT_ONCE)
        await self.call("DELETE", "/apis/events.k8s.io/v1/namespaces/default/events")
        await self.call("DELETE", "/api/v1/nodes")

    async def overcommitted(self) -> list[str]:
        """Nodes whose pods ask for more than they have, in words."""
        rooms = {}
        for node in (await self.call("GET", "/api/v1/nodes"))["items"]:
            room = node["status"]["allocatable"]
            rooms[node["metadata"]["name"]] = (milli_value(room["cpu"]), int(room["pods"]))
        used: dict[str, tuple[int, int]] = {}
        for pod in await self.pods():
            if node := node_of(pod):
                cpu, count = used.get(node, (0, 0))
                used[node] = (cpu + cpu_of(pod), count + 1)
        return [
            f"{node}: {amounts} of {rooms[node]}"
            for node, amounts in used.items()
            if amounts[0] > rooms[node][0] or amounts[1] > rooms[node][1]
        ]


class Oracle:
    """Follows the pods in the order of the API server's own log and judges every step.

    At no version may a node hold more CPU or pods than it has; a pod's node never changes.
    """

    def __init__(self, api: Api, *, cpu: int = 1 << 40, pods: int = 1 << 20) -> None:
        self._api = api
        self._room = (cpu, pods)
        self.nodes: dict[str, str] = {}
        """Uid → node, of every pod that was ever seen bound."""
        self.wrong: list[str] = []
        self._on: dict[str, dict[str, int]] = {}

    async def __aenter__(self) -> Self:
        listed = await self._api.call("GET", PODS)
        for pod in listed["items"]:
            self._take("ADDED", pod)
        self._version = listed["metadata"]["resourceVersion"]
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self.caught_up()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        if kind is None:
            assert not self.wrong, self.wrong[:5]

    async def caught_up(self) -> None:
        """Wait until everything written so far was judged."""
        now = int((await self._api.call("GET", PODS))["metadata"]["resourceVersion"])
        last = [int(p["metadata"]["resourceVersion"]) for p in await self._api.pods()]
        wanted = max([v for v in last if v <= now], default=0)
        async with asyncio.timeout(20):
            while int(self._version) < wanted and not self._task.done():
                await asyncio.sleep(0.05)
        if self._task.done():
            self._task.result()

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(ClientError, TimeoutError):
                await self._watch()
            await asyncio.sleep(0.2)

    async def _watch(self) -> None:
        query = f"?watch=1&allowWatchBookmarks=1&resourceVersion={self._version}"
        url = self._api.plane.url + PODS + query
        endless = ClientTimeout(total=None)
        async with self._api._session.get(url, timeout=endless) as reply:
            rest = b""
            async for chunk in reply.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    assert event["type"] != "ERROR", event
                    if event["type"] != "BOOKMARK":
                        self._take(event["type"], event["object"])
                    self._version = event["object"]["metadata"]["resourceVersion"]

    def _take(self, kind: str, pod: Pod) -> None:
        uid, node, name = pod["metadata"]["uid"], node_of(pod), pod["metadata"]["name"]
        if not node:
            return
        if self.nodes.setdefault(uid, node) != node:
            self.wrong.append(f"{name} moved from {self.nodes[uid]} to {node}")
        here = self._on.setdefault(node, {})
        if kind == "DELETED":
            here.pop(uid, None)
            return
        here[uid] = cpu_of(pod)
        if sum(here.values()) > self._room[0] or len(here) > self._room[1]:
            self.wrong.append(f"{node} holds {len(here)} pods with {sum(here.values())}m CPU")
