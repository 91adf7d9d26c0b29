"""Filtering beside nominated pods, as upstream's RunFilterPluginsWithNominatedPods does.

A pod must leave room for the pods that are nominated to a node and have at least its priority: the
filters are asked once with those counted on the node and once without, and both times the pod must
pass (the first for room and anti-affinity, the second for what a nominated pod may never provide).

Naive form: two passes over all nodes. The form chosen: nominations are few, so the vector form
knows nothing of them, and the rows that have some are asked one by one. Without nominations nothing
is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from stretto.model.shape import Shape
from stretto.placement.framework import Bools, Code, Filter, Rejection, Status, View
from stretto.snapshot.columns import Snapshot

Claims = Sequence[Shape]
"""Nominated pods to leave room for on a row."""
_NONE: Claims = ()


def claims_on(shape: Shape, row: int, *, snapshot: Snapshot) -> Claims:
    """The nominated pods that a shape has to leave room for on a row: all of at least its priority,
    but not the pod itself.

    Pods of one shape that are nominated to one node are interchangeable, so leaving any of them out
    is leaving the pod itself out.
    """
    name = snapshot.name[row]
    found = snapshot.nominations.ahead_of(name, shape.priority)
    if snapshot.quota.on:
        found += _ahead_by_quota(shape, name, snapshot)
    if not found:
        return _NONE
    if shape.nominated_node == name:
        own = next((o for o in found if _is_own(o, shape)), None) or next(
            (o for o in found if _is_own(o, shape, whatever_labels=True)), None
        )
        if own is not None:
            found.remove(own)
    return found


def _ahead_by_quota(shape: Shape, name: str, snapshot: Snapshot) -> Iterator[Shape]:
    """Nominated pods of less priority that are guaranteed what the shape would borrow."""
    for uid, other in snapshot.nominations.on(name).items():
        lower = other.priority < shape.priority and "#" not in uid
        if lower and snapshot.quota.yields(shape, other):
            yield other


def _is_own(other: Shape, shape: Shape, *, whatever_labels: bool = False) -> bool:
    """Whether a nomination may be the shape's own; labels may have been read under other keys."""
    bare = msgspec.structs.replace(shape, nominated_node="")
    if whatever_labels:
        bare = msgspec.structs.replace(bare, labels=(), label_keys=())
        other = msgspec.structs.replace(other, labels=(), label_keys=())
    return bare.digest == other.digest


def claimed_rows(shape: Shape, *, snapshot: Snapshot) -> list[tuple[int, Claims]]:
    """The rows on which a shape has to leave room for others, with the others."""
    found = []
    for name in snapshot.nominations.nodes():
        row = snapshot.row_of_name(name)
        if row is not None:
            claims = claims_on(shape, row, snapshot=snapshot)
            if claims:
                found.append((row, claims))
    return found


def that_look(filters: Sequence[Filter]) -> Sequence[Filter]:
    """Those that look at nominated pods, as things are before anybody is supposed away or there:
    a filter with nothing to say about the pods that are placed says nothing about these."""
    return [each for each in filters if not each.skips()]


def suppose_all(claims: Claims, row: int, by: int, *, snapshot: Snapshot) -> None:
    """Count nominated pods on a row, or off it again."""
    for claim in claims:
        snapshot.suppose(claim, row, by)


def rejecting(
    filters: Sequence[Filter], row: int, claims: Claims, *, snapshot: Snapshot
) -> Filter | None:
    """The first filter that rejects a row, with the claims counted or without; None: it passes."""
    if claims:
        suppose_all(claims, row, 1, snapshot=snapshot)
        try:
            first = _rejecting(filters, row)
        finally:
            suppose_all(claims, row, -1, snapshot=snapshot)
        if first is not None:
            return first
    return _rejecting(filters, row)


def _rejecting(filters: Sequence[Filter], row: int) -> Filter | None:
    for each in filters:
        if not each.passes_row(row):
            return each
    return None


