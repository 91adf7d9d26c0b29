"""Choosing among scored rows: the highest total; equals by own partition, then by a hash of seed and node.

A rank key is (total, not avoided, own partition, hash) packed into 64 bits, so that choosing k of n is one
partition of integers. Never the name and never the row's number: every shard would pick the same node first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stretto.placement.framework import Bools, Int64s
from stretto.snapshot.columns import PARTITIONS, Snapshot

UInt64s = npt.NDArray[np.uint64]
LOW_BITS = 41
LOW_MASK = (1 << LOW_BITS) - 1
_HASH_BITS = 39
_SHIFT = np.uint64(64 - _HASH_BITS)
_WORD = (1 << 64) - 1
_OWN = np.int64(1 << _HASH_BITS)
_NOT_AVOIDED = np.int64(1 << (_HASH_BITS + 1))
_PACKED_LIMIT = 1 << (62 - LOW_BITS)
"""Totals from here on do not fit beside the low bits; such profiles (weights above 20,000) sort by two keys."""


def _splitmix(x: int) -> int:
    """The finaliser of splitmix64: every input bit moves every output bit."""
    x = (x + 0x9E3779B97F4A7C15) & _WORD
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _WORD
    return x ^ (x >> 31)


class Ranking:
    """Low bits of the rank keys for one batch: fixed by its seed, own partitions and avoided rows."""

    def __init__(
        self, snapshot: Snapshot, *, seed: int, own: Bools | None, avoid: Sequence[int]
    ) -> None:
        self._snapshot = snapshot
        # Node hashes are uniform already, so multiplying by a random odd number is mixing enough:
        # three array operations instead of eleven.
        self._flip = np.uint64(_splitmix(seed & _WORD))
        self._factor = np.uint64(_splitmix(~seed & _WORD) | 1)
        self._own = own
        self._avoid = avoid

    def low(self, rows: Int64s) -> Int64s:
        """int64[len(rows)], each below 2^41."""
        bits = self._snapshot.uid_hash[rows]
        bits ^= self._flip
        bits *= self._factor
        bits >>= _SHIFT
        low = bits.view(np.int64)
        if self._own is not None:
            low += self._own[self._snapshot.partition[rows]] * _OWN
        if self._avoid:
            low += ~np.isin(rows, self._avoid) * _NOT_AVOIDED
        return low

    def top(self, total: Int64s, count: int) -> tuple[list[int], list[int]]:
        """The best ``count`` rows with total ≥ 0, best first, and their rank keys (total << 41 | low)."""
        if not len(total):
            return [], []
        if count == 1:
            threshold = int(total.max())
        elif count < len(total):
            threshold = int(np.partition(total, len(total) - count)[len(total) - count])
        else:
            threshold = 0
        rows = np.flatnonzero(total >= max(threshold, 0))
        if not len(rows):
            return [], []
        low, totals = self.low(rows), total[rows]
        if int(totals.max()) < _PACKED_LIMIT:
            keys = (totals << LOW_BITS) | low
            if len(keys) > count:
                best = np.argpartition(keys, len(keys) - count)[len(keys) - count :]
                rows, keys = rows[best], keys[best]
            order = np.argsort(keys)[::-1]
            return rows[order].tolist(), keys[order].tolist()
        order = np.lexsort((low, totals))[::-1][:count]
        pairs = zip(totals[order].tolist(), low[order].tolist(), strict=True)
        return rows[order].tolist(), [(t << LOW_BITS) | lo for t, lo in pairs]


def own_table(partitions: frozenset[int]) -> Bools | None:
    """bool[PARTITIONS]; None when no partition is preferred."""
    if not partitions:
        return None
    table = np.zeros(PARTITIONS, dtype=np.bool_)
    table[sorted(p for p in partitions if 0 <= p < PARTITIONS)] = True
    return table
