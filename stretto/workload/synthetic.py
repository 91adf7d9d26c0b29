"""Pods and nodes made up: shapes of plausible sizes, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator

from stretto.workload.records import GIB, MIB, NodeRecord, PodRecord

CPU_MILLI = (50, 100, 250, 500, 1000, 2000)
MEMORY_MIB = (64, 128, 256, 512, 1024, 2048)
ZONES = 3
NODE_CPU_MILLI = 32_000
NODE_MEMORY = 128 * GIB


def shapes(count: int) -> list[tuple[int, int]]:
    """(cpu milli, memory bytes) of so many different shapes, small ones first.

    The first 36 are the products of the sizes above; beyond that amounts grow by odd steps, so
    that all are different.
    """
    found = [(cpu, memory * MIB) for memory in MEMORY_MIB for cpu in CPU_MILLI]
    found.sort(key=lambda shape: (shape[0] * 2 + shape[1] // MIB, shape))
    for i in range(len(found), count):
        cpu, memory = found[i % 36]
        found.append((cpu + i // 36, memory + (i // 36) * MIB))
    return found[:count]


def pods(count: int, *, shape_count: int, replicas: int) -> Iterator[PodRecord]:
    """``replicas`` pods of a shape in a row, then the next shape, round and round."""
    kinds = shapes(shape_count)
    for i in range(count):
        number = i // replicas % len(kinds)
        cpu, memory = kinds[number]
        yield PodRecord(
            name=f"s{number}-{i}",
            cpu_milli=cpu,
            memory=memory,
            labels={"stretto.io/shape": f"s{number}"},
        )


def nodes(count: int) -> Iterator[NodeRecord]:
    """Equal nodes in three zones: 32 cores, 128 GiB, 110 pods."""
    for i in range(count):
        yield NodeRecord(
            name=f"node-{i:05d}",
            cpu_milli=NODE_CPU_MILLI,
            memory=NODE_MEMORY,
            labels={"topology.kubernetes.io/zone": f"zone-{i % ZONES}"},
        )


def lifetimes(mean_s: float, *, seed: int) -> Iterator[float | None]:
    """Exponential lifetimes without end; None for ever if the mean is 0."""
    rng = random.Random(seed)
    while True:
        yield rng.expovariate(1 / mean_s) if mean_s else None
