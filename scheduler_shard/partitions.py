"""Which virtual slices of the nodes a shard prefers among equals (design §12.13, mode ``ties``).

Told how many shards there are and which it is, a shard takes its part of the slices, and no two
prefer the same. Shards that come and go (a Deployment, an autoscaler) do not know of each other:
then each takes the quarter of the slices that rank first under its own hash. Two such quarters
share a sixteenth of the nodes on average, so two shards that choose among equals at the same moment
rarely meet; and as only ties are broken this way, a shard that has filled its quarter goes on in
the rest of the cluster without any loss of quality.
"""

from __future__ import annotations

import hashlib

from stretto.snapshot.columns import PARTITIONS


def own_partitions(name: str, *, index: int = 0, count: int = 0) -> frozenset[int]:
    """The slices that a shard prefers; ``count`` 0: the number of shards is unknown."""
    if count > 1:
        return frozenset(range(index % count, PARTITIONS, count))
    if count == 1:
        return frozenset()

    def rank(partition: int) -> bytes:
        return hashlib.blake2b(f"{name}/{partition}".encode(), digest_size=8).digest()

    return frozenset(sorted(range(PARTITIONS), key=rank)[: PARTITIONS // 4])
