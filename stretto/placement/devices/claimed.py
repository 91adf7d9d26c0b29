"""What a pod's claims come to: which are allocated, which have to be, and what they would get."""

from __future__ import annotations

import msgspec

from stretto.model.devices import (
    Allocation,
    ClaimRow,
    Request,
    Result,
    SubRequest,
)
from stretto.model.shape import DeviceContainer, NodeTerm, Requirement, Shape
from stretto.placement.devices.allocator import Chosen, Wanted
from stretto.placement.devices.problem import Problem
from stretto.placement.devices.world import DeviceWorld
from stretto.placement.node_selector import NAME_FIELD

SPECIAL_CLAIM = "<extended-resources>"
"""The name in texts of the claim that is made for extended resources."""


class Plan(msgspec.Struct, frozen=True):
    """The claims of a shape as they are now."""

    allocated: tuple[ClaimRow, ...]
    fresh: tuple[ClaimRow, ...]
    """To be allocated, in the pod's order."""
    missing: bool = False
    """A claim is not there (PreFilter says which)."""

    @property
    def wanted(self) -> tuple[Wanted, ...]:
        """What the claims to be allocated ask for."""
        return tuple(Wanted(claim.requests, claim.constraints) for claim in self.fresh)

    def problem(self, world: DeviceWorld, special: tuple[Request, ...]) -> Problem | None:
        """What has to be solved on a node; None if nothing has to be allocated."""
        wanted = self.wanted
        if special:
            wanted += (Wanted(special),)
        return world.problem(wanted) if wanted else None

    def name(self, number: int, namespace: str) -> str:
        """namespace/name of the claim with this number in a problem."""
        if number < len(self.fresh):
            return self.fresh[number].key
        return f"{namespace}/{SPECIAL_CLAIM}"


def plan_of(world: DeviceWorld, shape: Shape) -> Plan:
    """Sort the claims of a shape."""
    found = [world.claims.get(f"{shape.namespace}/{ref.name}") for ref in shape.device_claims]
    there = [claim for claim in found if claim is not None]
    return Plan(
        allocated=tuple(claim for claim in there if claim.allocation is not None),
        fresh=tuple(claim for claim in there if claim.allocation is None),
        missing=len(there) < len(found),
    )


def fresh_claims(world: DeviceWorld, shape: Shape) -> tuple[Wanted, ...] | None:
    """What the claims of a shape ask for; None if one is not there or has devices already."""
    found = []
    for ref in shape.device_claims:
        claim = world.claims.get(f"{shape.namespace}/{ref.name}")
        if claim is None or claim.allocation is not None:
            return None
        found.append(Wanted(claim.requests, claim.constraints))
    return tuple(found)


def backed_resources(world: DeviceWorld, shape: Shape) -> tuple[str, ...]:
    """Extended resources of a shape that devices may back, sorted."""
    if not shape.device_containers or not world.backed:
        return ()
    names = {name for each in shape.device_containers for name, _, _ in each.requests}
    return tuple(sorted(names & world.backed.keys()))


def lacking(world: DeviceWorld, resources: tuple[str, ...], row: int) -> tuple[str, ...]:
    """Those of the resources that a node does not have itself, so that devices must do."""
    found = []
    for name in resources:
        column = world.snapshot.resources.get(name)
        if column is None or not column.alloc_cells[row]:
            found.append(name)
    return tuple(found)


def special_requests(
    world: DeviceWorld, shape: Shape, resources: tuple[str, ...]
) -> tuple[Request, ...]:
    """The requests of the claim that is made for extended resources (createRequestsAndMappings).

    Init containers that end before others start may use what later containers ask for; of what they
    need beyond that, the largest is asked for once.
    """
    requests: list[Request] = []
    for resource in resources:
        requests += _requests_for(shape.device_containers, resource, world.backed[resource].name)
    return tuple(sorted(requests, key=lambda request: request.name))


def _requests_for(
    containers: tuple[DeviceContainer, ...], resource: str, class_name: str
) -> list[Request]:
    lasting = _lasting(containers, resource, class_name)
    largest = _largest(containers, resource, class_name, lasting)
    return [*([] if largest is None else [largest]), *lasting.values()]


def _lasting(
    containers: tuple[DeviceContainer, ...], resource: str, class_name: str
) -> dict[int, Request]:
    """Requests of containers that run as long as the pod does, by container."""
    found: dict[int, Request] = {}
    for i, container in enumerate(containers):
        amount, position = _wish(container, resource)
        if not container.initial and amount:
            found[i] = _request(i, position, class_name, amount)
    return found


