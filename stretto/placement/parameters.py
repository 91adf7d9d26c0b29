"""What pods share that differ in their parameters only (design §12.11): the node of a DaemonSet's
pod, and claims of one kind that nobody has touched yet.

A compiled shape is kept under a key. Pods of one key have the same filters, scores and totals once
the compiled shape is bound to the pod at hand, so thousands of daemon pods, or of StatefulSet pods
with claims of their own (to volumes or to devices), are compiled and scored once. Whatever is not
surely like the others keeps a key of its own, its digest.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from stretto.model.shape import Shape
from stretto.placement.devices.claimed import fresh_claims
from stretto.placement.devices.world import world_of
from stretto.placement.profiles import Profile
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.volumes import Untouched


class Kept(NamedTuple):
    """How a shape is compiled."""

    key: Hashable
    """Equal for shapes that can share what is compiled."""
    base: Shape
    """What to compile where there is nothing yet."""
    narrowed: bool = False
    """The pod's one node is a parameter."""
    lent: bool = False
    """Its claims are parameters: totals are not those of the pod's own claims once these are
    assumed."""


def kept_as(shape: Shape, profile: Profile, snapshot: Snapshot) -> Kept:
    """How a shape is compiled for a profile, as things are now."""
    narrowed = bool(shape.only_node) and _narrows(shape, profile)
    base = shape.anywhere if narrowed else shape.spelled_out
    kinds = None
    has_claims = base.claims or base.device_claims
    if has_claims and not base.device_containers and not profile.has_own:
        kinds = alike(base, snapshot)
    if kinds is not None:
        return Kept((narrowed, base.claimless.digest, kinds), base, narrowed, lent=True)
    return Kept((narrowed, base.digest), base, narrowed)


def _narrows(shape: Shape, profile: Profile) -> bool:
    """Whether PreFilter looks at no other node, so that the terms need not say which. Spread asks
    which nodes they admit, and own plugins may read them."""
    return (
        profile.affinity_narrows
        and not shape.spread
        and not shape.node_name
        and not profile.has_own
    )


def alike(shape: Shape, snapshot: Snapshot) -> tuple[Hashable, ...] | None:
    """What all claims of a shape are, but for their names; None: there is more to know of one."""
    volumes = untouched_claims(shape, snapshot)
    if not shape.device_claims or volumes is None:
        return volumes
    devices = fresh_claims(world_of(snapshot), shape)
    return None if devices is None else (volumes, devices)


def untouched_claims(shape: Shape, snapshot: Snapshot) -> tuple[Untouched, ...] | None:
    """What the claims of a shape are, but for their names; None if there is more to know of one:
    it has a volume or a node, somebody uses it, or it does not wait for a consumer."""
    book = snapshot.volumes
    found = []
    for claim in shape.claims:
        state = book.state(f"{shape.namespace}/{claim.name}")
        if not isinstance(state, Untouched):
            return None
        storage_class = book.classes.get(state.storage_class)
        if storage_class is None or not storage_class.waits:
            return None
        if claim.pod and state.owner_uid != claim.pod_uid:
            return None
        found.append(state._replace(owner_uid="of the pod" if claim.pod else ""))
    distinct = {claim.name for claim in shape.claims}
    return tuple(found) if len(distinct) == len(found) else None
