"""Own plugins: filter, score and reject pods by rules of your own (docs/plugins.md).

A plugin is a subclass of :class:`OwnPlugin` that an installed package names in the entry point
group ``stretto.plugins``; a profile enables it by name. It answers over arrays, one entry a node;
the answer for one node is derived from that, unless the plugin has a faster one.

What it does wrong is its own pods' trouble: an exception, a wrong size or a wrong type ends the
attempt with a SchedulerError that names the plugin, and is tried again; other pods go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import numpy as np

from stretto.model.shape import Shape
from stretto.model.unit import Cause
from stretto.placement.framework import (
    MAX_SCORE,
    Bools,
    Code,
    Filter,
    Int64s,
    Plugin,
    Rejection,
    Scorer,
    Status,
    View,
)
from stretto.placement.strict import mapping
from stretto.snapshot.columns import Snapshot

ENTRY_POINTS = "stretto.plugins"
__all__ = ["ENTRY_POINTS", "MAX_SCORE", "Nodes", "OwnPlugin", "Shape"]


class Nodes:
    """The nodes that a plugin is asked about, as arrays of one length; do not write to them."""

    def __init__(self, view: View) -> None:
        self._view = view

    def __len__(self) -> int:
        return self._view.size

    @property
    def names(self) -> list[str]:
        """Names of the nodes."""
        names = self._view.snapshot.name
        rows = self._view.rows
        return names[: len(self)] if rows is None else [names[row] for row in rows.tolist()]

    def labels(self, key: str) -> tuple[Int64s, list[str]]:
        """(ids, values): ``values[ids[i]]`` is node i's label under ``key``; id 0: it has none."""
        column = self._view.snapshot.label_column(key)
        return self._view.of(column.ids).astype(np.int64), column.values

    def allocatable(self, resource: str) -> Int64s:
        """int64[len]: what the nodes offer; cpu in milli, others in bytes or counts."""
        column = self._view.snapshot.resources.get(resource)
        return self._zeros() if column is None else self._view.of(column.alloc)

    def requested(self, resource: str) -> Int64s:
        """int64[len]: what the pods on the nodes request."""
        column = self._view.snapshot.resources.get(resource)
        return self._zeros() if column is None else self._view.of(column.used)

    def _zeros(self) -> Int64s:
        return np.zeros(len(self), dtype=np.int64)


