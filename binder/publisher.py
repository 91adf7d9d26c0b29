"""Publishing: steps of the log to all followers, outcomes to the dispatcher.

Followers wait on one condition each: a counter that grows. Every step is encoded once; a full state
is encoded once per version and shared by all who need it at that version.
"""

from __future__ import annotations

import asyncio
import time

from binder.effects import Effects
from binder.log import Log
from binder.machine import Machine
from stretto.rpc.messages import FollowKind
from stretto.rpc.wire_follow import encode_follow
from stretto.snapshot.delta import Delta


class Pulse:
    """Wakes all who wait, each time it beats; nobody misses a beat that comes while it works."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None
        self.count = 0

    def beat(self) -> None:
        """Wake everybody."""
        self.count += 1
        if self._future is not None:
            self._future.set_result(None)
            self._future = None

    async def after(self, count: int, *, timeout_s: float) -> int:
        """Wait until there were more than ``count`` beats, at most ``timeout_s``; the count now."""
        if self.count == count:
            if self._future is None:
                self._future = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._future], timeout=timeout_s)
        return self.count


class Publisher:
    """Owns the log and the pulses."""

    def __init__(self, machine: Machine, *, log_bytes: int) -> None:
        self.machine = machine
        cluster = machine.cluster
        self.log = Log(epoch=cluster.epoch, sequence=cluster.sequence, limit_bytes=log_bytes)
        self.steps = Pulse()
        self.outcomes = Pulse()
        self._untold = False
        """Outcomes stand in the log that nobody was woken for."""
        self._full: tuple[int, list[bytes]] = (-1, [])

    def publish(self, effects: Effects, *, tell: bool = True) -> None:
        """Make steps visible; call it before verdicts and binds of the same commit. Outcomes become
        visible with it, or with the next call that is to ``tell`` them."""
        stamp = int(time.time() * 1000)
        for delta in effects.deltas:
            self.log.append(delta.sequence, encode_follow(delta, stamp_ms=stamp))
        if effects.deltas:
            self.steps.beat()
        self._untold = self._untold or effects.outcomes
        if self._untold and tell:
            self._untold = False
            self.outcomes.beat()

    def full_state(self) -> tuple[int, list[bytes]]:
        """(sequence, messages) of a full state of now."""
        sequence = self.log.sequence
        if self._full[0] != sequence:
            empty = Delta(epoch=self.log.epoch, sequence=sequence)
            chunks = [
                encode_follow(chunk, FollowKind.FULL_CHUNK)
                for chunk in self.machine.cluster.snapshot.full_state()
            ]
            begin = encode_follow(empty, FollowKind.FULL_BEGIN)
            end = encode_follow(empty, FollowKind.FULL_END)
            self._full = (sequence, [begin, *chunks, end])
        return self._full

    def heartbeat(self, sequence: int) -> bytes:
        """A message without news for a follower who has read up to this step. (The newest step in
        its place would tell one who is behind that he has what is yet to come.)"""
        empty = Delta(epoch=self.log.epoch, sequence=sequence)
        return encode_follow(empty, FollowKind.HEARTBEAT, stamp_ms=int(time.time() * 1000))
