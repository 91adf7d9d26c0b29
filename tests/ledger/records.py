"""Short ways to say what ledger tests are about."""

from __future__ import annotations

from stretto.ledger.types import Account, LedgerMember, LedgerUnit
from stretto.model.unit import Attempt

LINES = (("cpu", 1000), ("pods", 1))


def unit(name: str, *nodes: str, number: int = 1, cpu: int = 1000) -> LedgerUnit:
    """A unit with a pod a node, named after the unit unless it has several."""
    lines = (("cpu", cpu), ("pods", 1))
    uids = [name] if len(nodes) == 1 else [f"{name}-{index}" for index in range(len(nodes))]
    members = [LedgerMember(uid, node, 7, lines) for uid, node in zip(uids, nodes, strict=True)]
    return LedgerUnit(name, Attempt(1, number), tuple(members))


def node(uid: str, *, cpu: int = 2000, pods: int = 10, **more: object) -> Account:
    """A node account."""
    return Account(uid, {"cpu": cpu, "pods": pods}, **more)  # type: ignore[arg-type]
