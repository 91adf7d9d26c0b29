"""A row of the fault matrix: its number, its words, and the scenario that plays it."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Awaitable, Callable

from tests.matrix.field import Field, NotPossibleHereError
from tests.matrix.load import ENOUGH

Scenario = Callable[[Field], Awaitable[None]]


STOOD_STILL_S = 1.5
"""Half of a Lease: links and API server are this long without an answer, and every limit is off."""


class Result(enum.StrEnum):
    """What a run of a row says."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    """The fault did not fire, the load was not on, or the history has a gap: it proves nothing."""
    NOT_BUILT = "not built"


@dataclasses.dataclass(frozen=True)
class Row:
    """One of the 49."""

    number: int
    fault: str
    expected: str
    scenario: Scenario | None = None
    """None: what the row is about is not built; ``expected`` says what."""
    limit_s: float = 120.0
    """Wall-clock seconds from the first pod to the last bind."""
    real: bool = False
    """It needs the real kube-apiserver."""
    alone: bool = False
    """No other row runs on its field before or after it."""
    certified: bool = False
    """The roles speak mutual TLS."""
    disk: bool = False
    """Logs and the ledger's file lie on a disk of their own, which can be filled."""
    ledger_judged: bool = True
    """False: the fault takes a part of the ledger's own file, or writes to it behind everybody's
    back, so its steps cannot be judged; the API server's and the Binder's records are."""


ROWS: dict[int, Row] = {}


def row(number: int, fault: str, expected: str, **more: object) -> Callable[[Scenario], Scenario]:
    """Register the scenario of a row."""

    def register(scenario: Scenario) -> Scenario:
        assert number not in ROWS, number
        ROWS[number] = Row(number, fault, expected, scenario, **more)  # type: ignore[arg-type]
        return scenario

    return register


def not_built(number: int, fault: str, why: str) -> None:
    """Register a row that nothing plays."""
    assert number not in ROWS, number
    ROWS[number] = Row(number, fault, why)


@dataclasses.dataclass(frozen=True)
class Played:
    """One run of a row."""

    number: int
    seed: int
    result: Result
    why: str = ""
    took_s: float = 0.0
    binds: int = 0
    proof: str = ""

    def line(self) -> str:
        """For the progress."""
        head = f"row {self.number:2} seed {self.seed}: {self.result}"
        tail = f" ({self.why})" if self.why else ""
        return f"{head} in {self.took_s:.1f} s, {self.binds} binds; {self.proof}{tail}"


def judged(
    *,
    violations: str = "",
    error: str,
    proof: dict[str, int],
    binds: int,
    gaps: list[str],
    stood_still_s: float = 0.0,
) -> tuple[Result, str]:
    """The verdict of a run from what it showed. A violation is one whatever else happened; that
    something was late proves nothing where the machine had no time for us."""
    if violations:
        return Result.FAILED, violations
    if error and stood_still_s > STOOD_STILL_S:
        return Result.INCONCLUSIVE, f"the rig itself stood still for {stood_still_s:.1f} s: {error}"
    if error:
        return Result.FAILED, error
    if not any(proof.values()):
        return Result.INCONCLUSIVE, "the fault did not fire"
    if binds < ENOUGH:
        return Result.INCONCLUSIVE, f"only {binds} binds under the fault, {ENOUGH} make it count"
    if gaps:
        return Result.INCONCLUSIVE, gaps[0]
    return Result.PASSED, ""


__all__ = ["ROWS", "NotPossibleHereError", "Played", "Result", "Row", "judged", "not_built", "row"]
