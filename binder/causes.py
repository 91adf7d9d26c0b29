"""What proposals are lost to: the ledger's refusals, what pods that end may mend, and the words for
people."""

from __future__ import annotations

from binder.accounts import ATTACHMENTS, COUNTERS, DEVICE, VOLUME
from stretto.ledger.types import ReserveKind
from stretto.model.unit import Cause, OutcomeKind, VerdictKind

LEDGER_CAUSES = {
    ReserveKind.NO_FIT: Cause.LEDGER,
    ReserveKind.ACCOUNT_MISSING: Cause.NONE,  # as GONE_CAUSES says
    ReserveKind.FLAGGED: Cause.FROZEN,
}
GONE_CAUSES = {
    "node": Cause.NODE_GONE,
    VOLUME: Cause.VOLUMES,
    ATTACHMENTS: Cause.VOLUMES,
    DEVICE: Cause.DEVICES,
    COUNTERS: Cause.DEVICES,
}
"""Kind of account → what it means that it is gone."""
FOR_ROOM = frozenset(
    {Cause.CAPACITY, Cause.NODE_CHANGED, Cause.SPREAD, Cause.AFFINITY, Cause.DEVICES}
)
"""Causes that pods which end may mend."""
CAUSE_TEXTS = {
    Cause.CAPACITY: "another commit took the room",
    Cause.NODE_GONE: "the node was deleted",
    Cause.NODE_CHANGED: "the node's labels, taints, cordon or ports no longer admit the pod",
    Cause.LABEL_KEYS: "a new selector reads labels that the decision did not know of",
    Cause.LEDGER: "the ledger refused what memory allowed; the node is being audited",
    Cause.FROZEN: "the node is being audited",
    Cause.EPOCH: "it was decided on the log of an earlier binder",
    Cause.STALE: "the ledger gave no answer",
    Cause.POD_GONE: "the pod is gone, or bound by somebody else",
    Cause.VOLUMES: "another commit took the volume, or the pod's claims have changed",
    Cause.DEVICES: "another commit took the devices, or the pod's claims to them have changed",
    Cause.SPREAD: "another commit took the last place that topology spread allows there",
    Cause.AFFINITY: "pods have come or gone there; affinity no longer admits the pod",
    Cause.VICTIMS: "preemption would need other victims by now, or none",
    Cause.QUOTA: "another commit took the room in its queue, or in one above it",
    Cause.GANG: "other members of its gang have left; fewer than run together would be placed",
    Cause.STAKED: "there was no room; what comes free on its nodes is kept for it from now on",
    Cause.INVALID: "no profile of this binder serves its schedulerName",
}
"""What a verdict was lost to, for people."""

OUTCOMES = {
    VerdictKind.CONFLICT: OutcomeKind.CONFLICT,
    VerdictKind.GONE: OutcomeKind.GONE,
    VerdictKind.REFUSED: OutcomeKind.REFUSED,
}
"""What the dispatcher hears of a verdict that a unit did not want."""
