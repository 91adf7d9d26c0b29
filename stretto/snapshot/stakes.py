"""Stakes: room on named nodes that a starved unit has been promised (its starvation claim).

A unit that small pods keep out, because they take every bit of room that comes free, is given a
stake: from then on pods that end on the named nodes make room for it alone. For each member that is
to go to a node a nomination stands there, so filters leave its room alone as they do for
preemption; in time enough of it comes together.

A stake travels as an object of the log (kind :data:`STAKE`, key: see :func:`stake_key`). While it
*lends*, units that its own could preempt may use the room: they can be made to leave. Whoever
decides on the unit itself lifts its stake for the length of the question.

A stake that came to nothing stays in the log without seats, so that the next one tries other nodes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import msgspec

from stretto.model.shape import Shape
from stretto.snapshot.nominations import Nominations

STAKE = "Stake"
"""Object kind; payload: a :class:`StakeRow`."""


class Seat(msgspec.Struct, frozen=True, array_like=True):
    """Members of one shape that are to go to one node."""

    node: str
    """The node's name."""
    shape_id: int
    """By its number in the log."""
    count: int = 1


class StakeRow(msgspec.Struct, frozen=True, array_like=True):
    """What a unit has been promised."""

    unit: str
    """The unit that asked; of a gang another may use it."""
    pool: str
    """Units with the same pool may go to the same nodes; one of them has a stake at a time."""
    priority: int
    seats: tuple[Seat, ...] = ()
    lends: bool = False
    """Units of less priority may use the room."""
    passed: tuple[str, ...] = ()
    """Names of nodes on which earlier stakes of the unit came to nothing."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(StakeRow)


def encode_stake(row: StakeRow) -> bytes:
    """Payload of a Stake object."""
    return _encoder.encode(row)


def decode_stake(payload: bytes) -> StakeRow:
    """Read the payload of a Stake object."""
    return _decoder.decode(payload)


def stake_key(uid: str, shape: Shape) -> str:
    """Whose a stake is: a group's (its units change with its members), or a pod's."""
    return f"group/{shape.group}" if shape.group else uid


def pool_of(shape: Shape) -> str:
    """Equal for units that may go to the same nodes, as far as they choose themselves."""
    terms = shape.spelled_out.required_node_terms
    if not shape.node_selector and terms is None:
        return ""
    return repr((shape.node_selector, terms))


class Stakes:
    """Stakes by key; false while there are none."""

    def __init__(self, nominations: Nominations, shape_of: Callable[[int], Shape]) -> None:
        self._nominations = nominations
        self._shape_of = shape_of
        self._rows: dict[str, StakeRow] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: str) -> StakeRow | None:
        """The stake of a unit."""
        return self._rows.get(key)

    def put(self, key: str, payload: bytes | None) -> None:
        """A stake is as the payload says; None: there is none."""
        self._drop(key)
        self._rows.pop(key, None)
        if payload is not None:
            self._rows[key] = decode_stake(payload)
            self._show(key)

    @contextlib.contextmanager
    def lifted(self, key: str) -> Iterator[None]:
        """The picture as the stake's own unit has it: nothing is kept from it."""
        if key not in self._rows:
            yield
            return
        self._drop(key)
        try:
            yield
        finally:
            self._show(key)

    def _show(self, key: str) -> None:
        row = self._rows.get(key)
        if row is None:
            return
        for name, seat in _names(key, row):
            shape = self._shape_of(seat.shape_id)
            self._nominations.put(name, node=seat.node, shape=shape, lent=row.lends)

    def _drop(self, key: str) -> None:
        row = self._rows.get(key)
        if row is not None:
            for name, _ in _names(key, row):
                self._nominations.drop(name)


def _names(key: str, row: StakeRow) -> Iterator[tuple[str, Seat]]:
    """A name for the nomination of each member."""
    for number, seat in enumerate(row.seats):
        for member in range(seat.count):
            yield f"{key}#{number}.{member}", seat
