"""Decisions of one shard beside kube-scheduler's own code here, and beside its published floors.

``python -m bench upstream`` loads the clusters of kube-scheduler's benchmarks into both and decides
the same pods one after the other. Ours: CPU time of placing one pod, and of finding victims where
none fits. Theirs: wall and CPU time of the snapshot, schedulePod and PostFilter, as the scheduling
loop runs them (sampling included; up to 16 goroutines, and the garbage collector in the CPU time).
Floors are end to end, another machine's, and have a column of their own.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from bench.upstream_worlds import SCENARIOS, Object
from stretto.cli.golden_answers import World
from stretto.cli.golden_world import WorldState
from stretto.placement.prepare import prepare
from tests.golden.oracle_program import asked, build, can_build, how_to_get

FLOORS = Path(__file__).parent / "scheduler_perf.csv"


class Theirs(msgspec.Struct):
    """The oracle's answer; nanoseconds."""

    wall: int
    cpu: int
    pods: int
    placed: int
    error: str = ""


def floors() -> dict[str, int]:
    """Published pods per second by scenario."""
    lines = [line for line in FLOORS.read_text().splitlines() if not line.startswith("#")]
    rows = csv.DictReader(lines)
    return {r["scenario"]: int(r["floor_pods_per_s"]) for r in rows if r["floor_pods_per_s"]}


def ours(made: Object) -> tuple[float, float, int]:
    """(CPU seconds a decision, the same for the first one, pods placed)."""
    world = msgspec.json.decode(msgspec.json.encode(made), type=World)
    state = WorldState(world)
    kernel, spent, first, placed = state.kernel, 0.0, 0.0, 0
    prepare(state.snapshot)  # as a shard does when its picture of the cluster is complete
    for number, name in enumerate(world.pending):
        shape = state.shape(name)
        assert shape.digest
        began = time.process_time()
        rows = kernel.place(shape, 1, seed=number).rows
        if not rows:
            kernel.diagnose(shape)
            kernel.post_filter(shape, seed=number)
        used = time.process_time() - began
        spent += used
        first = first or used
        if rows:
            placed += 1
    return spent / len(world.pending), first, placed


def theirs(made: Object) -> Theirs:
    """kube-scheduler's own code on the same world."""
    with asked("-time") as ask:
        return msgspec.json.decode(ask(msgspec.json.encode(made) + b"\n"), type=Theirs)


def run(arguments: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="bench upstream", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000, help="nodes (a tenth for devices)")
    parser.add_argument("--pods", type=int, default=200, help="decisions of each scenario")
    parser.add_argument("--only", action="append", choices=list(SCENARIOS), help="repeatable")
    options = parser.parse_args(arguments)
    if not can_build():
        print(f"upstream: {how_to_get()}", file=sys.stderr)
        return 2
    try:
        build()
    except subprocess.CalledProcessError as error:
        print(f"upstream: building the oracle failed: {error}", file=sys.stderr)
        return 2
    published = floors()
    each = f"{options.pods} pods one after the other"
    print(f"{options.nodes:,} nodes, {each}, {os.cpu_count()} CPUs")
    print(
        f"{'scenario':<20} {'ours us':>9} {'first':>9} {'theirs us':>10} {'their CPU':>10} "
        f"{'ratio':>7} {'by CPU':>7} {'ours/s':>9} {'floor/s':>8} {'x floor':>8}  placed"
    )
    for name in options.only or SCENARIOS:
        made = SCENARIOS[name](options.nodes, options.pods)
        mine, first, placed = ours(made)
        other = theirs(made)
        if other.error:
            print(f"{name:<20} the oracle: {other.error}")
            continue
        floor = published.get(name)
        wall, cpu = other.wall / other.pods / 1e3, other.cpu / other.pods / 1e3
        print(
            f"{name:<20} {mine * 1e6:>9.1f} {first * 1e6:>9.0f} {wall:>10.0f} {cpu:>10.0f} "
            f"{wall / mine / 1e6:>7.1f} {cpu / mine / 1e6:>7.1f} {1 / mine:>9,.0f} "
            f"{floor or '-':>8} {f'{1 / mine / floor:.1f}' if floor else '-':>8}  "
            f"{placed} / {other.placed}"
        )
    return 0