class OwnPlugin(Plugin):
    """Override :meth:`mask`, :meth:`scores`, :meth:`reject`, or several of them.

    ``name`` is that of the entry point. A pod is seen as its shape: pods of one shape are decided
    alike, so a label that the plugin reads has to be declared in ``label_keys``.
    """

    static = False
    label_keys: ClassVar[tuple[str, ...]] = ()
    """Keys of pod labels that it reads: pods that differ in them have different shapes."""
    reason: ClassVar[str] = "node(s) were rejected by an own plugin"
    """What the condition says of nodes that :meth:`mask` rejects."""
    unresolvable: ClassVar[bool] = True
    """Preemption cannot help on them."""

    def __init__(self, args: Mapping[str, object]) -> None:
        """Read ``pluginConfig[].args``; this one takes none.

        Raises:
            ProfileError: an argument that is not known, or cannot be used.
        """
        mapping(args, ("apiVersion", "kind"), where="args")

    def concerns(self, pod: Shape) -> bool:
        """Whether it has anything to say about pods of a shape."""
        return True

    def reject(self, pod: Shape) -> str:
        """Why pods of a shape are rejected whatever the node; '' if they are not."""
        return ""

    def mask(self, pod: Shape, nodes: Nodes) -> Bools:
        """bool[len(nodes)]: where the pod may go."""
        raise AssertionError("each filter has its own")

    def mask_one(self, pod: Shape, nodes: Nodes) -> bool:
        """:meth:`mask` for a single node, as the Binder re-checks it."""
        return bool(checked_mask(self.mask(pod, nodes), size=1)[0])

    def scores(self, pod: Shape, nodes: Nodes) -> Int64s:
        """Whole numbers [len(nodes)] in 0..100, more is better; each by its node alone."""
        raise AssertionError("each scorer has its own")

    def score_one(self, pod: Shape, nodes: Nodes) -> int:
        """:meth:`scores` for a single node."""
        return int(checked_scores(self.scores(pod, nodes), size=1)[0])

    # The framework's side.
    filtering = True
    """Enabled at the extension point filter; set by the profile."""
    _compiling: _Trouble | None = None

    def has_prefilter(self, shape: Shape) -> bool:
        """Whether the plugin may reject pods as a whole."""
        return type(self).reject is not OwnPlugin.reject

    def prefilter(self, shape: Shape, snapshot: Snapshot) -> Status | None:
        """What :meth:`reject` says, or that it failed."""
        try:
            reason = self.reject(shape) if self.concerns(shape) else ""
            if not isinstance(reason, str):
                raise TypeError(f"reject gave {type(reason).__name__}, not text")
        except Exception as error:
            text = f'running PreFilter plugin "{self.name}": {said(error)}'
            return Status(Code.ERROR, self.name, (text,))
        return Status(Code.UNRESOLVABLE, self.name, (reason,)) if reason else None

    def filter(self, shape: Shape, snapshot: Snapshot) -> Filter | None:
        """Always there: a scorer that fails ends the attempt through it, too."""
        self._compiling = _Trouble(self, shape)
        masks = self.filtering and type(self).mask is not OwnPlugin.mask
        return _GuardedFilter(self._compiling, snapshot, masks=masks)

    def scorer(self, shape: Shape, snapshot: Snapshot) -> Scorer | None:
        """None when the plugin does not score."""
        if type(self).scores is OwnPlugin.scores:
            return None
        trouble = self._compiling
        assert trouble is not None, "filters of a shape are made first"
        assert trouble.shape is shape, "filters of a shape are made first"
        return _GuardedScorer(trouble, snapshot)


def points_of(plugin: type[OwnPlugin]) -> tuple[str, ...]:
    """The extension points that a plugin implements."""
    points = []
    if plugin.reject is not OwnPlugin.reject:
        points.append("preFilter")
    if plugin.mask is not OwnPlugin.mask:
        points.append("filter")
    if plugin.scores is not OwnPlugin.scores:
        points.append("score")
    return tuple(points)


def checked_mask(answer: object, *, size: int) -> Bools:
    """A mask as it has to be.

    Raises:
        TypeError: it is not bool[size].
    """
    if not isinstance(answer, np.ndarray) or answer.dtype != np.bool_ or answer.shape != (size,):
        raise TypeError(f"mask gave {_kind(answer)}, expected bool[{size}]")
    return answer


def checked_scores(answer: object, *, size: int) -> Int64s:
    """Scores as they have to be.

    Raises:
        TypeError: they are not whole numbers [size], or out of range.
    """
    whole = isinstance(answer, np.ndarray) and answer.dtype.kind in "iu"
    if not isinstance(answer, np.ndarray) or not whole or answer.shape != (size,):
        raise TypeError(f"scores gave {_kind(answer)}, expected whole numbers [{size}]")
    if size and not 0 <= int(answer.min()) <= int(answer.max()) <= MAX_SCORE:
        raise TypeError(f"scores gave {answer.min()} to {answer.max()}, expected 0 to {MAX_SCORE}")
    return answer.astype(np.int64)


def _kind(answer: object) -> str:
    if isinstance(answer, np.ndarray):
        return f"{answer.dtype}{list(answer.shape)}"
    return type(answer).__name__


def said(error: Exception) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


class _Trouble:
    """What a plugin has failed with for a shape; its filter tells it, whoever noticed."""

    def __init__(self, plugin: OwnPlugin, shape: Shape) -> None:
        self.plugin = plugin
        self.shape = shape
        self.text: dict[str, str] = {}
        """By extension point; gone when that one works again."""

    def at(self, point: str, error: Exception) -> None:
        """The plugin failed at an extension point."""
        self.text[point] = f'running {point} plugin "{self.plugin.name}": {said(error)}'


