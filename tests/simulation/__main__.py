"""Many simulated runs: ``python -m tests.simulation --runs 1000``; exit code 1 if one fails.

A failing seed is shown with ``--story SEED``: everything that happened in its run, to the end.
``--replay`` plays each seed a second time, in another process with another seed for the hashes of
strings, and compares the traces (reliability R18).
"""

from __future__ import annotations

import argparse
import functools
import gc
import logging
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from tests.simulation.brief import EVENTS, FAULTS, Brief
from tests.simulation.bulky import Bulky
from tests.simulation.cluster import SHORT, Simulation, Violation
from tests.simulation.gangs import HALF_JOBS, GangRaces
from tests.simulation.jobs import JobsRun
from tests.simulation.preempting_gangs import PreemptingGangs
from tests.simulation.quota import QuotaRun
from tests.simulation.standbys import OTHERS, Standbys, with_other
from tests.simulation.starving import BIG_GANG, BIG_POD, Starving

PROGRESS_S = 5.0
TIDY_RUNS = 5
"""What runs leave behind is collected after so many: looking for garbage at any moment, as the
interpreter does by itself, takes a sixth of the time."""
HISTORY_RUNS = 5
"""The history of one run of so many is kept and held against all rules, for a tenth more time."""
SCENARIOS: dict[str, Callable[[int], Simulation]] = {
    "brief": Brief,
    "faults": Simulation,
    "bulky": Bulky,
    "short": lambda seed: Simulation(seed, SHORT),
    "gangs": GangRaces,
    "preempting-gangs": PreemptingGangs,
    "quota": QuotaRun,
    "jobs": JobsRun,
    "half-jobs": lambda seed: GangRaces(seed, HALF_JOBS),
    "standbys": Standbys,
    **{name: functools.partial(with_other, name) for name in OTHERS},
    "starving-pod": lambda seed: Starving(seed, BIG_POD),
    "starving-gang": lambda seed: Starving(seed, BIG_GANG),
}


def story(make: Callable[[int], Simulation], seed: int) -> int:
    """Tell one run."""
    run = make(seed)
    run.record()
    problem: Violation | None = None
    try:
        run.run()
    except Violation as violation:
        problem = violation
    print("\n".join(run.world.story()))
    if problem is not None:
        print(problem)
    return 0 if problem is None else 1


def played(make: Callable[[int], Simulation], seeds: Iterable[int]) -> Iterator[Simulation]:
    """Run after run; a violation stays with its run as :attr:`Simulation.problem`."""
    gc.disable()
    try:
        for number, seed in enumerate(seeds, 1):
            run = make(seed)
            if seed % HISTORY_RUNS == 0:
                run.record()
            try:
                run.run()
            except Violation as violation:
                run.problem = str(violation)
            yield run
            if number % TIDY_RUNS == 0:
                del run
                gc.collect()
                if number == TIDY_RUNS:
                    gc.freeze()  # modules stay
    finally:
        gc.enable()


def many(make: Callable[[int], Simulation], seeds: range) -> int:
    """Run seeds in turn; print progress, then the sums."""
    sums: Counter[str] = Counter()
    began, told, cpu = time.monotonic(), time.monotonic(), time.process_time()

    def figures() -> str:
        runs, cpu_s = sums["runs"], time.process_time() - cpu
        return (
            f"{runs} runs from seed {seeds[0]}: {sums['failed']} failed; "
            f"{sums['events'] / runs:.0f} events and {sums['faults'] / runs:.1f} faults a run, "
            f"{sums['counted']} with at least {EVENTS} and {FAULTS}; "
            f"{runs / cpu_s:.1f} runs a second of CPU ({time.monotonic() - began:.0f} s)"
        )

    for run in played(make, seeds):
        if run.problem:
            print(run.problem, flush=True)
        if run.said:
            print(f"seed {run.world.seed}: {run.said}", flush=True)
        sums.update(runs=1, events=run.world.events, faults=run.world.faults)
        sums["failed"] += bool(run.problem)
        sums["counted"] += run.world.events >= EVENTS and run.world.faults >= FAULTS
        if time.monotonic() - told > PROGRESS_S:
            told = time.monotonic()
            print(figures(), file=sys.stderr, flush=True)
    print(figures())
    return 1 if sums["failed"] else 0


def traces(make: Callable[[int], Simulation], seeds: range) -> Iterator[str]:
    """A line a seed: its trace, and how it ended."""
    for run in played(make, seeds):
        yield f"{run.world.seed} {run.world.trace} {run.problem or 'holds'}"


def replay(make: Callable[[int], Simulation], seeds: range, scenario: str) -> int:
    """Each seed here and in another process; print how many were the same run."""
    command = [sys.executable, "-m", "tests.simulation", "--traces", "--scenario", scenario,
               "--first", str(seeds[0]), "--runs", str(len(seeds))]  # fmt: skip
    other_hashes = str(int(os.environ.get("PYTHONHASHSEED", "0").replace("random", "0")) + 4711)
    environment = {**os.environ, "PYTHONHASHSEED": other_hashes}
    same, told = 0, time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as other:
        assert other.stdout is not None
        for number, (here, there) in enumerate(zip(traces(make, seeds), other.stdout, strict=True)):
            if here == there.rstrip("\n"):
                same += 1
            else:
                print(f"differs: {here} | {there}", end="", flush=True)
            if time.monotonic() - told > PROGRESS_S:
                told = time.monotonic()
                print(f"{same} of {number + 1} the same", file=sys.stderr, flush=True)
    print(f"{same} of {len(seeds)} seeds from {seeds[0]} were the same run twice, to every byte")
    return 0 if same == len(seeds) else 1


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--runs", type=int, default=100, help="how many runs (default 100)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first (default 0)")
    parser.add_argument("--story", type=int, metavar="SEED", help="tell one run instead")
    parser.add_argument("--replay", action="store_true", help="play each seed twice and compare")
    parser.add_argument("--traces", action="store_true", help="print the trace of each run instead")
    parser.add_argument(
        "--scenario", choices=SCENARIOS, default="faults", help="what happens (default faults)"
    )
    arguments = parser.parse_args()
    make = SCENARIOS[arguments.scenario]
    seeds = range(arguments.first, arguments.first + arguments.runs)
    logging.disable(logging.CRITICAL)
    if arguments.story is not None:
        return story(make, arguments.story)
    if arguments.traces:
        for line in traces(make, seeds):
            print(line, flush=True)
        return 0
    if arguments.replay:
        return replay(make, seeds, arguments.scenario)
    return many(make, seeds)


if __name__ == "__main__":
    raise SystemExit(main())
