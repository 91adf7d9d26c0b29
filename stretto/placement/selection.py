"""Choosing among scored rows: the highest total; equals by own partition, then by a hash of seed
and node.

A rank key is (total, not avoided, own partition, hash) packed into 64 bits, so that choosing k of n
is one partition of integers. Under ``own_first`` the own partition comes before the total. Never
the name and never the row's number: every shard would pick the same node first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stretto.placement.framework import Bools, Int64s, View, Whole
from stretto.snapshot.columns import PARTITIONS, Snapshot

LOW_BITS = 41
_HASH_BITS = 39
_SHIFT = np.uint64(64 - _HASH_BITS)
_WORD = (1 << 64) - 1
_OWN = np.int64(1 << _HASH_BITS)
_OWN_SHIFT = 62 - _HASH_BITS
_NOT_AVOIDED = np.int64(1 << (_HASH_BITS + 1))
_PACKED_LIMIT = 1 << (62 - LOW_BITS)
"""Totals from here on do not fit beside the low bits; such profiles (weights above 20,000) sort by
two keys, and own partitions break ties only."""


_FEW = 8
"""Up to this many rows are searched for one by one: a partition and a sort cost as much as eight
searches."""
OWN_FIRST = 1 << 62
"""In a key: an own row, where those come first."""
KEPT_MASK = OWN_FIRST | ((1 << LOW_BITS) - 1)
"""What stays of a row's key when its total changes."""


def _splitmix(x: int) -> int:
    """The finaliser of splitmix64: every input bit moves every output bit."""
    x = (x + 0x9E3779B97F4A7C15) & _WORD
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _WORD
    return x ^ (x >> 31)


class Ranking:
    """Low bits of the rank keys for one batch: fixed by its seed, own partitions and avoided
    rows."""

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        seed: int,
        own: Bools | None,
        avoid: Sequence[int],
        own_first: bool = False,
    ) -> None:
        self._snapshot = snapshot
        self._own_first = own_first and own is not None
        # Node hashes are uniform already, so multiplying by a random odd number is mixing enough:
        # three array operations instead of eleven.
        self._flip = np.uint64(_splitmix(seed & _WORD))
        self._factor = np.uint64(_splitmix(~seed & _WORD) | 1)
        self._own = own
        self._avoid = avoid

    def low(self, rows: Int64s | None = None) -> Int64s:
        """int64[len(rows)], or of all rows that were ever used; each below 2^41; in a buffer."""
        snapshot = self._snapshot
        view = View(snapshot, rows)
        low = view.ints("rank")
        bits = low.view(np.uint64)
        np.bitwise_xor(view.of(snapshot.uid_hash), self._flip, out=bits)
        bits *= self._factor
        bits >>= _SHIFT
        if self._own is not None:
            low |= view.of(_own_bits(snapshot, self._own))
        if self._avoid:
            numbers = np.arange(view.size) if rows is None else rows
            low |= ~np.isin(numbers, self._avoid) * _NOT_AVOIDED
        return low

    def top(self, total: Whole, count: int) -> tuple[list[int], list[int]]:
        """The best ``count`` rows with total ≥ 0, best first, with their keys (OWN_FIRST | total <<
        41 | low)."""
        size = len(total)
        if not size:
            return [], []
        low = self.low()
        if total.dtype != np.int16 and int(total.max()) >= _PACKED_LIMIT:
            return _top_by_two_keys(total, low, count)
        keys = View(self._snapshot).ints("keys")
        keys[:] = total  # widened on its own: a shift that widens takes longer than both
        keys <<= LOW_BITS
        keys |= low  # negative where the total is
        if self._own_first:
            keys |= (low & _OWN) << np.int64(_OWN_SHIFT)
        if count <= _FEW:
            return _top_few(keys, count)
        threshold = int(np.partition(keys, size - count)[size - count]) if count < size else 0
        rows = np.flatnonzero(keys >= max(threshold, 0))
        keys = keys[rows]
        order = np.argsort(keys)[::-1]
        return rows[order].tolist(), keys[order].tolist()


def _top_few(keys: Int64s, count: int) -> tuple[list[int], list[int]]:
    """The best keys, one search each; spoils its input."""
    rows: list[int] = []
    found: list[int] = []
    for _ in range(count):
        row = int(keys.argmax())
        key = keys.item(row)
        if key < 0:
            break
        keys[row] = -1
        rows.append(row)
        found.append(key)
    return rows, found


def _top_by_two_keys(total: Whole, low: Int64s, count: int) -> tuple[list[int], list[int]]:
    rows = np.flatnonzero(total >= 0)
    totals, low = total[rows], low[rows]
    order = np.lexsort((low, totals))[::-1][:count]
    pairs = zip(totals[order].tolist(), low[order].tolist(), strict=True)
    return rows[order].tolist(), [(t << LOW_BITS) | lo for t, lo in pairs]


def _own_bits(snapshot: Snapshot, own: Bools) -> Int64s:
    """The own bit of every row, kept with the snapshot until a node or the set of partitions
    changes."""
    key = ("own partitions",)
    stamp = snapshot.node_changes.stamp
    kept = snapshot.derived.get(key)
    if isinstance(kept, _OwnBits) and kept.own is own and kept.stamp == stamp:
        return kept.bits
    bits = own[snapshot.partition[: snapshot.rows]] * _OWN
    snapshot.derived[key] = _OwnBits(own, stamp, bits)
    return bits


class _OwnBits(NamedTuple):
    own: Bools
    stamp: int
    bits: Int64s


def own_table(partitions: frozenset[int]) -> Bools | None:
    """bool[PARTITIONS]; None when no partition is preferred."""
    if not partitions:
        return None
    table = np.zeros(PARTITIONS, dtype=np.bool_)
    table[sorted(p for p in partitions if 0 <= p < PARTITIONS)] = True
    return table
