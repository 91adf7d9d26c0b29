"""Invariants of gangs: reserved whole or not at all, and not left bound in part.

Which pods belong together, and how many of them at least, is read from the API's own log. A
reservation is judged at every call of the ledger; a bind at every version of the API server. There
is no bind of several pods at once in Kubernetes, so that a gang is bound member by member: what is
judged there is how long that takes.

Where a part of the API's history was not watched, a gang that is bound in part afterwards may have
been whole within, and have lost a member: how long it is in part, and that it is at rest, is not
known until it is whole again or empty. Members that came and went unseen may stand in the ledger
under uids that tell of no gang; while there are such, no gang is known to have been left in part.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from stretto.audit.api_log import ApiLog, Change, Edge, Object, live, node_name_of
from stretto.audit.findings import Findings
from stretto.ledger.types import LedgerEntry

UPSTREAM, PLUGINS = "podgroups", "scheduler-plugins podgroups"
"""Kinds in the API's log."""
PLUGINS_LABEL = "scheduling.x-k8s.io/pod-group"
PART_NS = 120_000_000_000
"""A gang that is bound in part for longer is broken (reliability R11)."""
Key = tuple[str, str, str]
"""(kind, namespace, name) of a group."""


def group_of(pod: Object) -> Key | None:
    """The group that a pod names; upstream's way of naming one prevails."""
    meta = pod["metadata"]
    space = str(meta.get("namespace", ""))
    named = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    if named:
        return UPSTREAM, space, str(named)
    label = (meta.get("labels") or {}).get(PLUGINS_LABEL)
    return (PLUGINS, space, str(label)) if label else None


def least_of(kind: str, group: Object) -> int:
    """How many members a group wants together; 0: it is no gang."""
    spec = group.get("spec") or {}
    if kind == PLUGINS:
        return int(spec.get("minMember") or 0)
    gang = (spec.get("schedulingPolicy") or {}).get("gang") or {}
    return int(gang.get("minCount") or 0)


@dataclasses.dataclass(slots=True)
class _Gang:
    least: int
    """The smallest that its object, or objects of its name, ever asked for."""
    held: set[str] = dataclasses.field(default_factory=set)
    """Uids with a reservation."""
    whole: bool = False
    """Enough have held one at once since the last time that nobody did: what is reserved from
    then on repairs it."""
    bound: set[str] = dataclasses.field(default_factory=set)
    """Uids of live pods on nodes."""
    begun_ns: int | None = None
    """Since when it is bound in part by binds alone; None: it is not."""
    in_doubt: bool = False
    """It is bound in part, perhaps because a member has left unseen."""
    strange: bool = False
    """Since it last held nothing, the ledger held pods that the API's log does not know."""
    least_known: bool = True
    """Its object did not change unseen: it may have asked for fewer."""


