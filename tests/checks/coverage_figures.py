"""``make coverage``: which branches of the code the tests have taken, of the core and of the whole.

The core are the brain modules (``house_rules.BRAINS``), where every decision is made without I/O.
Runs the tests under coverage.py, by default those that need neither all roles nor a kube-apiserver,
in every process they start; exit code 1 if a bar is missed. ``--report`` prints the figures of
the last run again. ``make mutants`` takes from its data which tests come by a line.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
from typing import NamedTuple

from tests.checks.house_rules import BRAINS

FOLDER = pathlib.Path("out/coverage")
CORE_BAR, WHOLE_BAR = 95.0, 85.0
"""In per cent of all branches; reliability R20."""
WORST = 15
COVERAGE = [sys.executable, "-m", "coverage"]


class Taken(NamedTuple):
    """Branches of some files."""

    branches: int
    taken: int

    @property
    def percent(self) -> float:
        """100 if there is none to take."""
        return 100.0 * self.taken / self.branches if self.branches else 100.0

    def __add__(self, other: tuple[int, ...]) -> Taken:  # type: ignore[override]
        """Both together."""
        return Taken(self.branches + other[0], self.taken + other[1])


def is_core(path: str) -> bool:
    """Whether a file is a brain module."""
    file = pathlib.PurePosixPath(path)
    return file.stem in BRAINS.get(file.parent.as_posix(), set())


def of_report(report: dict) -> dict[str, Taken]:
    """By file, from coverage.py's JSON."""
    return {
        path: Taken(file["summary"]["num_branches"], file["summary"]["covered_branches"])
        for path, file in report["files"].items()
    }


def measure(arguments: list[str]) -> int:
    """Run the tests; pytest's exit code."""
    for old in FOLDER.glob("data*"):
        old.unlink()
    FOLDER.mkdir(parents=True, exist_ok=True)
    command = [
        *COVERAGE, "run", "-m", "pytest", "-q", "--timeout=900", "-p", "tests.checks.contexts",
        *arguments,
    ]  # fmt: skip
    code = subprocess.run(command, check=False).returncode
    subprocess.run([*COVERAGE, "combine", "--quiet"], check=True)
    return code


def show(files: dict[str, Taken]) -> bool:
    """Print core, whole and the worst files of the core; whether both bars are reached."""
    core = {path: taken for path, taken in files.items() if is_core(path)}
    for path, taken in sorted(core.items(), key=lambda one: one[1].taken - one[1].branches)[:WORST]:
        sys.stdout.write(f"{path:40} {taken.branches - taken.taken:4} not taken\n")
    good = True
    for name, chosen, bar in (("core", core, CORE_BAR), ("whole", files, WHOLE_BAR)):
        total = sum(chosen.values(), Taken(0, 0))
        good &= total.percent >= bar
        sys.stdout.write(
            f"{name}: {total.percent:.1f} % of {total.branches} branches in {len(chosen)} modules"
            f" (at least {bar:g})\n"
        )
    return good


def main() -> int:
    """Measure and show."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", action="store_true", help="of the last run")
    options, arguments = parser.parse_known_args()
    code = 0
    if not options.report:
        code = measure(arguments or ["-m", "not kube and not e2e"])
    report = FOLDER / "report.json"
    subprocess.run([*COVERAGE, "json", "--quiet", "-o", str(report)], check=True)
    return 0 if show(of_report(json.loads(report.read_text()))) and code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
