"""Decisions for the pods of a DaemonSet: one for each node, which its affinity names.

The node is a parameter of the pod's shape, so all of them are compiled once and each looks at its
node alone. Printed beside it: the same pods with the node written into their terms, as a pod that
shares nothing is decided.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from bench.decide_world import GIB, cluster, kernel_on, shape
from stretto.model.shape import Shape, Toleration


def rows(*, nodes: int) -> list[tuple[str, tuple[float, str], int]]:
    """A row of the table: decisions per second of CPU time."""
    agent = shape(100, GIB // 8)
    tolerations = (*agent.tolerations, Toleration("dedicated", "Exists"))
    pods = [
        msgspec.structs.replace(agent, tolerations=tolerations, only_node=f"node-{number:05}")
        for number in range(nodes)
    ]
    shared = _cpu_s(pods, nodes=nodes)
    alone = _cpu_s([pod.spelled_out for pod in pods], nodes=nodes)
    note = f"CPU time; {alone / shared:.1f} times as fast as with nothing shared"
    return [(f"{nodes:,} nodes, a DaemonSet's pod on each", (nodes / shared, note), 0)]


def _cpu_s(pods: Sequence[Shape], *, nodes: int) -> float:
    kernel = kernel_on(cluster(nodes))
    began = time.process_time()
    placed = [kernel.place(pod, 1, seed=i).rows for i, pod in enumerate(pods)]
    taken = time.process_time() - began
    assert len({row for rows in placed for row in rows}) == len(pods), "a pod found no node"
    return taken
