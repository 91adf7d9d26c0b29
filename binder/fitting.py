"""Whether a unit has room on the nodes that its proposal names, by memory.

What a shard's filters said on its picture, the same code says again on the Binder's, spares
included; and a unit that has room is counted there tentatively, so that the next one sees it.
"""

from __future__ import annotations

import msgspec

from binder.charges import Charges
from binder.cluster import Cluster
from binder.proposals import Incoming, Tentative, lines_of
from stretto.ledger.types import LedgerMember, LedgerUnit, Lines
from stretto.model.shape import Shape
from stretto.model.unit import Attempt, Cause
from stretto.placement.devices.plan import NO_DEVICES, DevicePlan
from stretto.placement.gang import Topologies
from stretto.placement.kernel import Kernel
from stretto.placement.volume_plan import NO_VOLUMES

_REMEMBERED_LINES = 65_536


class NoRoom(msgspec.Struct, frozen=True):
    """Why a unit may not stay."""

    cause: Cause
    nodes: list[int]
    """Node ids that it was looked for on."""
    detail: str = ""
    """A sentence, where the cause does not say it all."""


class Fitting:
    """See the module docstring."""

    def __init__(self, cluster: Cluster, kernel: Kernel, charges: Charges) -> None:
        self._cluster = cluster
        self._kernel = kernel
        self._charges = charges
        self._topologies = Topologies(cluster.snapshot)
        self._lines: dict[bytes, Lines] = {}

    def fit(self, incoming: Incoming) -> Tentative | NoRoom:
        """Count all members on their nodes, or none of them."""
        tentative = Tentative(incoming, list(incoming.proposal.nodes), [], [], [], [])
        cause = Cause.NONE
        for index, shape in enumerate(incoming.shapes):
            cause = self._count(tentative, shape, index)
            if cause is not Cause.NONE:
                break
        rows = tentative.rows
        if cause is Cause.NONE:
            cause = self._topologies.objection(incoming.shapes[0].group, rows)
        if cause is Cause.NONE:
            assert len(rows) == len(tentative.nodes) == len(incoming.proposal.unit.members)
            return tentative
        snapshot, detail = self._cluster.snapshot, ""
        if cause is Cause.QUOTA:
            detail = snapshot.quota.refusal(incoming.shapes[len(rows)])
        for shape, row in zip(incoming.shapes, rows, strict=False):
            snapshot.remove_pod(shape, row)
        return NoRoom(cause, tentative.nodes, detail)

    def _count(self, tentative: Tentative, shape: Shape, index: int) -> Cause:
        """Count one member on its node, or on a spare one if it is alone."""
        proposal, nodes = tentative.incoming.proposal, tentative.nodes
        row, cause = self._fits(shape, nodes[index])
        if cause is not Cause.NONE and len(tentative.incoming.shapes) == 1:
            for spare in proposal.spares:
                row, spare_cause = self._fits(shape, spare)
                if spare_cause is Cause.NONE:
                    nodes[0], cause = spare, Cause.NONE
                    break
        if cause is not Cause.NONE:
            return cause
        volumes = self._kernel.volume_plan(shape, row) if shape.claims else NO_VOLUMES
        uid = proposal.unit.members[index].uid
        devices = self._device_plan(shape, row, uid, proposal.unit.attempt)
        tentative.volumes.append(volumes)
        tentative.devices.append(devices)
        tentative.charges.append(self._charges.wanted(shape, row, volumes, devices))
        self._cluster.snapshot.add_pod(shape, row)
        tentative.rows.append(row)
        return Cause.NONE

    def _device_plan(self, shape: Shape, row: int, uid: str, attempt: Attempt) -> DevicePlan:
        if not shape.device_claims and not shape.device_containers:
            return NO_DEVICES
        name = f"{uid}/{attempt.epoch}.{attempt.number}"
        return self._kernel.device_plan(shape, row, attempt=name)

    def _fits(self, shape: Shape, node_id: int) -> tuple[int, Cause]:
        row = self._cluster.snapshot.row_of(node_id)
        if row is None:
            return -1, Cause.NODE_GONE
        cause = self._kernel.check_one(shape, row)
        if shape.claims and cause is Cause.NONE and not self._agrees(shape, row):
            cause = Cause.VOLUMES
        return row, cause

    def _agrees(self, shape: Shape, row: int) -> bool:
        """Whether claims that other pods in flight have as well get the same there. By the filter
        alone, a claim that is about to get a volume might be provisioned elsewhere, too."""
        snapshot = self._cluster.snapshot
        plan, node = self._kernel.volume_plan(shape, row), snapshot.name[row]
        wanted = [(claim, volume, "") for claim, volume in plan.static]
        wanted += [(claim, "", node) for claim in plan.provision]
        return all(
            promised in (None, (volume, place))
            for claim, volume, place in wanted
            for promised in (
                self._cluster.storage.promised(claim),
                snapshot.volumes.assumption(claim),
            )
        )

    def ledger_unit(self, tentative: Tentative) -> LedgerUnit:
        """What the ledger is asked for."""
        incoming, rows = tentative.incoming, tentative.rows
        unit = incoming.proposal.unit
        uids = self._cluster.snapshot.node_uid
        members = [
            LedgerMember(
                member.uid,
                uids[row],
                member.resource_version,
                lines_of(shape, met=plan.resources) if plan.resources else self._lines_of(shape),
                charged,
            )
            for member, shape, row, plan, charged in zip(
                unit.members,
                incoming.shapes,
                rows,
                tentative.devices,
                tentative.charges,
                strict=True,
            )
        ]
        return LedgerUnit(unit.unit_id, unit.attempt, tuple(members))

    def _lines_of(self, shape: Shape) -> Lines:
        lines = self._lines.get(shape.digest)
        if lines is None:
            if len(self._lines) >= _REMEMBERED_LINES:
                self._lines.clear()
            lines = self._lines[shape.digest] = lines_of(shape)
        return lines
