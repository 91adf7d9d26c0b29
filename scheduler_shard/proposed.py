"""Proposals without a verdict, and which of them the stream to the Binder must still get."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from scheduler_shard.desk import Key
from scheduler_shard.shapes import ShapeBook, ShapeEntry
from stretto.model.unit import Proposal, Release, Unit
from stretto.rpc.messages import ProposalBatch

MESSAGE_UNITS = 128
"""Proposals in a message at most: twice the knee, so that a backlog shrinks."""


class Open:
    """A proposal without a verdict."""

    __slots__ = ("at_s", "entries", "proposal")

    def __init__(self, proposal: Proposal, *, entries: tuple[ShapeEntry, ...], at_s: float) -> None:
        self.proposal = proposal
        self.entries = entries
        """The shapes of its members."""
        self.at_s = at_s


class Proposed:
    """See the module docstring."""

    def __init__(self, book: ShapeBook) -> None:
        self.epoch: int | None = None
        """Epoch of the stream to the Binder; None: there is none."""
        self._book = book
        self._open: dict[Key, Open] = {}
        self._unsent: deque[Key] = deque()
        self._resend: deque[Key] = deque()
        self._releases: dict[Release, None] = {}
        self._defined: set[int] = set()
        """Shape numbers that the stream knows."""

    def __len__(self) -> int:
        return len(self._open)

    @property
    def unsent(self) -> int:
        """Proposals that wait for :meth:`take`."""
        return len(self._unsent) + len(self._resend) + len(self._releases)

    def add(self, proposal: Proposal, *, entries: tuple[ShapeEntry, ...], at_s: float) -> None:
        """A decision that the Binder has not heard of."""
        key = (proposal.unit.unit_id, proposal.unit.attempt)
        assert key not in self._open, f"{key} is proposed twice"
        assert len(entries) == len(proposal.nodes), f"{key} has members without a node"
        self._open[key] = Open(proposal, entries=entries, at_s=at_s)
        self._unsent.append(key)

    def release(self, releases: Iterable[Release]) -> None:
        """Requests that the Binder has not heard of."""
        self._releases.update(dict.fromkeys(releases))

    def settle(self, key: Key) -> Open | None:
        """A verdict has come; None: on nothing that is open."""
        return self._open.pop(key, None)

    def clear(self) -> list[Unit]:
        """Nothing open will get a verdict: the units."""
        units = [opened.proposal.unit for opened in self._open.values()]
        self._open.clear()
        self._unsent.clear()
        self._resend.clear()
        self._releases.clear()
        return units

    def opened(self, epoch: int) -> None:
        """A new stream: it knows no shapes, and gets everything again."""
        assert not self._open or self.epoch is None, "a stream opens beside another"
        self.epoch = epoch
        self._defined.clear()
        self._book.take_dropped()
        self._unsent.clear()
        self._resend = deque(self._open)

    def closed(self) -> None:
        """The stream has ended; what is open stays open."""
        self.epoch = None

    def take(self) -> ProposalBatch | None:
        """Proposals to send now, None if there are none. Resent ones travel by themselves."""
        if self.epoch is None:
            return None
        resent = bool(self._resend)
        queue = self._resend if resent else self._unsent
        found: list[Open] = []
        while queue and len(found) < MESSAGE_UNITS:
            opened = self._open.get(queue.popleft())
            if opened is not None:
                found.append(opened)
        releases = list(self._releases)
        self._releases.clear()
        if not found and not releases:
            return None
        shapes = {entry.number: entry.shape for opened in found for entry in opened.entries}
        new = [(number, shape) for number, shape in shapes.items() if number not in self._defined]
        self._defined.update(shapes)
        return ProposalBatch(
            binder_epoch=self.epoch,
            shapes=new,
            proposals=[opened.proposal for opened in found],
            resent=resent,
            releases=releases,
            forgotten=self._forgotten(),
        )

    def _forgotten(self) -> list[int]:
        """Numbers that the dispatcher dropped and that nothing open has."""
        dropped = self._book.take_dropped()
        if not dropped:
            return []
        used = {entry.number for opened in self._open.values() for entry in opened.entries}
        forgotten = [number for number in dropped if number in self._defined and number not in used]
        assert len(set(forgotten)) == len(forgotten), "a shape is forgotten twice"
        self._defined.difference_update(forgotten)
        return forgotten
