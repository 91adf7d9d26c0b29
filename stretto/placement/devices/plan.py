"""What is done to a pod's claims before its bind: allocations that are written, claims that are
reserved for the pod, and the claim that is made for its extended resources."""

from __future__ import annotations

import uuid
from typing import NamedTuple

import msgspec

from stretto.model.devices import Allocation, Request
from stretto.model.shape import Shape
from stretto.placement.devices.claimed import (
    allocations_of,
    backed_resources,
    lacking,
    special_requests,
)
from stretto.placement.devices.world import world_of
from stretto.snapshot.columns import Snapshot

_SHARES = uuid.UUID("6f1c1c52-1f5c-4c57-9d0e-3d2d9c1f3b9a")
"""Namespace of the ids of shares, which have to be unique within a device."""


class DevicePlan(NamedTuple):
    """See the module docstring; claims are named namespace/name."""

    allocations: tuple[tuple[str, Allocation], ...] = ()
    """Of claims that have none yet; "" is the claim to be made for extended resources."""
    claims: tuple[str, ...] = ()
    """All claims of the pod, in its order; each is reserved for it."""
    special: tuple[Request, ...] = ()
    """What the claim to be made asks for."""
    resources: tuple[str, ...] = ()
    """The extended resources that it stands for."""


NO_DEVICES = DevicePlan()


def device_plan(shape: Shape, row: int, snapshot: Snapshot, *, attempt: str) -> DevicePlan:
    """The plan for a pod on a row that it fits, before it is counted there.

    ``attempt`` names this try at the pod: ids of shares derive from it, so that they are unique and
    the same in a replay.
    """
    if not shape.device_claims and not shape.device_containers:
        return NO_DEVICES
    world = world_of(snapshot)
    resources = lacking(world, backed_resources(world, shape), row)
    if not shape.device_claims and not resources:
        return NO_DEVICES
    chosen = allocations_of(world, shape, row)
    return DevicePlan(
        allocations=tuple((key, _with_ids(a, f"{attempt}/{key}")) for key, a in chosen),
        claims=tuple(f"{shape.namespace}/{ref.name}" for ref in shape.device_claims),
        special=special_requests(world, shape, resources),
        resources=resources,
    )


def _with_ids(allocation: Allocation, name: str) -> Allocation:
    results = tuple(
        msgspec.structs.replace(result, share_id=str(uuid.uuid5(_SHARES, f"{name}/{number}")))
        if result.share_id
        else result
        for number, result in enumerate(allocation.results)
    )
    return msgspec.structs.replace(allocation, results=results)