def leave_claimed(
    filters: Sequence[Filter], shape: Shape, mask: Bools, *, view: View, snapshot: Snapshot
) -> Bools:
    """The mask (bool[view.size], of what passes without claims) less the rows whose claims leave no
    room."""
    gone = []
    claimed = [found for found in _claimed_in(view, shape, snapshot) if mask[found[0]]]
    if claimed:
        filters = that_look(filters)
    for at, row, claims in claimed:
        if rejecting(filters, row, claims, snapshot=snapshot) is not None:
            gone.append(at)
    if not gone:
        return mask
    mask = mask.copy()
    mask[gone] = False
    return mask


def _claimed_in(view: View, shape: Shape, snapshot: Snapshot) -> Iterator[tuple[int, int, Claims]]:
    """(place in the view, row, claims) of the rows of a view that have claims."""
    if view.rows is None:
        for row, claims in claimed_rows(shape, snapshot=snapshot):
            yield row, row, claims
        return
    for at, row in enumerate(view.rows.tolist()):
        claims = claims_on(shape, row, snapshot=snapshot)
        if claims:
            yield at, row, claims


def status_of(
    filters: Sequence[Filter], row: int, claims: Claims, *, snapshot: Snapshot
) -> Status | None:
    """Why a row is rejected, in upstream's words; None: it passes."""
    found = rejections_of(filters, row, claims, snapshot=snapshot)
    if found is None:
        return None
    return status_from(*found)


def status_from(plugin: str, rejections: list[Rejection]) -> Status:
    """The status that rejections of a single row add up to."""
    code = Code.UNSCHEDULABLE
    if any(rejection.error for rejection in rejections):
        code = Code.ERROR
    elif any(_unresolvable(rejection) for rejection in rejections):
        code = Code.UNRESOLVABLE
    return Status(code, plugin, tuple(sorted(rejection.reason for rejection in rejections)))


def rejections_of(
    filters: Sequence[Filter], row: int, claims: Claims, *, snapshot: Snapshot
) -> tuple[str, list[Rejection]] | None:
    """(plugin, its rejections) of the first filter that rejects a row; None: it passes."""
    if claims:
        suppose_all(claims, row, 1, snapshot=snapshot)
        try:
            found = _rejections_of(filters, row, snapshot)
        finally:
            suppose_all(claims, row, -1, snapshot=snapshot)
        if found is not None:
            return found
    return _rejections_of(filters, row, snapshot)


def rejected_together(
    filters: Sequence[Filter], claimed: Sequence[tuple[int, Claims]], *, snapshot: Snapshot
) -> dict[int, tuple[str, list[Rejection]]]:
    """:func:`rejections_of` for many rows at once, those that pass with their claims left out; only
    for filters that look at nothing but the row."""
    for row, claims in claimed:
        suppose_all(claims, row, 1, snapshot=snapshot)
    try:
        view = View(snapshot, np.array([row for row, _ in claimed], dtype=np.int64))
        found: dict[int, tuple[str, list[Rejection]]] = {}
        for each in filters:
            for rejection in each.rejections(view):
                for at in np.flatnonzero(rejection.rows).tolist():
                    plugin, before = found.setdefault(claimed[at][0], (each.name, []))
                    if plugin == each.name:
                        before.append(_single(rejection, at))
        return found
    finally:
        for row, claims in claimed:
            suppose_all(claims, row, -1, snapshot=snapshot)


def _single(rejection: Rejection, at: int) -> Rejection:
    hard = rejection.unresolvable
    hard = hard if isinstance(hard, bool) else hard[at : at + 1]
    return Rejection(rejection.reason, rejection.rows[at : at + 1], hard, rejection.error)


def _rejections_of(
    filters: Sequence[Filter], row: int, snapshot: Snapshot
) -> tuple[str, list[Rejection]] | None:
    view = View(snapshot, np.array([row], dtype=np.int64))
    for each in filters:
        rejections = [rejection for rejection in each.rejections(view) if rejection.rows[0]]
        if rejections:
            return each.name, rejections
    return None


def _unresolvable(rejection: Rejection) -> bool:
    hard = rejection.unresolvable
    return hard if isinstance(hard, bool) else bool(hard[0])
