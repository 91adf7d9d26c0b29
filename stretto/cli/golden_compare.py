"""Comparing one pod's evaluation with what kube-scheduler answered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from stretto.model.shape import Shape
from stretto.model.unit import Cause
from stretto.placement.evaluation import Evaluation
from stretto.placement.profiles import BUILT

if TYPE_CHECKING:
    from stretto.cli.golden_world import WorldState


class StatusAnswer(msgspec.Struct, rename="camel"):
    """A status, and the nodes (indices) that have it."""

    code: str
    plugin: str = ""
    reasons: list[str] = []
    nodes: list[int] = []


class ScoresAnswer(msgspec.Struct):
    """Scores parallel to ``feasible``."""

    raw: dict[str, list[int]] = {}
    weighted: dict[str, list[int]] = {}
    total: list[int] = []


class PodAnswer(msgspec.Struct, rename="camel"):
    """What upstream decided about one pending pod."""

    pod: str
    pre_enqueue: StatusAnswer | None = None
    pre_filter: StatusAnswer | None = None
    pre_filter_nodes: list[int] | None = None
    filter: list[StatusAnswer] = []
    feasible: list[int] = []
    scores: ScoresAnswer | None = None
    best: list[int] = []
    chosen: int | None = None
    fit_error: str | None = None
    scheduler_error: str | None = None

    def speaking(self) -> Iterator[str]:
        """Plugins that reject anything or add to any score."""
        if self.pre_filter is not None and self.pre_filter.plugin:
            yield self.pre_filter.plugin
        for status in self.filter:
            if status.plugin:
                yield status.plugin
        if self.scores is not None:
            for plugin, values in self.scores.weighted.items():
                if any(values):
                    yield plugin


class Difference(NamedTuple):
    """One value that is not upstream's."""

    world: str
    pod: str
    node: str
    plugin: str
    ours: object
    upstream: object

    def __str__(self) -> str:
        """One line."""
        where = f"{self.world} {self.pod} {self.node or '-'} {self.plugin or '-'}"
        return f"{where}: ours {self.ours!r}, upstream {self.upstream!r}"


class _Comparison:
    def __init__(self, *, world: str, pod: str, nodes: list[str]) -> None:
        self._world = world
        self._pod = pod
        self._nodes = nodes
        self.checks = 0
        self.differences: list[Difference] = []

    def same(
        self, ours: object, upstream: object, *, plugin: str = "", node: int | None = None
    ) -> None:
        """Count a check, and a difference if the two are not equal."""
        self.checks += 1
        if ours != upstream:
            name = "" if node is None else self._nodes[node]
            self.differences.append(
                Difference(self._world, self._pod, name, plugin, ours, upstream)
            )


def compare_pod(
    answer: PodAnswer, shape: Shape, state: WorldState, *, nodes: list[str], world: str
) -> tuple[int, list[Difference]]:
    """(checks made, differences found) for one pod on the state as it is now."""
    found = _Comparison(world=world, pod=answer.pod, nodes=nodes)
    ours = state.kernel.evaluate(shape)
    _prefilter(found, ours, answer)
    if ours.prefilter is None and (answer.pre_filter is None or not answer.pre_filter.plugin):
        _filters(found, ours, answer, count=len(nodes))
        _scores(found, ours, answer)
        _kept(found, ours, shape, state)
    if answer.fit_error is not None:
        found.same(state.kernel.diagnose(shape).message, answer.fit_error, plugin="fitError")
    return found.checks, found.differences


def _prefilter(found: _Comparison, ours: Evaluation, answer: PodAnswer) -> None:
    mine: tuple[str, str, tuple[str, ...]] = ("Success", "", ())
    if ours.prefilter is not None:
        mine = (ours.prefilter.code.value, ours.prefilter.plugin, ours.prefilter.reasons)
    status = answer.pre_filter
    theirs: tuple[str, str, tuple[str, ...]] = ("Success", "", ())
    if status is not None:
        theirs = (status.code, status.plugin, tuple(status.reasons))
    found.same(mine, theirs, plugin="preFilter")
    # The recorded answers leave the list out when none of the named nodes exists.
    found.same(ours.prefilter_rows or None, answer.pre_filter_nodes, plugin="preFilterNodes")


def _filters(found: _Comparison, ours: Evaluation, answer: PodAnswer, *, count: int) -> None:
    theirs = {
        node: (status.code, status.plugin, tuple(status.reasons))
        for status in answer.filter
        for node in status.nodes
    }
    for node in range(count):
        status = ours.rejected.get(node)
        mine = None if status is None else (status.code.value, status.plugin, status.reasons)
        plugin = "" if status is None else status.plugin
        found.same(mine, theirs.get(node), plugin=plugin or "filter", node=node)
    found.same(ours.feasible, answer.feasible, plugin="feasible")


def _scores(found: _Comparison, ours: Evaluation, answer: PodAnswer) -> None:
    scores = answer.scores
    if scores is None or ours.feasible != answer.feasible:
        found.same(bool(ours.feasible), scores is not None, plugin="scores")
        return
    zeros = [0] * len(ours.feasible)
    for mine, theirs in ((ours.raw, scores.raw), (ours.weighted, scores.weighted)):
        for plugin in sorted({*mine, *theirs} & BUILT):
            values = zip(mine.get(plugin, zeros), theirs.get(plugin, zeros), strict=True)
            for node, (a, b) in zip(ours.feasible, values, strict=True):
                found.same(a, b, plugin=plugin, node=node)
    for node, a, b in zip(ours.feasible, ours.total, scores.total, strict=True):
        found.same(a, b, plugin="total", node=node)
    found.same(ours.best, answer.best, plugin="best")


def _kept(found: _Comparison, ours: Evaluation, shape: Shape, state: WorldState) -> None:
    """What is used in production (kept totals, the one-row check) says what the evaluation says."""
    totals = dict(zip(ours.feasible, ours.total, strict=True))
    for row, total in enumerate(state.kernel.totals(shape)):
        found.same(total, totals.get(row, -1), plugin="kept total", node=row)
        fits = state.kernel.check_one(shape, row) is Cause.NONE
        found.same(fits, row in totals, plugin="check", node=row)
