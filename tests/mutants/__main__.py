"""Make faults in a copy of the tree and see which test notices each of them.

``make mutants`` makes those of the table by hand, ``make mutants MACHINE=200 SEED=1`` so many that
a machine chooses in the brain modules and in the ledger's script. Against the latter it runs the
tests that take the changed line, if ``make coverage`` was run before; else those of its folder.
Exit code 1 if a fault of the table survives, or too many of the machine's do.
"""

from __future__ import annotations

import argparse
import functools
import random
import sys
from collections.abc import Sequence

from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.machine import MachineMutant, sample
from tests.mutants.reached import measured
from tests.mutants.runner import Fault, run
from tests.mutants.table import MUTANTS

BAR = 0.9
"""Part of the machine's mutants that has to be noticed (reliability R19)."""


def told(fault: Fault, test: str, took_s: float) -> None:
    """One line a fault, as it is known."""
    sys.stdout.write(f"{fault.name:52} {took_s:5.1f} s  {test or 'SURVIVED'}\n")
    sys.stdout.flush()


def by_hand(name: str, *, jobs: int) -> bool:
    """Those of the table whose name contains ``name``; whether all are noticed."""
    chosen = [m for m in MUTANTS if name in m.name]
    found = run(chosen, jobs=jobs, told=told, rounds=lambda mutant, _: [mutant.tests])
    killed = sum(map(bool, found.values()))
    sys.stdout.write(f"{killed} of {len(chosen)} mutants killed\n")
    return killed == len(chosen)


def by_machine(chosen: Sequence[MachineMutant], *, jobs: int) -> bool:
    """Those of the machine; whether enough are noticed. Equivalent ones do not count."""
    real = [m for m in chosen if m.key not in EQUIVALENT]
    reached = functools.cache(measured)
    found = run(
        real, jobs=jobs, told=told, rounds=lambda mutant, tests: reached(tests).rounds(mutant)
    )
    killed = sum(map(bool, found.values()))
    sys.stdout.write(
        f"{killed} of {len(real)} mutants killed ({100 * killed / max(1, len(real)):.1f} %); "
        f"{len(chosen) - len(real)} equivalent ones left out\n"
    )
    return killed >= BAR * len(real)


def main() -> int:
    """Try all of the table, those whose name contains the argument, or the machine's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?", default="", help="part of a mutant's name, or file")
    parser.add_argument("--machine", type=int, default=0, help="so many, chosen at random")
    parser.add_argument("--seed", type=int, default=None, help="of the choice")
    parser.add_argument("--jobs", type=int, default=1, help="at a time")
    parser.add_argument("--list", action="store_true", help="print the machine's choice only")
    options = parser.parse_args()
    if not options.machine:
        return 0 if by_hand(options.name, jobs=options.jobs) else 1
    seed = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    chosen = sample(options.machine, seed=seed, only=options.name)
    sys.stdout.write(f"{len(chosen)} mutants, seed {seed}\n")
    if options.list:
        for mutant in chosen:
            sys.stdout.write(f"{mutant.name}\n")
        return 0
    return 0 if by_machine(chosen, jobs=options.jobs) else 1


if __name__ == "__main__":
    raise SystemExit(main())
