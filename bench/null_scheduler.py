"""The floor: a scheduler that decides nothing.

It lists the pending pods of a name once, binds them to nodes in turn with bare binding requests,
and writes the same Scheduled events. What it takes is what the API server and one client cost.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import msgspec
import uvloop

from stretto.kube.answers import BindKind
from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.kube.events import EventWriter, PodEvent

BINDS_IN_FLIGHT = 32
"""As the Binder's default."""


class Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Item(msgspec.Struct):
    metadata: Meta


class ListMeta(msgspec.Struct):
    continue_token: str = msgspec.field(name="continue", default="")


class ItemList(msgspec.Struct):
    metadata: ListMeta
    items: list[Item]


async def listed(client: KubeClient, path: str, selector: str) -> list[Meta]:
    """Identities of all objects that pass a field selector."""
    found: list[Meta] = []
    token = ""
    params = {"fieldSelector": selector} if selector else {}
    while True:
        answer = await client.list_page(path, params, continue_token=token)
        page = msgspec.json.decode(answer.body, type=ItemList)
        found += [item.metadata for item in page.items]
        token = page.metadata.continue_token
        if not token:
            return found


async def bind_all(
    client: KubeClient, pods: Iterator[tuple[Meta, str]], events: EventWriter
) -> None:
    """One of many workers that share ``pods``."""
    for pod, node in pods:
        answer = await client.bind(
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            resource_version=pod.resource_version,
            node=node,
        )
        if answer.kind is not BindKind.BOUND:
            print(f"{pod.name}: {answer}", file=sys.stderr)
            continue
        note = f"Successfully assigned {pod.namespace}/{pod.name} to {node}"
        events.offer(PodEvent(pod.namespace, pod.name, pod.uid, "Scheduled", "Binding", note))


async def schedule(kubeconfig: Path, scheduler_name: str) -> None:
    """Bind everything that waits, then write the rest of the events."""
    async with KubeClient(await KubeConfig.from_file(kubeconfig), timeout_s=60) as client:
        nodes = await listed(client, "/api/v1/nodes", "")
        selector = f"spec.nodeName=,spec.schedulerName={scheduler_name}"
        pods = await listed(client, "/api/v1/pods", selector)
        names = (node.name for node in cycle(nodes))
        pairs = iter(list(zip(pods, names, strict=False)))
        events = EventWriter(client)
        writing = asyncio.create_task(events.run())
        await asyncio.gather(*(bind_all(client, pairs, events) for _ in range(BINDS_IN_FLIGHT)))
        await events.drain(120)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await asyncio.Event().wait()  # until it is killed: the CPU time of the dead cannot be read


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--scheduler-name", default="stretto")
    options = parser.parse_args()
    uvloop.run(schedule(options.kubeconfig, options.scheduler_name))


if __name__ == "__main__":
    main()
