"""What a plugin is here: filters and scorers over rows of the snapshot.

Every filter and scorer comes in two forms of one meaning: over a :class:`View` of many rows at once
(NumPy), and for one row (plain Python integers). The vector form serves a shard's pass over all
nodes; the one-row form serves re-scoring a touched node and the Binder's re-check. Property tests
hold them equal.

*Static* ones read only the nodes' definitions (labels, taints, flags), so their results are shared
between all shapes that ask the same, and survive pods coming and going.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import ClassVar, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from stretto.model.shape import Shape
from stretto.model.unit import Cause
from stretto.snapshot.changes import ChangeLog
from stretto.snapshot.columns import Snapshot

T = TypeVar("T", bound=np.generic)
Bools = npt.NDArray[np.bool_]
Int16s = npt.NDArray[np.int16]
Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int16 | np.int64]
"""Whole scores; see :func:`score_type`."""
Numbers = Whole | Int16s | Int64s | Floats

MAX_SCORE = 100
"""Upstream's MaxNodeScore."""


class Code(enum.Enum):
    """Status codes of upstream's framework, by their names there."""

    SUCCESS = "Success"
    UNSCHEDULABLE = "Unschedulable"
    """Preemption may help."""
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    ERROR = "Error"
    """The attempt itself failed (condition reason SchedulerError)."""


class Status(msgspec.Struct, frozen=True):
    """Why a pod or a node was rejected; ``reasons`` sorted."""

    code: Code
    plugin: str
    """Empty for nodes that PreFilter left out."""
    reasons: tuple[str, ...]

    @property
    def message(self) -> str:
        """Upstream's Status.Message."""
        return ", ".join(self.reasons)


class Normalise(enum.Enum):
    """How raw scores become 0..100 over the feasible nodes."""

    NONE = 0
    DEFAULT = 1
    """100·s/max; all 0 when max is 0."""
    REVERSED = 2
    """100 − 100·s/max; all 100 when max is 0."""


class View:
    """The rows an evaluation looks at: all that were ever used, or some."""

    __slots__ = ("rows", "size", "snapshot")

    def __init__(self, snapshot: Snapshot, rows: Int64s | None = None) -> None:
        self.snapshot = snapshot
        self.rows = rows
        self.size = snapshot.rows if rows is None else len(rows)

    def of(self, array: npt.NDArray[T]) -> npt.NDArray[T]:
        """The entries of a column for the rows of this view (a view of memory, or a copy)."""
        return array[: self.size] if self.rows is None else array[self.rows]

    def floats(self, slot: str) -> Floats:
        """A :meth:`buffer` of float64."""
        return self.buffer(slot, np.float64)

    def ints(self, slot: str) -> Int64s:
        """A :meth:`buffer` of int64."""
        return self.buffer(slot, np.int64)

    def bools(self, slot: str) -> Bools:
        """A :meth:`buffer` of bool."""
        return self.buffer(slot, np.bool_)

    def buffer(self, slot: str, dtype: type[T]) -> npt.NDArray[T]:
        """A buffer of [size] to write over, the same one each time a slot is asked for.

        Passes over all nodes touch a dozen arrays; fresh ones would be cold memory each time, and
        so are many: what is needed for a moment only is in the slot "work".
        """
        key = dtype.__name__, slot
        found = self.snapshot.derived.get(key)
        if not isinstance(found, np.ndarray) or len(found) < self.size:
            found = np.empty(max(self.snapshot.capacity, self.size), dtype=dtype)
            self.snapshot.derived[key] = found
        return found[: self.size]


class Rejection(msgspec.Struct, frozen=True):
    """A reason, the rows (bool[view.size]) it holds for, and where preemption cannot help."""

    reason: str
    rows: Bools
    unresolvable: bool | Bools
    error: bool = False
    """The plugin failed on these rows: the whole attempt ends with ``reason`` as its error."""


class Filter:
    """A filter plugin compiled for a shape."""

    name: ClassVar[str]
    reason: ClassVar[str] = ""
    cause: ClassVar[Cause] = Cause.NODE_CHANGED
    unresolvable: ClassVar[bool] = True
    cross: ClassVar[bool] = False
    """The answer for a row depends on pods on other rows."""

    @property
    def nbytes(self) -> int:
        """Bytes that it keeps by row or domain."""
        return 0

    def passes(self, view: View) -> Bools | None:
        """bool[view.size]; None when every row passes."""
        raise AssertionError("each filter has its own")

    def passes_row(self, row: int) -> bool:
        """The same for one row."""
        raise AssertionError("each filter has its own")

    def failing_rows(self) -> Iterable[int]:
        """Rows on which the plugin fails (see :class:`Rejection`), if it gets to see them."""
        return ()

    def bind(self, shape: Shape) -> None:
        """Be about the claims of another pod, alike but for their names."""

    def resized(self, shape: Shape) -> Filter:
        """The filter of a shape that differs in its amounts only; itself if it reads none."""
        return self

    follows: ChangeLog[int] | None = None
    """Rows of which the answer may be another, though no pod has come or gone there."""

    spans: bool = False
    """A pod of the shape that is placed may change what other rows say, so that pods of the shape
    are placed one at a time."""

    def skips(self) -> bool:
        """Whether upstream's PreFilter leaves the plugin out for the pods that are placed now: it
        then rejects nothing, and does not look at nominated pods either."""
        return False

    def version(self) -> object:
        """What the answers depend on beside their rows, as a value that changes with it; rows are
        asked again when it does. None: nothing."""
        return None

    def rejections(self, view: View) -> list[Rejection]:
        """Reasons per row; together they cover exactly the rows that do not pass."""
        passes = self.passes(view)
        if passes is None:
            return []
        return [Rejection(self.reason, ~passes, self.unresolvable)]