class GangRules:
    """Knows the gangs of a history; :meth:`run_api` first."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._gangs: dict[Key, _Gang] = {}
        self._group: dict[str, Key] = {}
        """Uid of a pod → its group."""
        self._pods: set[str] = set()
        """Uids that the API's log knows."""
        self._strangers: set[str] = set()
        """Uids with an entry that it does not know, where it is not whole."""
        self._whole = True
        """It has all pods."""
        self.longest_ns = 0
        """The longest time from a gang's first bind to the one that made it whole."""

    # --------------------------------------------------------------------------------- the API
    def run_api(self, log: ApiLog) -> None:
        """Learn the gangs, then follow their binds."""
        for change in log.changes:
            if change.kind in (UPSTREAM, PLUGINS):
                self._learn(change, log)
        end_ns = 0
        for step in log.timeline():
            if isinstance(step, Edge):
                if step.unseen.kind == "pods":
                    self._edge(step)
            elif step.kind == "pods":
                end_ns = max(end_ns, step.at_ns)
                self._pod(step, hidden=log.hidden("pods", step.version) is not None)
        for key, gang in self._gangs.items():
            self._in_part(key, gang, now_ns=end_ns, where="the end")
        if self._gangs:
            note = "ms from the first bind of a gang to the one that made it whole, the longest"
            self._findings.notes[note] = self.longest_ns // 1_000_000

    def _edge(self, edge: Edge) -> None:
        """What was in part before a gap, or is after it, may have been whole within."""
        self._whole = False
        for gang in self._gangs.values():
            if edge.opens:
                gang.bound -= edge.unseen.gone
            gang.begun_ns = None
            gang.in_doubt = 0 < len(gang.bound) < gang.least

    def _learn(self, change: Change, log: ApiLog) -> None:
        unseen = log.hidden(change.kind, change.version)
        key = change.kind, str(change.object["metadata"].get("namespace", "")), change.name
        least = least_of(change.kind, change.object)
        known = self._gangs.get(key)
        if known is not None:
            known.least = min(known.least, least)
        elif least > 0:
            known = self._gangs[key] = _Gang(least)
        if known is not None and unseen is not None and not unseen.first:
            known.least_known = False

    def _pod(self, change: Change, *, hidden: bool) -> None:
        self._pods.add(change.uid)
        key = group_of(change.object)
        gang = self._gangs.get(key) if key is not None else None
        if key is None or gang is None:
            return
        self._group[change.uid] = key
        on_node = bool(node_name_of(change.object)) and live(change.object) and not change.gone
        if on_node == (change.uid in gang.bound):
            return
        self._in_part(key, gang, now_ns=change.at_ns, where=f"revision {change.version}")
        if not on_node:
            gang.bound.discard(change.uid)
            gang.begun_ns = None  # somebody has left: what is missing now is no half of a bind
            return
        gang.bound.add(change.uid)
        if len(gang.bound) >= gang.least:
            self.longest_ns = max(self.longest_ns, change.at_ns - (gang.begun_ns or change.at_ns))
            gang.begun_ns, gang.in_doubt = None, False
        elif len(gang.bound) == 1 and not hidden:
            gang.begun_ns, gang.in_doubt = change.at_ns, False

    def _in_part(self, key: Key, gang: _Gang, *, now_ns: int, where: str) -> None:
        if gang.begun_ns is None:
            return
        self._findings.check(
            "R11", holds=now_ns - gang.begun_ns <= PART_NS, where=where, known=gang.least_known,
            what=f"{len(gang.bound)} of at least {gang.least} members of group {key[2]} have been "
            f"bound for {(now_ns - gang.begun_ns) / 1e9:.0f} s",
        )  # fmt: skip

    def rest(self) -> None:
        """At rest no gang is bound in part."""
        for key, gang in self._gangs.items():
            self._findings.check(
                "R11", holds=gang.begun_ns is None and not gang.in_doubt, where="the end",
                known=gang.least_known and not gang.in_doubt,
                what=f"{len(gang.bound)} of at least {gang.least} members of group {key[2]} are "
                "bound and the others are not",
            )  # fmt: skip

    # ------------------------------------------------------------------------------ the ledger
    def cleared(self) -> None:
        """The ledger was emptied; it is filled again with what is bound."""
        self._strangers.clear()
        for gang in self._gangs.values():
            gang.held.clear()
            gang.strange = False

    def step(
        self,
        number: int,
        entries: Iterable[tuple[str, LedgerEntry | None]],
        granted: Iterable[LedgerEntry],
    ) -> None:
        """I6: a call that gave something to members of a gang has left it whole, or has repaired
        one that had been.

        entries: pods that the call touched with what they hold now.
        """
        keys: set[Key] = set()
        for uid, entry in entries:
            key = self._group.get(uid)
            if key is not None:
                keys.add(key)
                (self._gangs[key].held.discard if entry is None else self._gangs[key].held.add)(uid)
            elif not self._whole and uid not in self._pods:
                (self._strangers.discard if entry is None else self._strangers.add)(uid)
        for key in keys:
            gang = self._gangs[key]
            gang.whole = len(gang.held) >= gang.least or (gang.whole and bool(gang.held))
            gang.strange = gang.strange and bool(gang.held)
        if self._strangers:
            for gang in self._gangs.values():
                gang.strange = gang.strange or bool(gang.held)
        for key in {self._group[e.pod_uid] for e in granted if e.pod_uid in self._group}:
            gang = self._gangs[key]
            self._findings.check(
                "I6", holds=gang.whole, where=f"ledger step {number}",
                known=gang.least_known and not gang.strange,
                what=f"{len(gang.held)} of at least {gang.least} members of group {key[2]} were "
                "reserved",
            )  # fmt: skip
