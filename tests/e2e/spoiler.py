"""A proxy in front of the Binder that spoils one message of each of its conversations.

It stands for a peer of another release: a kind that the receiver's enum does not have.
"""

from __future__ import annotations

from proto import stretto_pb2 as pb
from tests.e2e.garbage import FOLLOW, OUTCOMES, PROPOSE
from tests.e2e.relay import Relay

UNKNOWN = 99


def spoilt(path: str, data: bytes) -> bytes | None:
    """The answer with a kind that nobody knows; None if it has none to spoil."""
    if path == FOLLOW:
        step = pb.FollowBatch.FromString(data)
        if not step.pods.uid:
            return None
        step.kind = UNKNOWN  # type: ignore[assignment]
        return step.SerializeToString()
    batch = pb.VerdictBatch() if path == PROPOSE else pb.OutcomeBatch()
    batch.ParseFromString(data)
    if not batch.unit_id:
        return None
    del batch.kind[:]
    batch.kind.extend([UNKNOWN] * len(batch.unit_id))
    return batch.SerializeToString()


class Spoiler(Relay):
    """``async with Spoiler(target) as proxy``; roles dial ``proxy.address``."""

    def __init__(self, target: str) -> None:
        self.left = {FOLLOW, PROPOSE, OUTCOMES}
        """Conversations of which no message has been spoilt yet."""
        super().__init__(target, self.left)

    def answer(self, path: str, data: bytes) -> bytes:
        if path in self.left and (changed := spoilt(path, data)) is not None:
            self.left.remove(path)
            return changed
        return data