class Scorer:
    """A score plugin compiled for a shape."""

    name: ClassVar[str]
    normalise: ClassVar[Normalise] = Normalise.NONE

    def bind(self, shape: Shape) -> None:
        """Be about the claims of another pod, alike but for their names."""

    def resized(self, shape: Shape) -> Scorer:
        """The scorer of a shape that differs in its amounts only; itself if it reads none."""
        return self

    def raw(self, view: View) -> Numbers | None:
        """Whole numbers [view.size]; None when every row has 0. Dead rows may hold anything finite.

        The array may be a buffer that the scorer's next call writes over.
        """
        raise AssertionError("each scorer has its own")

    def raw_row(self, row: int) -> int:
        """The same for one row."""
        raise AssertionError("each scorer has its own")


class Scores(msgspec.Struct, frozen=True):
    """Scores over all rows; rows that are not feasible may hold anything."""

    raw: Int64s
    weighted: Int64s
    """0..100, normalised over the feasible rows; not yet times the plugin's weight."""


class CrossScorer(Scorer):
    """A score plugin whose scores depend on pods on other rows, and on which rows are feasible."""

    @property
    def nbytes(self) -> int:
        """Bytes that it keeps by row or domain."""
        return 0

    def over(self, feasible: Bools) -> Scores | None:
        """Scores of all rows given bool[rows]; None when every row has 0."""
        raise AssertionError("each scorer has its own")


class Gates(msgspec.Struct, frozen=True):
    """Feature gates that the plugins of this release read; defaults of Kubernetes 1.37."""

    taint_toleration_comparison_operators: bool = False
    strict_disruption_budgets: bool = False
    """Not Kubernetes': preemption never violates a PodDisruptionBudget."""


class Plugin:
    """A plugin of a profile, with its arguments. Either half may be absent."""

    name: ClassVar[str]
    static: ClassVar[bool]
    kinds: ClassVar[frozenset[str]] = frozenset()
    """Kinds of objects that its filters and scorers read when they are made: a change to one of
    them makes the shapes that have such a filter or scorer be compiled anew."""
    silent_kinds: ClassVar[frozenset[str]] = frozenset()
    """Those of them whose change may give a filter or scorer to a shape that has none."""
    basis_kinds: ClassVar[frozenset[str]] = frozenset()
    """Kinds of objects that :meth:`basis` reads."""

    def basis(self, shape: Shape, snapshot: Snapshot) -> object:
        """What filter and scorer are made from beside the shape, as a value to compare: when it is
        another one the shape is compiled anew. Asked when an object of ``basis_kinds``, or the set
        of affinity terms on pods, has changed. Finer than ``kinds``."""
        return None

    def pre_enqueue(self, shape: Shape, snapshot: Snapshot) -> Status | None:
        """What holds the pod back before it is queued (upstream's PreEnqueue); None: nothing."""
        return None

    def has_prefilter(self, shape: Shape) -> bool:
        """Whether :meth:`prefilter` may reject pods of a shape; what it says depends on the shape
        alone."""
        return False

    def prefilter(self, shape: Shape, snapshot: Snapshot) -> Status | None:
        """Why the pod is rejected whatever the node (upstream's PreFilter); None: it is not.

        Asked each time the shape is used, so it reads no more than the objects that the shape
        names.
        """
        return None

    def filter(self, shape: Shape, snapshot: Snapshot) -> Filter | None:
        """The filter for a shape; None when it has nothing to say (upstream's Skip)."""
        return None

    def assume(self, shape: Shape, row: int, snapshot: Snapshot) -> None:
        """Keep what a tentative pod on a row would do to objects (upstream's Reserve); for shapes
        whose :class:`~stretto.snapshot.pods.Usage` says so."""

    def forget(self, shape: Shape, row: int, snapshot: Snapshot) -> None:
        """Undo one :meth:`assume` of the shape on the row."""

    def scorer(self, shape: Shape, snapshot: Snapshot) -> Scorer | None:
        """The scorer for a shape; None when it adds 0 everywhere or skips."""
        return None


def score_type(weights: int) -> type[np.int16 | np.int64]:
    """What holds the sum of scores that weigh as much together: passes over int16 cost a third."""
    return np.int16 if weights * MAX_SCORE < 1 << 15 else np.int64


def normalised(how: Normalise, raw: Int64s, maximum: int) -> Int64s | int:
    """Upstream's DefaultNormalizeScore; an int stands for the same value everywhere."""
    if how is Normalise.NONE:
        return raw
    if maximum == 0:
        return MAX_SCORE if how is Normalise.REVERSED else 0
    scaled = raw * MAX_SCORE // maximum
    return MAX_SCORE - scaled if how is Normalise.REVERSED else scaled


def normalised_row(how: Normalise, raw: int, maximum: int) -> int:
    """:func:`normalised` for one value."""
    if how is Normalise.NONE:
        return raw
    if maximum == 0:
        return MAX_SCORE if how is Normalise.REVERSED else 0
    scaled = raw * MAX_SCORE // maximum
    return MAX_SCORE - scaled if how is Normalise.REVERSED else scaled


def mask_out(total: Whole, mask: Bools) -> None:
    """Write -1 (all bits) where the mask is false. Masked copies cost up to six times as much."""
    total |= mask.view(np.int8) - np.int8(1)
