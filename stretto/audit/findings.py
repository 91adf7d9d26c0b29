"""What the rules say: violations, and how often each invariant was looked at."""

from __future__ import annotations

import dataclasses
from collections import Counter

MOST = 50
"""Violations kept of one invariant; the rest is counted."""


@dataclasses.dataclass(frozen=True, slots=True)
class Violation:
    """One breach of an invariant."""

    invariant: str
    """Its number in the reliability reference: "I2"."""
    where: str
    """The place in a log: "revision 812", "ledger step 44", "audit line 9"."""
    what: str

    def __str__(self) -> str:
        return f"{self.invariant} at {self.where}: {self.what}"


class Findings:
    """Collects what the rules find."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.checks: Counter[str] = Counter()
        """How often each invariant was checked."""
        self.broken: Counter[str] = Counter()
        """Violations of each."""
        self.unknown: Counter[str] = Counter()
        """Looks at each that told nothing: what the history lacks may excuse what was found."""
        self.gaps: list[str] = []
        """Why the history is not whole: it proves nothing then."""
        self.notes: Counter[str] = Counter()
        """What is no violation and worth a number: binds by others, binds to nodes just deleted."""

    def check(
        self, invariant: str, *, holds: bool, where: str, what: str, known: bool = True
    ) -> None:
        """One look at an invariant. ``known``: what the history lacks cannot excuse a breach."""
        self.checks[invariant] += 1
        if holds:
            return
        if not known:
            self.unknown[invariant] += 1
            return
        self.broken[invariant] += 1
        if self.broken[invariant] <= MOST:
            self.violations.append(Violation(invariant, where, what))

    def gap(self, why: str) -> None:
        """A part of the history is missing."""
        self.gaps.append(why)

    @property
    def verdict(self) -> str:
        """ "violated", "inconclusive" or "held"."""
        if self.violations:
            return "violated"
        whole = self.checks and not self.gaps and not self.unknown
        return "held" if whole else "inconclusive"

    def text(self) -> str:
        """A table and the violations, for people."""
        lines = [f"{'invariant':12}{'checks':>10}{'violations':>12}{'not known':>12}"]
        lines += [
            f"{name:12}{self.checks[name]:>10,}{self.broken[name]:>12,}{self.unknown[name]:>12,}"
            for name in sorted(self.checks, key=_order)
        ]
        lines += [f"note: {count:,} × {name}" for name, count in sorted(self.notes.items())]
        lines += [f"gap: {why}" for why in self.gaps]
        lines += [str(violation) for violation in self.violations]
        return "\n".join([*lines, self.verdict])


def _order(name: str) -> tuple[int, str]:
    digits = "".join(c for c in name if c.isdigit())
    return int(digits or 0), name
