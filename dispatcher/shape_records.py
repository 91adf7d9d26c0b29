"""A shape of pending pods, and the line of those that wait.

What the queue knows, it knows per shape: whether the shape is worth trying (`Mode`), at which
version of the cluster it was found hopeless, and what people are told about it.
"""

from __future__ import annotations

import enum
from collections import OrderedDict, deque
from collections.abc import Iterator

from dispatcher.contention import Contention
from dispatcher.pods import NO_VERSION, Condition, PodRecord
from stretto.model.bulk import bulk_of
from stretto.model.diagnosis import Diagnosis
from stretto.model.shape import Shape
from stretto.model.unit import PodUid

GROUP_LINE = b"group:"
"""What the keys of lines of pod groups begin with."""


class Mode(enum.IntEnum):
    """Whether the pods in a shape's line may be taken."""

    OPEN = 0
    """Active: all of them."""
    PARKED = 1
    """Unschedulable: none, until an event later than ``decided_at``."""
    BACKOFF = 2
    """Woken by an event, but too soon after the last fruitless decision."""
    PROBING = 3
    """A few (``allowance``), to find out whether the shape fits again."""
    REFUSED = 4
    """Never, as long as the pods are as they are."""
    UNREAD = 5
    """None: its selectors read labels that the log does not show yet. The Binder is asked for them;
    when they come, every pod gets another shape."""


NO_KEYS: frozenset[str] = frozenset()


class ShapeRecord:
    """A shape and the pods of it that wait."""

    __slots__ = (
        "allowance",
        "bulky",
        "condition",
        "contention",
        "decided_at",
        "diagnosis",
        "failures",
        "flushed",
        "front",
        "heap_key",
        "key",
        "line",
        "min_version",
        "mode",
        "number",
        "parked_at",
        "plugins",
        "priority",
        "probes",
        "reads",
        "refs",
        "shape",
        "todo",
        "until",
    )

    def __init__(
        self,
        *,
        number: int,
        key: bytes,
        shape: Shape | None,
        refusal: str = "",
        unread: bool = False,
    ) -> None:
        self.number = number
        self.key = key
        self.shape = shape
        self.bulky = shape is not None and bool(bulk_of(shape))
        """Its pods are decided in the slow lane; of a group's line: one of its members is so."""
        self.priority = 0 if shape is None else shape.priority
        self.mode = Mode.REFUSED if refusal else Mode.UNREAD if unread else Mode.OPEN
        self.reads = shape.reads if shape is not None and not refusal else NO_KEYS
        """Label keys that must be shown while it has pods."""
        self.refs = 0
        self.line: OrderedDict[PodUid, PodRecord] = OrderedDict()
        """In order of age."""
        self.front: OrderedDict[PodUid, PodRecord] | None = None
        """Pods that go before the line: lost a conflict, or their shard. Made when first needed."""
        self.heap_key: tuple[int, int] | None = None
        """The entry in the queue's heap that counts."""
        self.decided_at = NO_VERSION
        self.min_version = NO_VERSION
        """What a snapshot must have reached before this shape is decided again."""
        self.failures = 0
        """Fruitless decisions in a row; sets the backoff."""
        self.flushed = False
        """The probe goes out because of the leftover flush, not because of an event."""
        self.parked_at = 0.0
        """Monotonic time of the last fruitless decision that was news."""
        self.until = 0.0
        """Monotonic time at which its backoff is up; BACKOFF only."""
        self.allowance = 0
        self.probes: set[PodUid] = set()
        """Pods that are out to probe; PROBING only."""
        self.condition = Condition("Unschedulable", refusal) if refusal else None
        """What its waiting pods are told, each by a patch of its own on the slow lane."""
        self.plugins: tuple[str, ...] = ()
        """Who rejected nodes in the last fruitless decision."""
        self.diagnosis: Diagnosis | None = None
        """Of the decision at ``decided_at``."""
        self.contention: Contention | None = None
        """Made when a proposal of the shape is first lost to another commit."""
        self.todo: deque[PodRecord] | None = None
        """Pods that may still have to be told, in their turn; None (it is large) for none."""

    def __len__(self) -> int:
        return len(self.line) + (len(self.front) if self.front else 0)

    def __repr__(self) -> str:
        return f"<shape {self.number} {self.mode.name} {len(self)} waiting>"

    @property
    def of_group(self) -> bool:
        """It is the line of a pod group, whose members may be of other shapes than this."""
        return self.key.startswith(GROUP_LINE)

    def append(self, record: PodRecord) -> None:
        """Put a pod at the end of the line."""
        assert record.uid not in self.line, f"{record!r} stands in line twice"
        self.line[record.uid] = record

    def append_front(self, record: PodRecord) -> None:
        """Put a pod behind those that already go before the line."""
        assert record.uid not in self.line, f"{record!r} stands in two lines"
        if self.front is None:
            self.front = OrderedDict()
        self.front[record.uid] = record

    def return_to_line(self, record: PodRecord) -> None:
        """Put a pod that was in line before back to where it came from: the head."""
        self.line[record.uid] = record
        self.line.move_to_end(record.uid, last=False)

    def push_back(self, record: PodRecord) -> None:
        """Return a pod that was popped by mistake to the very head."""
        self.append_front(record)
        assert self.front is not None
        self.front.move_to_end(record.uid, last=False)

    def pop(self) -> PodRecord:
        """Take the pod whose turn it is."""
        source = self.front or self.line
        assert source, f"{self!r} has nobody to take"
        return source.popitem(last=False)[1]

    def discard(self, record: PodRecord) -> bool:
        """Remove a pod from the line; False if it is not in it."""
        if self.line.pop(record.uid, None) is not None:
            return True
        return bool(self.front) and self.front.pop(record.uid, None) is not None  # type: ignore[union-attr]

    def remind(self, record: PodRecord) -> None:
        """One more pod may have to be told the shape's condition."""
        if self.todo is None:
            self.todo = deque()
        self.todo.append(record)

    def head(self) -> PodRecord:
        """The pod whose turn it is; there must be one."""
        return next(iter((self.front or self.line).values()))

    def head_order(self) -> int:
        """The order of the pod whose turn it is; there must be one."""
        return self.head().order

    def waiting(self) -> Iterator[PodRecord]:
        """The pods in line, first to last."""
        if self.front:
            yield from self.front.values()
        yield from self.line.values()

    def find(self, uid: str) -> PodRecord | None:
        """A pod that stands in the line."""
        record = self.line.get(PodUid(uid))
        return record if record is not None or not self.front else self.front.get(PodUid(uid))

    def takeable(self) -> int:
        """How many pods may be taken now."""
        if self.mode is Mode.OPEN:
            return len(self)
        if self.mode is Mode.PROBING:
            return min(len(self), max(0, self.allowance - len(self.probes)))
        return 0
