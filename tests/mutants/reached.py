"""Which tests take a line of the code, from the last ``make coverage``; the quick ones first.

A test that does not come by a line cannot notice a fault there, so that of thousands of tests some
dozens are left, and of these the quickest know nearly always. Without a measurement of the file as
it is, or where a line was taken by no test's own process, a mutant's folders are run as a whole.
Tests that are newer than the measurement come last.
"""

from __future__ import annotations

import bisect
import dataclasses
import json
import pathlib

from coverage import CoverageData

from tests.checks.contexts import RUN, digest_of
from tests.mutants.machine import MachineMutant

DATA = pathlib.Path("out/coverage/data")
QUICK_S = 3.0
QUICK_TESTS = 60
MOST_S = 200.0
"""What the tests of one mutant take together, by the measurement; a slow machine takes longer."""


@dataclasses.dataclass(frozen=True)
class Reached:
    """The tests of each line, as measured."""

    data: CoverageData | None
    took_s: dict[str, float]
    """Of those that exist."""
    newer: tuple[str, ...] = ()
    """Tests that were not measured: of any of them it is not known which lines it takes."""
    changed: frozenset[str] = frozenset()
    """Files that are others than those that were measured."""
    _lines: dict[str, dict[int, list[str]]] = dataclasses.field(default_factory=dict)

    def _of_line(self, file: str, line: int) -> list[str]:
        """Of the last measured line up to this one: an expression may be written on several."""
        if self.data is None or file in self.changed:
            return []
        if file not in self._lines:
            self._lines[file] = self.data.contexts_by_lineno(file)
        lines = self._lines[file]
        known = sorted(number for number in lines if number > 0)
        at = bisect.bisect_right(known, line)
        return lines[known[at - 1]] if at else []

    def rounds(self, mutant: MachineMutant) -> list[tuple[str, ...]]:
        """What is run, one after the other, until something fails."""
        taking = (test for test in self._of_line(mutant.file, mutant.line) if test in self.took_s)
        tests = sorted(taking, key=lambda test: (self.took_s[test], test))
        if not tests:
            return [part for part in (mutant.own_tests, mutant.tests) if part]
        sums, total = [], 0.0
        for test in tests:
            total += self.took_s[test]
            sums.append(total)
        quick = max(1, min(QUICK_TESTS, bisect.bisect_right(sums, QUICK_S)))
        most = max(quick, bisect.bisect_right(sums, MOST_S))
        parts = (tuple(tests[:quick]), tuple(tests[quick:most]), self.newer)
        return [part for part in parts if part]


def measured(existing: frozenset[str]) -> Reached:
    """What ``make coverage`` has left, as far as its tests still exist."""
    if not DATA.is_file() or not RUN.is_file():
        return Reached(None, {})
    data = CoverageData(basename=str(DATA))
    data.read()
    run = json.loads(RUN.read_text())
    # Those of tests/checks look at the text of the code, and would see any change at all.
    existing = frozenset(test for test in existing if not test.startswith("tests/checks/"))
    known = {test: took_s for test, took_s in run["took_s"].items() if test in existing}
    there = {file for file in run["sources"] if pathlib.Path(file).is_file()}
    changed = {file for file in there if digest_of(pathlib.Path(file)) != run["sources"][file]}
    return Reached(data, known, tuple(sorted(existing - known.keys())), frozenset(changed))
