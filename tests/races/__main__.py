"""``python -m tests.races --rounds 10000``: at four shards one wins, the losers go elsewhere or
wait."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.races import devices, neighbours, volumes
from tests.races.arena import SHARDS


def charged(found: Counter[str]) -> str:
    """What the ledger by itself would have refused a second pod."""
    kinds = {name: n for name, n in found.items() if name not in ("rounds", "conflicts")}
    return "".join(f"{n} charges of kind {name} guarded, " for name, n in kinds.items())


def main() -> int:
    """Print what each race came to."""
    runs = {name: kind.run for kind in (neighbours, volumes, devices) for name in kind.RACES}
    parser = argparse.ArgumentParser(prog="races", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10_000, help="of each kind")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--kind", action="append", choices=sorted(runs), help="repeatable; all")
    settings = parser.parse_args()
    for name in settings.kind or runs:
        began = time.process_time()
        found = runs[name](name, rounds=settings.rounds, seed=settings.seed)
        took_s = time.process_time() - began
        sys.stdout.write(
            f"{name}: {found['rounds']} rounds at {SHARDS} shards, won by those who may, "
            f"{found['conflicts']} conflicts, {charged(found)}"
            f"seed {settings.seed}, {took_s:.1f} s of CPU\n"
        )
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
