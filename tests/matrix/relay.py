"""A peer in the middle of the shards' conversation with the Binder that repeats what they propose.

Each batch of proposals is passed on; then, some of the time, it or one of the last few arrives
once more: doubled, and out of order.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence

from proto import stretto_pb2 as pb
from tests.e2e.garbage import FOLLOW, PROPOSE
from tests.e2e.relay import Relay

CHANCE = 0.7


class ProposalRelay(Relay):
    """Of all conversations' proposals; shards are led to ``relay.address``."""

    def __init__(self, target: str, *, rng: random.Random) -> None:
        super().__init__(target, (FOLLOW, PROPOSE))
        self._rng = rng
        self.counts: Counter[str] = Counter()

    def requests(self, path: str, said: Sequence[bytes]) -> Iterable[bytes]:
        yield said[-1]
        # A greeting must not come twice.
        again = [data for data in said if not greets(data)] if path == PROPOSE else []
        if again and not greets(said[-1]) and self._rng.random() < CHANCE:
            self.counts["proposals repeated"] += 1
            yield self._rng.choice(again)


def greets(data: bytes) -> bool:
    """Whether a batch of proposals is the first of its conversation."""
    return pb.ProposalBatch.FromString(data).HasField("hello")
