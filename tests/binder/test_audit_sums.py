"""The audit's shortcuts say what adding up every entry says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from binder.auditor import Expected, drift
from stretto.ledger.types import (
    MAX_AMOUNT,
    Charge,
    EntryState,
    Holdings,
    LedgerEntry,
    sums_of_entries,
)
from stretto.model.unit import Attempt

NODE = "n1"
LINES = st.lists(
    st.tuples(st.sampled_from(["cpu", "memory"]), st.sampled_from([0, 1, 2, MAX_AMOUNT])),
    max_size=3,
).map(tuple)
HOLDINGS = st.tuples(LINES, st.sampled_from([(), (Charge("pv:a", (("volumes", 1),)),)]))


def entry(
    number: int, holds: tuple[tuple[tuple[str, int], ...], tuple[Charge, ...]]
) -> LedgerEntry:
    return LedgerEntry(
        f"p{number}", NODE, f"p{number}", Attempt(1, number), 1, 7, EntryState.BOUND, *holds
    )


@given(memory=st.lists(HOLDINGS, min_size=1, max_size=6), changed=st.none() | HOLDINGS)
def test_an_entry_that_holds_something_else_is_drift_and_nothing_else_is(
    memory: list[tuple[tuple[tuple[str, int], ...], tuple[Charge, ...]]],
    changed: tuple[tuple[tuple[str, int], ...], tuple[Charge, ...]] | None,
) -> None:
    ours = {f"p{number}": entry(number, holds) for number, holds in enumerate(memory)}
    theirs = dict(ours)
    if changed is not None:
        theirs["p0"] = entry(0, changed)
    used = {NODE: sums_of_entries(theirs.values()).get(NODE, {})}
    found = drift(Expected(entries={NODE: ours}), Holdings(used, theirs))
    same = sums_of_entries([theirs["p0"]]) == sums_of_entries([ours["p0"]])
    assert bool(found) is not same


@given(memory=st.lists(HOLDINGS, max_size=6), more=st.integers(1, 3))
def test_a_sum_that_the_entries_do_not_explain_is_drift(
    memory: list[tuple[tuple[tuple[str, int], ...], tuple[Charge, ...]]], more: int
) -> None:
    ours = {f"p{number}": entry(number, holds) for number, holds in enumerate(memory)}
    used = dict(sums_of_entries(ours.values()).get(NODE, {}))
    assert drift(Expected(entries={NODE: ours}), Holdings({NODE: used}, ours)) == {}
    saturated = MAX_AMOUNT in used.values()
    used["pods"] = more
    found = drift(Expected(entries={NODE: ours}), Holdings({NODE: used}, ours))
    assert bool(found) is not saturated
