"""Pod traces: one reader a format; the format is told by the header line.

Formats that name a gang (Philly, Pollux) become as many pods of one GPU as the job has members.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from stretto.model.quantity import QuantityError, base_value, milli_value
from stretto.workload.manifests import label_value
from stretto.workload.records import GIB, GPU, GPU_MILLI, MIB, PodRecord
from stretto.workload.table import Row, Table, TraceError

MAX_GANG = 4096
CPU_PER_GPU_MILLI = 4000
MEMORY_PER_GPU = 16 * GIB
"""Traces of GPU jobs name neither cpu nor memory; every GPU of theirs gets this much."""


class PodFormat(NamedTuple):
    """A format: the columns that tell it, and its reader of one line."""

    columns: tuple[str, ...]
    read: Callable[[Row], list[PodRecord]]


def read_openb(row: Row) -> list[PodRecord]:
    """Alibaba openb 2023: cpu in milli, memory in MiB, GPUs in thousandths.

    ``gpu_spec`` names the GPU models that will do, as ``V100M16|V100M32``. A pod runs from its
    scheduled time (or, if it was pending, its creation) to its deletion.
    """
    gpus = row.whole("num_gpu")
    share = row.whole("gpu_milli", default=0)
    if gpus > 1024 or (gpus and not 1 <= share <= 1000):
        raise row.error(f"column gpu_milli: {share} with num_gpu {gpus}; 1..1000 is possible")
    created = row.number("creation_time", default=0.0)
    deleted = row.number("deletion_time", default=0.0)
    spec = row.text("gpu_spec", default="")
    started = row.number("scheduled_time", default=created)
    if deleted and deleted < created:
        raise row.error(f"deletion_time {deleted:g} is before creation_time {created:g}")
    return [
        PodRecord(
            name=row.text("name"),
            cpu_milli=row.whole("cpu_milli"),
            memory=row.whole("memory_mib") * MIB,
            extra={GPU_MILLI: gpus * share} if gpus else {},
            created_s=created,
            ends_s=created + max(deleted - started, 0.0) if deleted else None,
            labels={"stretto.io/qos": label_value(row.text("qos", default="none"))},
            models=tuple(filter(None, map(label_value, spec.split("|")))),
        )
    ]


def read_philly(row: Row) -> list[PodRecord]:
    """Microsoft Philly 2017: a job of ``num_gpus`` one-GPU members."""
    stamp = row.text("timestamp")
    try:
        time = datetime.datetime.fromisoformat(stamp).replace(tzinfo=datetime.UTC)
    except ValueError:
        raise row.error(f"column timestamp: {stamp[:40]!r} is no date and time") from None
    duration = row.number("duration")
    return _gang(row, "num_gpus", created=time.timestamp(), duration=duration, job=stamp)


def read_pollux(row: Row) -> list[PodRecord]:
    """Pollux workloads: a job of ``num_replicas`` members, without an end."""
    job = row.text("name")
    return _gang(row, "num_replicas", created=row.number("time"), duration=None, job=job)


def _gang(
    row: Row, column: str, *, created: float, duration: float | None, job: str
) -> list[PodRecord]:
    members = row.whole(column)
    if not 1 <= members <= MAX_GANG:
        raise row.error(f"column {column}: {members} members; 1..{MAX_GANG} are possible")
    return [
        PodRecord(
            name=f"{job}-{i}",
            cpu_milli=CPU_PER_GPU_MILLI,
            memory=MEMORY_PER_GPU,
            extra={GPU: 1},
            created_s=created,
            ends_s=None if duration is None else created + duration,
            labels={"stretto.io/gang": label_value(job)},
        )
        for i in range(members)
    ]


def read_dlrm(row: Row) -> list[PodRecord]:
    """Alibaba DLRM 2025: cpu in cores, memory and disk in GiB, RDMA in hundredths of a card."""
    created = row.number("creation_time", default=0.0)
    deleted = row.number("deletion_time", default=0.0)
    return [
        PodRecord(
            name=row.text("instance_sn"),
            cpu_milli=round(row.number("cpu_request") * 1000),
            memory=round(row.number("memory_request") * GIB),
            extra={
                GPU: row.whole("gpu_request", default=0),
                "stretto.io/rdma-percent": row.whole("rdma_request", default=0),
            },
            created_s=created,
            ends_s=deleted if deleted > created else None,
            labels={"app": label_value(row.text("app_name"))},
        )
    ]


def read_generic(row: Row) -> list[PodRecord]:
    """Our own: ``name,cpu,memory`` as quantities, and ``at_s``, ``lifetime_s``, ``gpu``,
    ``gpu_milli`` and ``replicas`` if there are such columns.
    """
    created = row.number("at_s", default=0.0)
    lifetime = row.number("lifetime_s", default=0.0)
    replicas = row.whole("replicas", default=1)
    if not 1 <= replicas <= 1_000_000:
        raise row.error(f"column replicas: {replicas}; 1..1000000 are possible")
    try:
        cpu, memory = milli_value(row.text("cpu")), base_value(row.text("memory"))
    except QuantityError as error:
        raise row.error(str(error)) from None
    extra = {GPU: row.whole("gpu", default=0), GPU_MILLI: row.whole("gpu_milli", default=0)}
    name = row.text("name")
    return [
        PodRecord(
            name=name if replicas == 1 else f"{name}-{i}",
            cpu_milli=cpu,
            memory=memory,
            extra={key: amount for key, amount in extra.items() if amount},
            created_s=created,
            ends_s=created + lifetime if lifetime else None,
        )
        for i in range(replicas)
    ]


FORMATS = {
    "openb": PodFormat(("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"), read_openb),
    "philly": PodFormat(("timestamp", "duration", "num_gpus"), read_philly),
    "pollux": PodFormat(("name", "time", "num_replicas"), read_pollux),
    "dlrm": PodFormat(("instance_sn", "cpu_request", "memory_request", "app_name"), read_dlrm),
    "csv": PodFormat(("name", "cpu", "memory"), read_generic),
}


def read_pods(path: Path, *, format_name: str = "auto") -> list[PodRecord]:
    """All pods of a trace, by creation time; names are made unique.

    Raises:
        TraceError: the format is not known, or a line cannot be read; names file and line.
    """
    table = Table(path)
    chosen = _format(table, format_name)
    table.require(*chosen.columns)
    records = [record for row in table.rows() for record in chosen.read(row)]
    if not records:
        raise TraceError(f"{path}: no pods in it")
    return sorted(records, key=lambda record: record.created_s)


def _format(table: Table, name: str) -> PodFormat:
    if name != "auto":
        if name not in FORMATS:
            known = ", ".join(sorted(FORMATS))
            raise TraceError(f"trace format {name!r} is not known; known: {known}")
        return FORMATS[name]
    for chosen in FORMATS.values():
        if all(column in table.columns for column in chosen.columns):
            return chosen
    known = "; ".join(f"{key}: {','.join(f.columns)}" for key, f in FORMATS.items())
    raise TraceError(f"{table.path}:1: the header fits no known format ({known})")
