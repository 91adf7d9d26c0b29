"""Node lists of real clusters: one reader a format, told by the header line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from stretto.model.quantity import QuantityError, base_value, milli_value
from stretto.workload.manifests import label_value
from stretto.workload.records import GIB, GPU, GPU_MILLI, MIB, MODEL_LABEL, NodeRecord
from stretto.workload.table import Row, Table, TraceError

MEMORY_PER_CPU = 4 * GIB
"""For lists without a memory column."""


class NodeFormat(NamedTuple):
    """A format: the columns that tell it, and its reader of one line."""

    columns: tuple[str, ...]
    read: Callable[[Row], NodeRecord]


def _model(text: str) -> dict[str, str]:
    value = label_value(text)
    return {MODEL_LABEL: value} if value else {}


def read_openb(row: Row) -> NodeRecord:
    """Alibaba openb 2023: GPUs become thousandths, one sum a node."""
    return NodeRecord(
        name=row.text("sn"),
        cpu_milli=row.whole("cpu_milli"),
        memory=row.whole("memory_mib") * MIB,
        extra={GPU_MILLI: row.whole("gpu") * 1000},
        labels=_model(row.text("model", default="")),
    )


def read_pai(row: Row) -> NodeRecord:
    """Alibaba PAI 2020: cores, GB, whole GPUs."""
    return NodeRecord(
        name=row.text("machine"),
        cpu_milli=round(row.number("cap_cpu") * 1000),
        memory=round(row.number("cap_mem") * GIB),
        extra={GPU: row.whole("cap_gpu")},
        labels=_model(row.text("gpu_type")),
    )


def read_spot(row: Row) -> NodeRecord:
    """Alibaba spot fleet 2026: no memory column, so 4 GiB a vCPU."""
    cpus = row.number("cpu_num")
    return NodeRecord(
        name=f"node-{row.text('node_name')}",
        cpu_milli=round(cpus * 1000),
        memory=round(cpus * MEMORY_PER_CPU),
        extra={GPU: row.whole("gpu_capacity_num")},
        labels=_model(row.text("gpu_model")),
    )


def read_v2018(row: Row) -> NodeRecord:
    """Alibaba 2018: two failure domains that are not nested; memory normalised, so 4 GiB a core."""
    cpus = row.number("cpu_num")
    return NodeRecord(
        name=row.text("machine_id"),
        cpu_milli=round(cpus * 1000),
        memory=round(cpus * MEMORY_PER_CPU),
        labels={
            "stretto.io/domain-1": label_value(row.text("failure_domain_1")),
            "stretto.io/domain-2": label_value(row.text("failure_domain_2")),
        },
    )


def read_generic(row: Row) -> NodeRecord:
    """Our own: ``name,cpu,memory`` as quantities, and ``pods``, ``gpu``, ``gpu_milli``, ``zone``
    if there are such columns.
    """
    try:
        cpu, memory = milli_value(row.text("cpu")), base_value(row.text("memory"))
    except QuantityError as error:
        raise row.error(str(error)) from None
    extra = {GPU: row.whole("gpu", default=0), GPU_MILLI: row.whole("gpu_milli", default=0)}
    zone = label_value(row.text("zone", default=""))
    return NodeRecord(
        name=row.text("name"),
        cpu_milli=cpu,
        memory=memory,
        extra={key: amount for key, amount in extra.items() if amount},
        labels={"topology.kubernetes.io/zone": zone} if zone else {},
        pods=row.whole("pods", default=110),
    )


FORMATS = {
    "openb": NodeFormat(("sn", "cpu_milli", "memory_mib", "gpu"), read_openb),
    "pai": NodeFormat(("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu"), read_pai),
    "spot": NodeFormat(("gpu_model", "gpu_capacity_num", "cpu_num", "node_name"), read_spot),
    "v2018": NodeFormat(
        ("machine_id", "failure_domain_1", "failure_domain_2", "cpu_num"), read_v2018
    ),
    "csv": NodeFormat(("name", "cpu", "memory"), read_generic),
}


def read_nodes(path: Path) -> list[NodeRecord]:
    """All nodes of a list, in its order.

    Raises:
        TraceError: the format is not known, or a line cannot be read; names file and line.
    """
    table = Table(path)
    for chosen in FORMATS.values():
        if all(column in table.columns for column in chosen.columns):
            nodes = [chosen.read(row) for row in table.rows()]
            if not nodes:
                raise TraceError(f"{path}: no nodes in it")
            return nodes
    known = "; ".join(f"{key}: {','.join(f.columns)}" for key, f in FORMATS.items())
    raise TraceError(f"{path}:1: the header fits no known node list ({known})")
