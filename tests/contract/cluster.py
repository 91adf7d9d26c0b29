"""What the contract tests need of a cluster, whichever it is: plain objects in, decoded answers
out."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import msgspec

from stretto.kube.answers import BindAnswer, Response
from stretto.kube.client import KubeClient, pod_path
from stretto.kube.readers import BareMetadata
from stretto.kube.reflections import Event, EventKind
from stretto.kube.reflector import Reflector


class PodSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    scheduler_name: str = ""


class PodMetadata(BareMetadata):
    deletion_timestamp: str = ""


class SeenPod(msgspec.Struct):
    """A pod as a reflector of the tests decodes it."""

    metadata: PodMetadata
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class Cluster:
    """A namespace of the test's own in the cluster under test."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.pods = f"/api/v1/namespaces/{namespace}/pods"

    async def create_pod(self, name: str, **spec: Any) -> dict[str, Any]:
        answer = await self.client.post(self.pods, pod_body(name, **spec))
        assert answer.status == 201, answer.text
        return decoded(answer)

    async def get_pod(self, name: str) -> dict[str, Any]:
        answer = await self.client.get_pod(self.namespace, name)
        assert answer.status == 200, answer.text
        return decoded(answer)

    async def bind(self, pod: dict[str, Any], node: str = "n1", **changed: Any) -> BindAnswer:
        meta = pod["metadata"]
        fields = {
            "namespace": self.namespace,
            "name": meta["name"],
            "uid": meta["uid"],
            "resource_version": meta["resourceVersion"],
            "node": node,
        }
        return await self.client.bind(**{**fields, **changed})

    async def patch_status(self, pod: dict[str, Any], message: str, **changed: Any) -> Response:
        meta = pod["metadata"]
        precondition = {"resourceVersion": meta["resourceVersion"], **changed}
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        return await self.client.patch_pod_status(
            self.namespace,
            meta["name"],
            {"metadata": precondition, "status": {"conditions": [condition]}},
        )

    def reflector(self, path: str = "", **settings: Any) -> Reflector[SeenPod]:
        return Reflector(self.client, path or self.pods, kind=SeenPod, **settings)


def pod_body(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "pause"}], **spec},
    }


def path_of(pod: dict[str, Any]) -> str:
    return pod_path(pod["metadata"]["namespace"], pod["metadata"]["name"])


def decoded(answer: Response) -> dict[str, Any]:
    body = msgspec.json.decode(answer.body)
    assert isinstance(body, dict)
    return body


def version_of(pod: dict[str, Any]) -> int:
    return int(pod["metadata"]["resourceVersion"])


class Follower:
    """Runs a reflector in the background and hands out its events one by one."""

    def __init__(self, reflector: Reflector[SeenPod]) -> None:
        self._reflector = reflector
        self._events: asyncio.Queue[Event[SeenPod]] = asyncio.Queue()
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with aclosing(self._reflector.run()) as batches:
            async for batch in batches:
                for event in batch:
                    self._events.put_nowait(event)

    async def next(self) -> Event[SeenPod]:
        async with asyncio.timeout(10):
            return await self._events.get()

    async def until_synced(self) -> list[Event[SeenPod]]:
        out = []
        while (event := await self.next()).kind is not EventKind.SYNCED:
            out.append(event)
        return out

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
