"""Placing a batch of one shape: exactly what one-by-one placement would choose, scoring touched
nodes only.

Naive form: score all nodes, take the best, count the pod, repeat. Its fault is a vector pass a pod.
As the filter and the score of a node depend on that node alone while the normalisers stand, placing
a pod changes one total. So the best ``count`` rows are taken once, in order; each placement touches
one row, whose new total goes into a heap; the next pod goes to the better of the next untouched row
and the best touched one. At most ``count`` rows are ever touched, so none outside the first
``count`` can be missed.

Unhappy path: a touched row that no longer fits may have held a normaliser's maximum. Then the
totals of all rows move, and the rest of the batch starts over from a fresh order (counted as
``renormalised``).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from stretto.placement.compiled import CompiledShape, Counters
from stretto.placement.selection import KEPT_MASK, LOW_BITS, Ranking


def place_batch(
    compiled: CompiledShape,
    count: int,
    *,
    spares: int,
    ranking: Ranking,
    counters: Counters,
    add: Callable[[int], None],
) -> tuple[list[int], list[int]]:
    """Rows for up to ``count`` pods, in order, and further rows that could serve as spares, best
    first.

    ``compiled`` must be fresh. ``add(row)`` must count a pod of the shape on a row of the snapshot.
    """
    if compiled.lent:
        assert count == 1, "pods with claims are placed one at a time"
        rows, _ = ranking.top(compiled.total, 1 + spares)
        for row in rows[:1]:
            add(row)
        return rows[:1], rows[1:]
    if compiled.looks_around:
        return _place_across(
            compiled, count, spares=spares, ranking=ranking, counters=counters, add=add
        )
    placed: list[int] = []
    others: list[int] = []
    while len(placed) < count:
        left = count - len(placed)
        rows, keys = ranking.top(compiled.total, left + left * spares)
        used, settled = _run(compiled, left, rows, keys, placed=placed, add=add)
        others = rows[used:]
        if settled:
            break
        compiled.renormalise(counters)
    return placed, others


def _run(
    compiled: CompiledShape,
    count: int,
    rows: list[int],
    keys: list[int],
    *,
    placed: list[int],
    add: Callable[[int], None],
) -> tuple[int, bool]:
    """Place until done, out of rows, or a maximum may have gone; untouched rows used, and whether
    it is done."""
    touched: list[tuple[int, int]] = []
    totals: dict[int, int] = {}
    position, last = 0, len(rows)
    done = False
    for left in reversed(range(count)):
        if touched and (position >= last or -touched[0][0] > keys[position]):
            key, row = heapq.heappop(touched)
            low = -key & KEPT_MASK
        elif position < last:
            row = rows[position]
            low = keys[position] & KEPT_MASK
            position += 1
        else:
            done = True
            break
        add(row)
        placed.append(row)
        if not left and not compiled.lasting:
            continue  # nobody reads its total any more
        total = compiled.total_of_row(row)
        totals[row] = total
        if total >= 0:
            heapq.heappush(touched, (-((total << LOW_BITS) | low), row))
        elif compiled.holds_extreme(row):
            break
    else:
        done = True
    compiled.settle(totals)
    return position, done


def _place_across(
    compiled: CompiledShape,
    count: int,
    *,
    spares: int,
    ranking: Ranking,
    counters: Counters,
    add: Callable[[int], None],
) -> tuple[list[int], list[int]]:
    """:func:`place_batch` of a shape whose pods change the totals of other rows: these are put
    together anew for each pod."""
    placed: list[int] = []
    while len(placed) < count:
        rows, _ = ranking.top(compiled.total, 1)
        if not rows:
            break
        add(rows[0])
        placed += rows
        compiled.refresh(counters)
    others = ranking.top(compiled.total, len(placed) * spares)[0] if spares and placed else []
    return placed, others
