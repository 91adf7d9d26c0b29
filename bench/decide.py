"""How fast one shard decides, in process: no network, no ledger, no API server.

``python -m bench decide`` prints a table: conditions, decisions per second, the goal, and what a
decision cost. Two cases bound the range. *One shape*: a burst of replicas, placed in batches of 64,
nodes filling up meanwhile. *All different*: every pod asks for other amounts, so each costs a pass
over all nodes. Then the Binder's re-check, and a shard's memory with bound pods that are all of
different shapes.
"""

from __future__ import annotations

import argparse
import random
import resource
import time
from collections.abc import Callable

from bench import decide_daemons, decide_devices, decide_preemption, decide_volumes, neighbours
from bench.decide_world import GIB, cluster, kernel_on, shape
from stretto.snapshot.delta import Delta


def one_shape(nodes: int, pods: int) -> tuple[float, str]:
    """Decisions per second for one shape in batches of 64 with two spares each."""
    snapshot = cluster(nodes)
    kernel = kernel_on(snapshot)
    wanted = shape(500, GIB)
    kernel.place(wanted, 64, seed=0)

    def run() -> int:
        return sum(
            len(kernel.place(wanted, 64, seed=seed, spares=2).rows) for seed in range(pods // 64)
        )

    rate = _rate(run)
    return rate, f"builds {kernel.statistics()['builds']}"


def all_different(nodes: int, pods: int) -> tuple[float, str]:
    """Decisions per second when no two pods are alike."""
    snapshot = cluster(nodes)
    kernel = kernel_on(snapshot)
    rng = random.Random(1)
    shapes = [shape(rng.randint(50, 4000), rng.randint(GIB // 8, 4 * GIB)) for _ in range(pods)]
    for wanted in shapes:
        assert wanted.digest

    def run() -> int:
        return sum(
            len(kernel.place(wanted, 1, seed=seed, spares=2).rows)
            for seed, wanted in enumerate(shapes)
        )

    rate = _rate(run)
    return rate, f"evictions {kernel.statistics()['evictions']}"


def mixed(nodes: int, pods: int, *, kinds: int = 20) -> tuple[float, str]:
    """Decisions per second for 20 shapes in turns, batches of 8."""
    snapshot = cluster(nodes)
    kernel = kernel_on(snapshot)
    shapes = [shape(100 + 50 * i, (i + 1) * GIB // 4) for i in range(kinds)]
    for wanted in shapes:
        kernel.place(wanted, 1, seed=0)

    def run() -> int:
        return sum(
            len(kernel.place(shapes[i % kinds], 8, seed=i, spares=2).rows) for i in range(pods // 8)
        )

    rate = _rate(run)
    return rate, f"rows refreshed {kernel.statistics()['rows_refreshed']}"


def recheck(nodes: int, pods: int) -> tuple[float, str]:
    """The Binder's checks per second, ordinary pods of 20 shapes."""
    snapshot = cluster(nodes)
    kernel = kernel_on(snapshot)
    shapes = [shape(100 + 50 * i, (i + 1) * GIB // 4) for i in range(20)]
    pairs = [(shapes[i % 20], i * 7 % nodes) for i in range(pods)]

    def run() -> int:
        return len([kernel.check_one(s, row) for s, row in pairs])

    return _rate(run), ""


def memory(nodes: int, pods: int) -> str:
    """Peak resident size with bound pods of all different shapes, MiB."""
    snapshot = cluster(nodes)
    rng = random.Random(2)
    for start in range(0, pods, 1000):
        delta = Delta(epoch=1, sequence=2 + start)
        for number in range(start, min(start + 1000, pods)):
            amounts = rng.randint(10, 400), rng.randint(GIB // 64, GIB // 8)
            delta.shapes.append((number + 1, shape(*amounts)))
            delta.add_pod(shape_id=number + 1, node_id=number % nodes + 1, uid=str(number))
        snapshot.apply(delta)
    kernel = kernel_on(snapshot)
    for number in range(600):
        kernel.place(shape(200 + number, GIB), 1, seed=number)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return f"{peak:.0f} MiB peak, whole process ({pods:,} bound pods, all of different shapes)"


def _rate(run: Callable[[], int]) -> float:
    start = time.perf_counter()
    done = run()
    return done / (time.perf_counter() - start)


def run(arguments: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="bench decide", description=__doc__)
    parser.add_argument("--pods", type=int, default=20_000, help="decisions of each case")
    parser.add_argument("--no-memory", action="store_true", help="leave the memory case out")
    options = parser.parse_args(arguments)
    pods: int = options.pods
    rows: list[tuple[str, tuple[float, str], int]] = [
        ("5,000 nodes, one shape, batches of 64", one_shape(5_000, pods * 4), 30_000),
        ("10,000 nodes, one shape, batches of 64", one_shape(10_000, pods * 4), 0),
        ("10,000 nodes, 20 shapes in turns, batches of 8", mixed(10_000, pods), 0),
        ("5,000 nodes, every pod its own shape", all_different(5_000, pods // 4), 0),
        ("10,000 nodes, every pod its own shape", all_different(10_000, pods // 4), 2_000),
        ("10,000 nodes, the Binder's re-check", recheck(10_000, pods * 4), 125_000),
    ]
    rows += decide_daemons.rows(nodes=5_000)
    rows += decide_volumes.rows(nodes=5_000, pods=pods // 10)
    rows += decide_devices.rows(nodes=5_000, pods=pods // 20)
    rows += decide_preemption.rows(nodes=5_000, pods=pods // 20)
    print(f"{'case':<48} {'per s':>9} {'us each':>8} {'goal':>8}  notes")
    for case, (rate, note), goal in rows:
        aim = f"{goal:,}" if goal else "-"
        print(f"{case:<48} {rate:>9,.0f} {1e6 / rate:>8.1f} {aim:>8}  {note}")
    neighbours.table()
    if not options.no_memory:
        print(f"{'10,000 nodes, memory of a shard (goal 300 MiB)':<48} {memory(10_000, 300_000)}")
    return 0