class _GuardedFilter(Filter):
    """The plugin's mask; rejects everything, as an error, while the plugin fails."""

    def __init__(self, trouble: _Trouble, snapshot: Snapshot, *, masks: bool) -> None:
        self.name = trouble.plugin.name  # type: ignore[misc]
        self.reason = trouble.plugin.reason  # type: ignore[misc]
        self.unresolvable = trouble.plugin.unresolvable  # type: ignore[misc]
        self._trouble = trouble
        self._snapshot = snapshot
        self._masks = masks
        self._asked = 0

    @property
    def cause(self) -> Cause:  # type: ignore[override]
        """INVALID while the plugin fails: the Binder then refuses instead of sending back."""
        return Cause.INVALID if self._trouble.text else Cause.NODE_CHANGED

    def version(self) -> object:
        """Another value each time while the plugin fails, so that it is asked again."""
        self._asked += 1
        return self._asked if self._trouble.text else 0

    def passes(self, view: View) -> Bools | None:
        """bool[view.size]."""
        plugin, shape = self._trouble.plugin, self._trouble.shape
        if not self._masks:
            return None
        try:
            concerned = plugin.concerns(shape)
            answer = plugin.mask(shape, Nodes(view)) if concerned else None
            mask = None if answer is None else checked_mask(answer, size=view.size)
        except Exception as error:
            self._trouble.at("Filter", error)
            return np.zeros(view.size, dtype=np.bool_)
        self._trouble.text.pop("Filter", None)
        return mask

    def passes_row(self, row: int) -> bool:
        """The same for one row."""
        plugin, shape = self._trouble.plugin, self._trouble.shape
        if not self._masks:
            return True
        try:
            one = Nodes(View(self._snapshot, np.array([row], dtype=np.int64)))
            passes = not plugin.concerns(shape) or bool(plugin.mask_one(shape, one))
        except Exception as error:
            self._trouble.at("Filter", error)
            return False
        self._trouble.text.pop("Filter", None)
        return passes

    def failing_rows(self) -> Iterable[int]:
        """All live rows while the plugin fails."""
        if not self._trouble.text:
            return ()
        rows: list[int] = np.flatnonzero(View(self._snapshot).of(self._snapshot.live)).tolist()
        return rows

    def rejections(self, view: View) -> list[Rejection]:
        """The plugin's reason, or its error."""
        passes = self.passes(view)
        if self._trouble.text:
            text = "; ".join(self._trouble.text.values())
            everywhere = np.ones(view.size, dtype=np.bool_)
            return [Rejection(text, everywhere, unresolvable=False, error=True)]
        return [] if passes is None else [Rejection(self.reason, ~passes, self.unresolvable)]


class _GuardedScorer(Scorer):
    """The plugin's scores; 0 everywhere while the plugin fails, which its filter tells."""

    def __init__(self, trouble: _Trouble, snapshot: Snapshot) -> None:
        self.name = trouble.plugin.name  # type: ignore[misc]
        self._trouble = trouble
        self._snapshot = snapshot

    def raw(self, view: View) -> Int64s | None:
        """int64[view.size]."""
        plugin, shape = self._trouble.plugin, self._trouble.shape
        try:
            answer = plugin.scores(shape, Nodes(view)) if plugin.concerns(shape) else None
            scores = None if answer is None else checked_scores(answer, size=view.size)
        except Exception as error:
            self._trouble.at("Score", error)
            return None
        self._trouble.text.pop("Score", None)
        return scores

    def raw_row(self, row: int) -> int:
        """The same for one row."""
        plugin, shape = self._trouble.plugin, self._trouble.shape
        try:
            one = Nodes(View(self._snapshot, np.array([row], dtype=np.int64)))
            if not plugin.concerns(shape):
                return 0
            score = np.array([plugin.score_one(shape, one)])
            return int(checked_scores(score, size=1)[0])
        except Exception as error:
            self._trouble.at("Score", error)
            return 0
