"""Numbers of shapes in the Binder's log: given out, held, and in the end dropped.

A number means one shape for as long as the epoch lasts and is never given out again. It is held by
every pod on a node, nomination and stake that names it. One that nobody holds stays defined for a
while, because pods of a Deployment come and go; the least recently used beyond a limit are
dropped, in the step in which that happens and after everything else in it. A follower that resumes
from an older step reads that the number was dropped where it was; a full state defines what is
left. So where every pod is its own shape, memory grows with the pods that are, not with those that
have ever been.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping

from stretto.model.shape import Shape
from stretto.snapshot.nominations import NOMINATION, decode_nomination
from stretto.snapshot.stakes import STAKE, decode_stake

IDLE_SHAPES = 4096
"""Shapes that nobody holds, at most; about 0.6 KB each. More than the members of the largest gang,
so that a number that was asked for is still there when it is held."""


class ShapeNumbers:
    """See the module docstring."""

    def __init__(self, *, idle_limit: int = IDLE_SHAPES) -> None:
        self._numbers: dict[bytes, int] = {}
        """By digest of the shape."""
        self._digests: dict[int, bytes] = {}
        self._holders: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._idle_limit = idle_limit
        self._last = 0
        self._dropped: list[int] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def number_of(self, shape: Shape) -> tuple[int, bool]:
        """The number of a shape, and whether it is new and has to be defined."""
        known = self._numbers.get(shape.digest)
        if known is not None:
            if known in self._idle:
                self._idle.move_to_end(known)
            return known, False
        self._last += 1
        assert self._last not in self._digests, f"shape number {self._last} was given out"
        self._numbers[shape.digest] = self._last
        self._digests[self._last] = shape.digest
        self._idle[self._last] = None
        return self._last, True

    def hold(self, numbers: Iterable[int]) -> None:
        """Somebody names these."""
        for number in numbers:
            assert number in self._digests, f"shape {number} is held and not defined"
            self._idle.pop(number, None)
            self._holders[number] = self._holders.get(number, 0) + 1

    def release(self, numbers: Iterable[int]) -> None:
        """Somebody names these no longer."""
        for number in numbers:
            left = self._holders.pop(number) - 1
            assert left >= 0, f"shape {number} is given back too often"
            if left:
                self._holders[number] = left
            else:
                self._idle[number] = None
        while len(self._idle) > self._idle_limit:
            oldest, _ = self._idle.popitem(last=False)
            assert oldest not in self._holders, f"shape {oldest} is dropped and held"
            del self._numbers[self._digests.pop(oldest)]
            self._dropped.append(oldest)

    def object_changed(self, kind: str, before: bytes | None, after: bytes | None) -> None:
        """An object of the log says something else; None: there is none."""
        if kind in NAMING:
            self.hold(numbers_in(kind, after))
            self.release(numbers_in(kind, before))

    def take_dropped(self) -> list[int]:
        """Numbers that nobody holds any more and that mean nothing from now on, each once."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def validate(self, of_pods: Iterable[int], payloads: Mapping[tuple[str, str], bytes]) -> None:
        """Assert that exactly the numbers of pods and of objects by (kind, key) are held."""
        held = Counter(of_pods)
        for (kind, _), payload in payloads.items():
            held.update(numbers_in(kind, payload))
        assert self._holders == held
        assert self._digests.keys() == self._holders.keys() | self._idle.keys()
        assert not self._holders.keys() & self._idle.keys()
        assert self._numbers == {digest: number for number, digest in self._digests.items()}


NAMING = frozenset({NOMINATION, STAKE})
"""Kinds of objects that name shapes."""


def numbers_in(kind: str, payload: bytes | None) -> tuple[int, ...]:
    """The numbers of shapes that an object of the log names."""
    if payload is None:
        return ()
    if kind == NOMINATION:
        return (decode_nomination(payload).shape_id,)
    if kind == STAKE:
        return tuple(seat.shape_id for seat in decode_stake(payload).seats)
    return ()
