"""The openb trace that comes with the package: 1,213 GPU nodes and 8,152 pods of 149 days.

A node's GPUs are one amount, thousandths of a GPU (``stretto.io/gpu-milli``): a pod with whole
GPUs asks for 1,000 each, a pod that shares one for its share. So a node may seem to have room for
a whole GPU that is in fact spread over two devices; placing device by device is not built yet, and
reports say so.

Nearly all pods of the trace come in its last twenty days. Compressed evenly, the replay would idle
for most of its time; cutting the long pauses (``max_gap_s``) keeps order and shape.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from stretto.workload.arrivals import Compression
from stretto.workload.manifests import label_value, node_manifest, pod_manifest
from stretto.workload.node_traces import read_nodes
from stretto.workload.records import NodeRecord, PodRecord, ScheduledPod
from stretto.workload.traces import read_pods

NAME = "openb"
MAX_GAP_S = 1800.0
"""Pauses of the demo's replay are cut to half an hour of trace time."""
NOTE = (
    "GPUs are thousandths summed per node (stretto.io/gpu-milli); device by device is not looked at"
)


def _data(name: str) -> Path:
    path = resources.files("stretto.workload").joinpath("data", "openb-gpu-2023", name)
    return Path(str(path))


@functools.cache
def node_records() -> list[NodeRecord]:
    """The GPU nodes."""
    return read_nodes(_data("openb_node_list_gpu_node.csv.gz"))


@functools.cache
def pod_records() -> list[PodRecord]:
    """The default pod list, by creation time."""
    return read_pods(_data("openb_pod_list_default.csv.gz"), format_name=NAME)


def openb_nodes(*, run: str = "") -> Iterator[dict[str, Any]]:
    """The nodes as Node objects."""
    return (node_manifest(node, run=run) for node in node_records())


def compression_of(
    records: list[PodRecord], *, span_s: float, max_gap_s: float = 0.0
) -> Compression:
    """How a trace's time maps to a replay's."""
    return Compression([r.created_s for r in records], span_s=span_s, max_gap_s=max_gap_s)


def openb_pods(
    *,
    run: str,
    namespace: str = "default",
    scheduler_name: str = "stretto",
    span_s: float = 60.0,
    max_gap_s: float = MAX_GAP_S,
    limit: int = 0,
) -> Iterator[ScheduledPod]:
    """The pods as a schedule whose last creation is at ``span_s``."""
    return replay(
        pod_records(),
        run=run,
        namespace=namespace,
        scheduler_name=scheduler_name,
        span_s=span_s,
        max_gap_s=max_gap_s,
        limit=limit,
    )


def replay(
    records: list[PodRecord],
    *,
    run: str,
    namespace: str,
    scheduler_name: str,
    span_s: float,
    max_gap_s: float = 0.0,
    limit: int = 0,
) -> Iterator[ScheduledPod]:
    """Any trace as a schedule: times and lifetimes compressed alike.

    A pod that ends after the trace's last creation is left running. Names get the pod's number in
    the trace, which makes them unique. ``limit``: only the first so many pods, 0 for all.
    """
    chosen = records[:limit] if limit else records
    compress = compression_of(chosen, span_s=span_s, max_gap_s=max_gap_s)
    for number, record in enumerate(chosen):
        at = compress(record.created_s)
        lifetime: float | None = None
        if record.ends_s is not None and record.ends_s < compress.end:
            lifetime = compress(record.ends_s) - at
        shape = "-".join(map(str, (record.cpu_milli, record.memory >> 20, *record.extra.values())))
        labelled = dataclasses.replace(
            record,
            name=f"{record.name}-{number}",
            labels={**record.labels, "stretto.io/shape": label_value(shape)},
        )
        manifest = pod_manifest(
            labelled,
            run=run,
            namespace=namespace,
            scheduler_name=scheduler_name,
            lifetime_s=lifetime,
        )
        yield ScheduledPod(at, lifetime, manifest)
