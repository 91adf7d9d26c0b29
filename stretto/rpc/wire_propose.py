"""Propose: ProposalBatch and VerdictBatch ↔ bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from proto import stretto_pb2 as pb
from stretto.model.unit import Cause, Diagnosis, Proposal, Release, Verdict, VerdictKind
from stretto.rpc.errors import WireError
from stretto.rpc.messages import ProposalBatch, VerdictBatch
from stretto.rpc.wire import (
    chained,
    exact,
    full,
    get_hello,
    get_not_leader,
    get_shapes,
    members,
    parse,
    put_hello,
    put_not_leader,
    put_shapes,
    short,
    slices,
)
from stretto.rpc.wire_diagnoses import get_some_diagnoses, put_some_diagnoses
from stretto.rpc.wire_units import (
    get_attempts,
    get_units,
    put_attempts,
    put_units,
    unit_ids,
)


def encode_proposals(message: ProposalBatch) -> bytes:
    """ProposalBatch → bytes."""
    wire = pb.ProposalBatch(binder_epoch=message.binder_epoch, resent=message.resent)
    put_hello(wire, message.hello)
    put_shapes(wire.shapes, message.shapes)
    wire.forgotten.extend(message.forgotten)
    proposals = message.proposals
    if proposals:
        put_units(wire.units, [item.unit for item in proposals])
        wire.node.extend(chained([item.nodes for item in proposals]))
        spares = [item.spares for item in proposals]
        wire.spare_count.extend(short([len(run) for run in spares], 0))
        wire.spare.extend(chained(spares))
        wire.decided_at.extend(short([item.decided_at for item in proposals], 0))
        if any(item.victims for item in proposals):
            victims = [item.victims for item in proposals]
            wire.victim_count.extend(short([len(run) for run in victims], 0))
            wire.victim_uid.extend(chained(victims))
            put_some_diagnoses(wire, [item.diagnosis for item in proposals])
    wire.release_claim.extend([item.claim for item in message.releases])
    wire.release_claim_uid.extend([item.claim_uid for item in message.releases])
    wire.release_pod.extend([item.pod for item in message.releases])
    return wire.SerializeToString()


def decode_proposals(data: bytes) -> ProposalBatch:
    """Bytes → ProposalBatch.

    Raises:
        WireError: the message breaks the contract.
    """
    wire = parse(pb.ProposalBatch, data)
    units = get_units(wire.units, "ProposalBatch.units")
    count = len(units)
    spare_counts = full(wire.spare_count, count, 0, "ProposalBatch.spare_count")
    proposals = map(
        Proposal,
        units,
        slices(list(wire.node), [len(unit.members) for unit in units], "ProposalBatch.node"),
        slices(list(wire.spare), spare_counts, "ProposalBatch.spare"),
        full(wire.decided_at, count, 0, "ProposalBatch.decided_at"),
        *_get_victims(wire, count),
    )
    return ProposalBatch(
        hello=get_hello(wire),
        binder_epoch=wire.binder_epoch,
        shapes=get_shapes(wire.shapes, "ProposalBatch.shapes"),
        proposals=list(proposals),
        resent=wire.resent,
        forgotten=list(wire.forgotten),
        releases=_get_releases(wire),
    )


def _get_releases(wire: Any) -> list[Release]:
    claims = list(wire.release_claim)
    uids = exact(wire.release_claim_uid, len(claims), "ProposalBatch.release_claim_uid")
    pods = exact(wire.release_pod, len(claims), "ProposalBatch.release_pod")
    return list(map(Release, claims, uids, pods))


def _get_victims(
    wire: Any, count: int
) -> tuple[Iterable[tuple[str, ...]], Iterable[Diagnosis | None]]:
    if not wire.victim_count:
        return [()] * count, [None] * count
    counts = full(wire.victim_count, count, 0, "ProposalBatch.victim_count")
    return (
        slices(list(wire.victim_uid), counts, "ProposalBatch.victim_uid"),
        get_some_diagnoses(wire, count, "ProposalBatch"),
    )


def encode_verdicts(message: VerdictBatch) -> bytes:
    """VerdictBatch → bytes."""
    wire = pb.VerdictBatch(binder_epoch=message.binder_epoch)
    put_not_leader(wire, message.not_leader)
    verdicts = message.verdicts
    if verdicts:
        wire.unit_id.extend([item.unit_id for item in verdicts])
        put_attempts(wire, [item.attempt for item in verdicts])
        kinds = [item.kind for item in verdicts]
        wire.kind.extend(short([int(kind) for kind in kinds], 0))
        wire.cause.extend(short([int(item.cause) for item in verdicts], 0))
        wire.sequence.extend(short([item.sequence for item in verdicts], 0))
        counts = [len(item.nodes) for item in verdicts]
        if counts != _usual_counts(kinds):
            wire.node_count.extend(counts)
        wire.node.extend(chained([item.nodes for item in verdicts]))
    return wire.SerializeToString()


def decode_verdicts(data: bytes) -> VerdictBatch:
    """Bytes → VerdictBatch.

    Raises:
        WireError: the message breaks the contract.
    """
    wire = parse(pb.VerdictBatch, data)
    ids = unit_ids(wire.unit_id)
    count = len(ids)
    if count and not wire.kind:
        raise WireError(f"VerdictBatch.kind is empty for {count} verdicts")
    kinds = members(VerdictKind, wire.kind, count, VerdictKind.REFUSED, "VerdictBatch.kind")
    counts = _usual_counts(kinds)
    if wire.node_count:
        counts = exact(wire.node_count, count, "VerdictBatch.node_count")
    verdicts = map(
        Verdict,
        ids,
        get_attempts(wire, count, "VerdictBatch"),
        kinds,
        members(Cause, wire.cause, count, Cause.NONE, "VerdictBatch.cause"),
        full(wire.sequence, count, 0, "VerdictBatch.sequence"),
        slices(list(wire.node), counts, "VerdictBatch.node"),
    )
    return VerdictBatch(wire.binder_epoch, list(verdicts), get_not_leader(wire))


def _usual_counts(kinds: list[VerdictKind]) -> list[int]:
    return [1 if kind is VerdictKind.COMMITTED else 0 for kind in kinds]