def _largest(
    containers: tuple[DeviceContainer, ...],
    resource: str,
    class_name: str,
    lasting: dict[int, Request],
) -> Request | None:
    """The largest that an init container needs beyond what it may use of later ones."""
    largest: Request | None = None
    for i, container in enumerate(containers):
        amount, position = _wish(container, resource)
        if not container.initial or not amount:
            continue
        extra = amount - sum(_count(request) for j, request in lasting.items() if j >= i)
        if extra > 0 and (largest is None or _count(largest) < extra):
            largest = _request(i, position, class_name, extra)
    return largest


def container_mappings(shape: Shape, resources: tuple[str, ...]) -> list[tuple[int, str, str]]:
    """(container, resource, request whose devices it gets), containers by position."""
    found: list[tuple[int, str, str]] = []
    containers = shape.device_containers
    for resource in resources:
        lasting = _lasting(containers, resource, "")
        largest = _largest(containers, resource, "", lasting)
        found += [(i, resource, request.name) for i, request in lasting.items()]
        for i, container in enumerate(containers):
            amount, _ = _wish(container, resource)
            if not container.initial or not amount:
                continue
            for j in sorted(j for j in lasting if j >= i):
                found.append((i, resource, lasting[j].name))
                amount -= _count(lasting[j])
                if amount <= 0:
                    break
            if amount > 0 and largest is not None:
                found.append((i, resource, largest.name))
    return found


def _wish(container: DeviceContainer, resource: str) -> tuple[int, int]:
    for name, amount, position in container.requests:
        if name == resource:
            return amount, position
    return 0, 0


def _request(container: int, position: int, class_name: str, count: int) -> Request:
    name = f"container-{container}-request-{position}"
    return Request(name, SubRequest(name, class_name, count=count))


def _count(request: Request) -> int:
    return 0 if request.exactly is None else request.exactly.count


def allocations_of(world: DeviceWorld, shape: Shape, row: int) -> list[tuple[str, Allocation]]:
    """What the claims of a shape that have to be allocated would get on a row: (key, allocation)
    pairs, the key of the special claim being ""; empty if they cannot be met or there are none."""
    plan = plan_of(world, shape)
    special = special_requests(world, shape, lacking(world, backed_resources(world, shape), row))
    problem = plan.problem(world, special)
    found = None if problem is None else problem.choose(row)
    if found is None:
        return []
    keys = [claim.key for claim in plan.fresh] + ([""] if special else [])
    name = world.snapshot.name[row]
    return [(key, _allocation(chosen, name)) for key, chosen in zip(keys, found, strict=True)]


def rows_of(
    world: DeviceWorld, shape: Shape, allocations: list[tuple[str, Allocation]], *, special: str
) -> list[ClaimRow]:
    """The claims of a shape with what was chosen for them: rows that make it known to everyone.

    ``special``: the name to give to the claim that is made for extended resources.
    """
    found = []
    for key, allocation in allocations:
        row = world.claims.get(key)
        if row is None:
            row = ClaimRow(shape.namespace, special, uid="", extended=True)
        found.append(msgspec.structs.replace(row, allocation=allocation))
    return found


def _allocation(chosen: list[Chosen], node_name: str) -> Allocation:
    return Allocation(
        results=tuple(map(_result, chosen)), selector=_selector(chosen, node_name), pending=True
    )


def _result(chosen: Chosen) -> Result:
    row, id_ = chosen.device.row, chosen.device.id
    return Result(
        request=chosen.request,
        driver=id_.driver,
        pool=id_.pool,
        device=id_.device,
        admin=chosen.wanted.admin,
        share_id="?" if chosen.shared else "",
        consumed=tuple(sorted(chosen.consumed.items())),
        binding_conditions=row.binding_conditions,
        binding_failures=row.binding_failures,
        tolerations=chosen.wanted.tolerations,
    )


def _selector(chosen: list[Chosen], node_name: str) -> tuple[NodeTerm, ...] | None:
    """On which nodes the claim can be used: this one if a device is bound to it, else where all
    devices are (createNodeSelector)."""
    expressions: list[Requirement] = []
    fields: list[Requirement] = []
    for each in chosen:
        device = each.device
        where = device.row.where if device.per_device else device.slice_where
        if where.node_name or device.row.binds_to_node:
            return (NodeTerm(fields=(Requirement(NAME_FIELD, "In", (node_name,)),)),)
        for term in (where.selector or ())[:1]:
            expressions += [r for r in term.expressions if r not in expressions]
            fields += [r for r in term.fields if r not in fields]
    if not expressions and not fields:
        return None
    return (NodeTerm(tuple(expressions), tuple(fields)),)
