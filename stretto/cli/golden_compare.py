"""Comparing one pod's evaluation with what kube-scheduler answered, point by point."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from stretto.cli.golden_answers import PodAnswer, PostFilterAnswer
from stretto.model.shape import Shape
from stretto.model.unit import Cause
from stretto.placement.evaluation import Evaluation
from stretto.placement.framework import Status
from stretto.placement.postfilter import PostFilterResult, condition_message
from stretto.placement.profiles import BUILT

if TYPE_CHECKING:
    from stretto.cli.golden_world import WorldState

_SUCCESS = ("Success", "", ())


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


class Comparison:
    """What was compared of one pod, what differs, and which points could not be compared."""

    def __init__(self, *, world: str, pod: str, nodes: list[str]) -> None:
        self._world = world
        self._pod = pod
        self.nodes = nodes
        self.checks = 0
        self.differences: list[Difference] = []
        self.left_out: list[str] = []
        """Points that this release has no answer for; never counted as passed."""

    def same(
        self, ours: object, upstream: object, *, plugin: str = "", node: int | None = None
    ) -> None:
        """Count a check, and a difference if the two are not equal."""
        self.checks += 1
        if ours != upstream:
            name = "" if node is None else self.nodes[node]
            self.differences.append(
                Difference(self._world, self._pod, name, plugin, ours, upstream)
            )


def compare_pod(
    answer: PodAnswer, shape: Shape, state: WorldState, *, nodes: list[str], world: str
) -> Comparison:
    """Compare one pod on the state as it is now."""
    found = Comparison(world=world, pod=answer.pod, nodes=nodes)
    held = state.pre_enqueue(answer.pod, shape)
    theirs = answer.pre_enqueue
    found.same(_key(held), theirs.key if theirs else None, plugin="preEnqueue")
    if held is not None or theirs is not None:
        return found
    ours = state.kernel.evaluate(shape)
    _prefilter(found, ours, answer)
    if ours.prefilter is None and (answer.pre_filter is None or answer.pre_filter.key == _SUCCESS):
        _filters(found, ours, answer)
        if not ours.error or answer.scheduler_error is not None:
            _scores(found, ours, answer)
            _kept(found, ours, shape, state)
            _chosen(found, ours, shape, answer, state)
    found.same(ours.error, answer.scheduler_error or "", plugin="schedulerError")
    _unschedulable(found, shape, answer, state)
    return found


def _key(status: Status | None) -> tuple[str, str, tuple[str, ...]] | None:
    return None if status is None else (status.code.value, status.plugin, status.reasons)


def _prefilter(found: Comparison, ours: Evaluation, answer: PodAnswer) -> None:
    theirs = _SUCCESS if answer.pre_filter is None else answer.pre_filter.key
    found.same(_key(ours.prefilter) or _SUCCESS, theirs, plugin="preFilter")
    # The recorded answers leave the list out when none of the named nodes exists.
    found.same(ours.prefilter_rows or None, answer.pre_filter_nodes, plugin="preFilterNodes")


def _filters(found: Comparison, ours: Evaluation, answer: PodAnswer) -> None:
    theirs = {node: status.key for status in answer.filter for node in status.nodes}
    for node in range(len(found.nodes)):
        status = ours.rejected.get(node)
        plugin = "" if status is None else status.plugin
        found.same(_key(status), theirs.get(node), plugin=plugin or "filter", node=node)
    found.same(ours.feasible, answer.feasible, plugin="feasible")


def _scores(found: Comparison, ours: Evaluation, answer: PodAnswer) -> None:
    scores = answer.scores
    if answer.scheduler_error is not None:
        return
    if scores is None or ours.feasible != answer.feasible or ours.error:
        scored = bool(ours.feasible) and not ours.error
        found.same(scored, scores is not None, plugin="scores")
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


def _kept(found: Comparison, ours: Evaluation, shape: Shape, state: WorldState) -> None:
    """What is used in production (kept totals, the one-row check) says what the evaluation says."""
    totals = dict(zip(ours.feasible, ours.total, strict=False))
    if ours.error:
        return
    for row, total in enumerate(state.kernel.totals(shape)):
        found.same(total, totals.get(row, -1), plugin="kept total", node=row)
        fits = state.kernel.check_one(shape, row) is Cause.NONE
        found.same(fits, row in totals, plugin="check", node=row)


def _chosen(
    found: Comparison, ours: Evaluation, shape: Shape, answer: PodAnswer, state: WorldState
) -> None:
    """The nominated node comes first; in sequence mode upstream's choice is the best node with the
    smallest name, unless a Reserve plugin refuses it."""
    name = shape.nominated_node
    nominated = next((row for row in ours.feasible if found.nodes[row] == name), None)
    found.same(nominated, answer.nominated_first, plugin="nominatedFirst")
    if answer.chosen is None and answer.reserve is None:
        return
    best = [nominated] if nominated is not None else ours.best
    chosen = min(best, key=lambda row: found.nodes[row], default=None)
    refused = None if chosen is None else state.reserve(shape, chosen)
    theirs = answer.reserve
    found.same(_key(refused), theirs.key if theirs else None, plugin="reserve")
    found.same(chosen if refused is None else None, answer.chosen, plugin="chosen")


def _unschedulable(found: Comparison, shape: Shape, answer: PodAnswer, state: WorldState) -> None:
    """The fit error, PostFilter and the whole message."""
    if answer.message is None:
        return
    fit_error = state.kernel.diagnose(shape).message
    found.same(fit_error, answer.fit_error or answer.message, plugin="fitError")
    if answer.post_filter is None:
        found.same(fit_error, answer.message, plugin="message")
        return
    ours = state.post_filter(answer.pod, shape)
    if ours is None:
        found.left_out.append("PostFilter, and its part of the message: not built")
        return
    found.same(condition_message(fit_error, ours), answer.message, plugin="message")
    _post_filter(found, ours, answer.post_filter)


def _post_filter(found: Comparison, ours: PostFilterResult, theirs: PostFilterAnswer) -> None:
    """Where upstream takes an arbitrary one of several nodes, ours has to be one of them; the
    recorded answer names the smallest, and so does :meth:`WorldState.post_filter`."""
    found.same(ours.code.value, theirs.code, plugin="postFilter code")
    found.same(ours.message, theirs.message, plugin="postFilter message")
    found.same(ours.nominate, theirs.nominate, plugin="nominate")
    found.same(list(ours.victims), theirs.victims, plugin="victims")
    mine = [(c.row, list(c.victims), c.pdb_violations) for c in ours.candidates]
    listed = [(c.node, c.victims, c.pdb_violations) for c in theirs.candidates]
    found.same(mine, listed, plugin="candidates")
    failed = {row: _key(status) for row, status in ours.dry_run}
    expected = {node: status.key for status in theirs.dry_run for node in status.nodes}
    for node in sorted({*failed, *expected}):
        found.same(failed.get(node), expected.get(node), plugin="dryRun", node=node)
