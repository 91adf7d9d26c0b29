"""The nodes that a run creates, if the cluster has none of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stretto.kube.client import MERGE, KubeClient
from stretto.kube.errors import KubeError
from stretto.workload import synthetic
from stretto.workload.node_traces import read_nodes
from stretto.workload.openb import NAME as OPENB
from stretto.workload.openb import node_records
from stretto.workload.records import NodeRecord
from stretto.workload.settings import LoadSettings
from stretto.workload.table import TraceError


def nodes_of(settings: LoadSettings) -> list[NodeRecord]:
    """The nodes that a run creates first; none if the settings name none.

    Raises:
        TraceError: a list that cannot be read.
    """
    if not settings.nodes:
        return []
    if settings.nodes == OPENB:
        return node_records()
    if settings.nodes.isascii() and settings.nodes.isdigit() and len(settings.nodes) < 8:
        return list(synthetic.nodes(int(settings.nodes)))
    path = Path(settings.nodes)
    if not path.exists():
        raise TraceError(
            f"--nodes {settings.nodes}: neither a number of nodes, nor {OPENB}, nor a file"
        )
    return read_nodes(path)


async def create_nodes(
    client: KubeClient, nodes: Iterable[dict[str, Any]], *, concurrency: int = 16
) -> list[str]:
    """Create nodes; ones that are there already are left alone. The names of those created.

    A real API server taints new nodes as not ready; nobody but us would take that taint away from
    a node without a kubelet, so we do.

    Raises:
        TraceError: a node was refused; names it.
    """
    source = iter(nodes)
    made: list[str] = []
    problems: list[str] = []

    async def worker() -> None:
        for node in source:
            problem = await _create_node(client, node)
            if problem is None:
                made.append(node["metadata"]["name"])
            elif problem:
                problems.append(f"node {node['metadata']['name']} {problem}")
            if problems:
                return

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(worker())
    if problems:
        raise TraceError(problems[0])
    return made


async def _create_node(client: KubeClient, node: dict[str, Any]) -> str | None:
    """None if it was created, "" if it was there already, else what went wrong."""
    name = node["metadata"]["name"]
    try:
        answer = await client.post("/api/v1/nodes", node)
        if answer.status == 409:
            return ""
        if answer.ok and b"node.kubernetes.io/not-ready" in answer.body:
            spec = {"spec": {"taints": node["spec"].get("taints")}}
            answer = await client.patch(f"/api/v1/nodes/{name}", spec, content_type=MERGE)
    except KubeError as error:
        return f"could not be created: {error}"
    return None if answer.ok else f"was refused: {answer.status} {answer.text}"
