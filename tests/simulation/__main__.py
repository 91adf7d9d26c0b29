"""Many simulated runs: ``python -m tests.simulation --runs 1000``; exit code 1 if one fails.

A failing seed is shown with ``--story SEED``: everything that happened in its run, to the end.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable

from tests.simulation.cluster import SHORT, Simulation, Violation
from tests.simulation.gangs import HALF_JOBS, GangRaces
from tests.simulation.preempting_gangs import PreemptingGangs
from tests.simulation.quota import QuotaRun
from tests.simulation.starving import BIG_GANG, BIG_POD, Starving

PROGRESS_S = 5.0
ENOUGH_EVENTS, ENOUGH_FAULTS = 200, 3
"""Of a run that counts (reliability R1)."""
SCENARIOS: dict[str, Callable[[int], Simulation]] = {
    "faults": Simulation,
    "short": lambda seed: Simulation(seed, SHORT),
    "gangs": GangRaces,
    "preempting-gangs": PreemptingGangs,
    "quota": QuotaRun,
    "half-jobs": lambda seed: GangRaces(seed, HALF_JOBS),
    "starving-pod": lambda seed: Starving(seed, BIG_POD),
    "starving-gang": lambda seed: Starving(seed, BIG_GANG),
}


def story(make: Callable[[int], Simulation], seed: int) -> int:
    """Tell one run."""
    run = make(seed)
    try:
        run.run()
    except Violation as violation:
        print("\n".join(run.world.story))
        print(violation)
        return 1
    print("\n".join(run.world.story))
    return 0


def many(make: Callable[[int], Simulation], *, first: int, runs: int) -> int:
    """Run seeds in turn; print progress, then the sums."""
    sums: Counter[str] = Counter()
    bad: list[str] = []
    began, told = time.process_time(), time.monotonic()
    for seed in range(first, first + runs):
        run = make(seed)
        try:
            run.run()
        except Violation as violation:
            bad.append(str(violation))
            print(violation, flush=True)
        if run.said:
            print(f"seed {seed}: {run.said}", flush=True)
        sums.update(runs=1, events=run.world.events, faults=run.world.faults)
        counts = run.world.events >= ENOUGH_EVENTS and run.world.faults >= ENOUGH_FAULTS
        sums["counted"] += counts
        if time.monotonic() - told > PROGRESS_S:
            told = time.monotonic()
            print(f"{sums['runs']} of {runs} runs, {len(bad)} failed", file=sys.stderr, flush=True)
    rate = runs / (time.process_time() - began)
    print(
        f"{runs} runs from seed {first}: {len(bad)} failed; {sums['events'] / runs:.0f} events and "
        f"{sums['faults'] / runs:.1f} faults a run, {sums['counted']} with at least "
        f"{ENOUGH_EVENTS} and {ENOUGH_FAULTS}; {rate:.1f} runs a second of CPU"
    )
    return 1 if bad else 0


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--runs", type=int, default=100, help="how many runs (default 100)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first (default 0)")
    parser.add_argument("--story", type=int, metavar="SEED", help="tell one run instead")
    parser.add_argument(
        "--scenario", choices=SCENARIOS, default="faults", help="what happens (default faults)"
    )
    arguments = parser.parse_args()
    make = SCENARIOS[arguments.scenario]
    logging.disable(logging.CRITICAL)
    if arguments.story is not None:
        return story(make, arguments.story)
    return many(make, first=arguments.first, runs=arguments.runs)


if __name__ == "__main__":
    raise SystemExit(main())
