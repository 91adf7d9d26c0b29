"""Quota in many simulated minutes: ``python -m tests.quota --minutes 10000``; exit code 1 if a
queue overspends, a guarantee is not reached in time, or preemption does not come to rest.

Each tree is another one under another load: ten minutes in which pods come and end, then thirty
quiet ones. After twenty of them nobody may be evicted any more and every guarantee that pods ask
for must be met (of pods of one size, which fit wherever there is room).
"""

from __future__ import annotations

import argparse

from tests.quota.test_market import run

A_TREE = 320
"""Minutes."""
SIZES = ([1000], [500, 1000, 2500, 4000])


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m tests.quota", description=__doc__)
    parser.add_argument("--minutes", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=1_000, help="first seed")
    options = parser.parse_args()
    minutes = made = evicted = trees = 0
    while minutes < options.minutes:
        try:
            market = run(options.first + trees, minutes=A_TREE, sizes=SIZES[trees % 2])
        except AssertionError as error:
            print(f"seed {options.first + trees}: {error}")
            return 1
        trees += 1
        minutes += market.minute
        made += market.made
        evicted += len(market.evicted)
    print(
        f"{minutes:,} simulated minutes, {trees} trees, {made:,} pods, {evicted:,} evicted: 0 "
        "overspends, guarantees met within 20 minutes of quiet, 0 evictions after that"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
