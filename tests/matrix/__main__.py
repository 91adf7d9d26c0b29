"""``python -m tests.matrix --rows "1 4 35" --seeds 20``: the fault matrix on real processes.

Exit code 1 if a run fails, 3 if none does and some are inconclusive.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

import tests.matrix.rows
from tests.matrix.jobs import played_by_jobs
from tests.matrix.row import ROWS, Played, Result

assert tests.matrix.rows.__doc__


def table(found: list[Played]) -> str:
    """A line a row."""
    lines = [f"{'row':>3}  {'passed':>6} {'failed':>6} {'incon.':>6}  {'longest':>7}  fault"]
    for number in sorted({played.number for played in found}):
        runs = [played for played in found if played.number == number]
        counts = Counter(played.result for played in runs)
        if counts[Result.NOT_BUILT]:
            lines.append(f"{number:3}  {'not built':>20}  {'':7}  {ROWS[number].fault}")
            continue
        three = [counts[r] for r in (Result.PASSED, Result.FAILED, Result.INCONCLUSIVE)]
        longest = max(played.took_s for played in runs)
        lines.append(
            f"{number:3}  {three[0]:6} {three[1]:6} {three[2]:6}  {longest:5.1f} s  "
            f"{ROWS[number].fault}"
        )
    sums = Counter(played.result for played in found)
    lines.append(", ".join(f"{count} {result}" for result, count in sorted(sums.items())))
    return "\n".join(lines)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--rows", default="", help="numbers with blanks between (default: all)")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each row (default 1)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (default 1)")
    parser.add_argument("--jobs", type=int, default=1, help="fields at once, each a process's")
    parser.add_argument("--keep", action="store_true", help="keep the files of runs that fail")
    parser.add_argument("--verbose", action="store_true", help="stack traces of what fails")
    options = parser.parse_args()
    rows = [int(word) for word in options.rows.split()] or sorted(ROWS)
    if unknown := [number for number in rows if number not in ROWS]:
        parser.error(f"no such rows: {unknown}")
    found: list[Played] = []
    began = time.monotonic()
    try:
        for played in played_by_jobs(
            rows,
            seeds=range(options.first, options.first + options.seeds),
            jobs=options.jobs,
            keep=options.keep,
            verbose=options.verbose,
        ):
            found += played
    finally:
        sys.stdout.write(f"\n{table(found)}\nin {time.monotonic() - began:.0f} s\n")
    results = {played.result for played in found}
    return 1 if Result.FAILED in results else 3 if Result.INCONCLUSIVE in results else 0


if __name__ == "__main__":
    raise SystemExit(main())
