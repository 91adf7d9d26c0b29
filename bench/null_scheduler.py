"""The floor: a scheduler that decides nothing.

It lists the pending pods of a name once, makes all requests beforehand, binds the pods to nodes in
turn, then writes the same Scheduled events. It sends on the connections that the Binder sends on,
with nothing between: what it takes is what the API server and one bare client cost. Events come
after the last bind, so that none of them takes a bind's turn.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import uvloop

from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.kube.connections import ConnectionPool

BINDS_IN_FLIGHT = 32
"""As the Binder's default."""
EVENTS_IN_FLIGHT = 16
"""As the Binder's slower lane's."""
TIMEOUT_S = 60.0


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


class Requests:
    """Whole requests for one API server; names of Kubernetes need no escapes in paths or JSON."""

    def __init__(self, config: KubeConfig) -> None:
        host = urlsplit(config.url).netloc
        self._head = (
            f"HTTP/1.1\r\nHost: {host}\r\nAuthorization: {config.authorization()}\r\n"
            "Accept: application/json\r\nContent-Type: application/json\r\nContent-Length: "
        )

    def bind(self, pod: Meta, node: str) -> bytes:
        """Bind a pod as it was listed."""
        body = (
            f'{{"apiVersion":"v1","kind":"Binding","metadata":{{"name":"{pod.name}","namespace":'
            f'"{pod.namespace}","uid":"{pod.uid}","resourceVersion":"{pod.resource_version}"}},'
            f'"target":{{"kind":"Node","name":"{node}"}}}}'
        )
        return self._post(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/binding", body)

    def event(self, pod: Meta, node: str) -> bytes:
        """Tell that a pod was bound."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        body = (
            f'{{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{{"name":'
            f'"{pod.name}.{pod.uid[:8]}","namespace":"{pod.namespace}"}},"regarding":{{"apiVersion"'
            f':"v1","kind":"Pod","name":"{pod.name}","namespace":"{pod.namespace}","uid":'
            f'"{pod.uid}"}},"eventTime":"{now}","reason":"Scheduled","action":"Binding","type":'
            f'"Normal","reportingController":"null","reportingInstance":"null-0","note":'
            f'"Successfully assigned {pod.namespace}/{pod.name} to {node}"}}'
        )
        return self._post(f"/apis/events.k8s.io/v1/namespaces/{pod.namespace}/events", body)

    def _post(self, path: str, body: str) -> bytes:
        return f"POST {path} {self._head}{len(body)}\r\n\r\n{body}".encode("ascii")


async def send_all(pool: ConnectionPool, requests: list[bytes], *, in_flight: int) -> None:
    """Send requests, so many at a time; all must be carried out."""
    turns: Iterator[bytes] = iter(requests)

    async def work() -> None:
        for request in turns:
            reply = await pool.request(request, timeout_s=TIMEOUT_S)
            if reply.status != 201:
                raise SystemExit(f"null scheduler: {reply.status} {reply.body[:300]!r}")

    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(work())


async def schedule(kubeconfig: Path, scheduler_name: str) -> None:
    """Bind everything that waits, then write the events."""
    config = await KubeConfig.from_file(kubeconfig)
    async with KubeClient(config, timeout_s=TIMEOUT_S) as client:
        nodes = await listed(client, "/api/v1/nodes", "")
        selector = f"spec.nodeName=,spec.schedulerName={scheduler_name}"
        pods = await listed(client, "/api/v1/pods", selector)
    pairs = list(zip(pods, cycle(node.name for node in nodes), strict=False))
    requests = Requests(config)
    parts = urlsplit(config.url)
    assert parts.hostname, "checked by KubeConfig"
    files = config.tls.renewable(origin=config.origin)
    pool = ConnectionPool(
        parts.hostname,
        parts.port or 443,
        limit=BINDS_IN_FLIGHT,
        tls=lambda: files.value,
    )
    binds = [requests.bind(*pair) for pair in pairs]
    await send_all(pool, binds, in_flight=BINDS_IN_FLIGHT)
    events = [requests.event(*pair) for pair in pairs]
    await send_all(pool, events, in_flight=EVENTS_IN_FLIGHT)
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
