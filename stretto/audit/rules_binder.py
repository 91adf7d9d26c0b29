"""Invariants between the logs: each bind of ours against what the Binder and the ledger say.

A line of the Binder's log that cannot be read may have been anything: from there on a breach is not
known to be one. A bind that the API's log does not show as it happened (it was found in a list)
replaced one of several versions; it is a breach only if no POST of ours named any of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import msgspec

from stretto.audit.findings import Findings
from stretto.audit.rules_api import Bind
from stretto.audit.rules_ledger import Release
from stretto.ledger.types import EntryState, LedgerEntry
from stretto.telemetry.audit_log import AuditRecord

GHOST_NS = 5_000_000_000
"""Watch lag that is forgiven between a node's deletion and a bind to it (reliability §1.1: Δw)."""


class _LogLine(msgspec.Struct):
    """A line of a role's own log (:mod:`stretto.telemetry.logs`), which has no act."""

    level: str
    logger: str
    msg: str


def read_records(lines: Iterable[bytes], findings: Findings) -> list[AuditRecord | None]:
    """The Binders' acts in order; None for one that cannot be read. Lines of a log among them, as a
    container's output has them, are passed over."""
    decoder = msgspec.json.Decoder(AuditRecord)
    records: list[AuditRecord | None] = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(decoder.decode(line))
        except msgspec.DecodeError:
            if _is_log(line):
                continue
            findings.gap(f"audit line {number} cannot be read")
            records.append(None)
    return records


def _is_log(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=_LogLine)
    except msgspec.DecodeError:
        return False
    return True


@dataclasses.dataclass(slots=True)
class _Held:
    """A reservation as the acts of one epoch tell it."""

    node: str
    versions: set[int]
    """ResourceVersions that the ledger has accepted."""
    sent: bool = False
    """A POST is in flight."""
    doubt: bool = False
    """A POST got no answer that proves what became of it, and nothing has settled it since."""


class BinderRules:
    """Goes through the acts once."""

    def __init__(self, findings: Findings) -> None:
        self.posts: dict[tuple[str, str, int], AuditRecord] = {}
        """(pod uid, node, resourceVersion) → the POST."""
        self.fenced: set[tuple[int, str]] = set()
        """(epoch, pod uid)."""
        self.all_read = True
        """No line so far could not be read."""
        self._findings = findings
        self._opened: set[int] = set()
        self._broken: set[int] = set()
        self._held: dict[tuple[int, str], _Held] = {}
        """(epoch, pod uid) → reservation."""

    def run(self, records: list[AuditRecord | None]) -> None:
        """Check every act."""
        for number, record in enumerate(records, 1):
            if record is None:
                self.all_read = False
                continue
            act = getattr(self, f"_{record.act}", None)
            if act is not None:
                act(record, f"audit line {number}")

    def _check(self, invariant: str, *, holds: bool, where: str, what: str) -> None:
        self._findings.check(invariant, holds=holds, where=where, what=what, known=self.all_read)

    # ---------------------------------------------------------------------------------------- acts
    def _open(self, record: AuditRecord, where: str) -> None:
        self._opened.add(record.epoch)

    def _lost(self, record: AuditRecord, where: str) -> None:
        self._broken.add(record.epoch)

    def _whole(self, record: AuditRecord, where: str) -> None:
        self._broken.discard(record.epoch)

    def _reserved(self, record: AuditRecord, where: str) -> None:
        self._check(
            "I13", holds=record.epoch in self._opened, where=where,
            what=f"pod {record.uid} was reserved before epoch {record.epoch} was open",
        )  # fmt: skip
        self._check(
            "I12", holds=record.epoch not in self._broken, where=where,
            what=f"pod {record.uid} was reserved while the ledger was known to be broken",
        )  # fmt: skip
        key = (record.epoch, record.uid)
        self._check(
            "I18", holds=key not in self._held, where=where,
            what=f"pod {record.uid} was reserved twice",
        )  # fmt: skip
        self._held[key] = _Held(record.node, {record.rv})

    def _rebased(self, record: AuditRecord, where: str) -> None:
        held = self._held.get((record.epoch, record.uid))
        if held is not None:
            held.versions.add(record.rv)

    def _post(self, record: AuditRecord, where: str) -> None:
        held = self._held.get((record.epoch, record.uid))
        self._check(
            "I2", holds=held is not None and held.node == record.node, where=where,
            what=f"a bind of pod {record.uid} to {record.node} without a reservation there",
        )  # fmt: skip
        self._check(
            "I10", holds=record.rv > 0 and held is not None and record.rv in held.versions,
            where=where,
            what=f"a bind of pod {record.uid} with version {record.rv}, which the ledger has not "
            "accepted",
        )  # fmt: skip
        if held is not None:
            held.sent = True
        self.posts[record.uid, record.node, record.rv] = record

    def _answer(self, record: AuditRecord, where: str) -> None:
        held = self._held.get((record.epoch, record.uid))
        if held is not None:
            held.sent = False
            held.doubt = held.doubt or record.cause == "unknown"

    def _fenced(self, record: AuditRecord, where: str) -> None:
        self.fenced.add((record.epoch, record.uid))
        held = self._held.get((record.epoch, record.uid))
        if held is not None:
            held.doubt = False

    def _bound(self, record: AuditRecord, where: str) -> None:
        held = self._held.get((record.epoch, record.uid))
        if held is not None:
            held.sent = held.doubt = False

    def _freed(self, record: AuditRecord, where: str) -> None:
        """I11: only what is gone, was never sent, was answered "not carried out", or is fenced."""
        held = self._held.pop((record.epoch, record.uid), None)
        sure = held is None or record.cause == "gone" or not (held.sent or held.doubt)
        self._check(
            "I11", holds=sure, where=where,
            what=f"pod {record.uid} was freed while its bind to {held.node if held else ''} may "
            "land",
        )  # fmt: skip


def check_releases(
    releases: list[Release],
    findings: Findings,
    *,
    acts: BinderRules,
    bound: set[str],
    pods: set[str],
) -> None:
    """I11 from one Binder to the next: what an earlier epoch had reserved and a later one frees
    has been fenced by it, or is gone, or was bound after all."""
    for release in releases:
        entry = release.entry
        if entry.state is EntryState.BOUND or entry.epoch >= release.epoch:
            continue
        uid = entry.pod_uid
        fenced = (release.epoch, uid) in acts.fenced
        findings.check(
            "I11", holds=fenced or uid in bound or uid not in pods, known=acts.all_read,
            where=f"ledger step {release.step}",
            what=f"epoch {release.epoch} freed pod {uid}, reserved in epoch {entry.epoch}, and has "
            "not fenced it",
        )  # fmt: skip


class BindRules:
    """Each bind of our pods: ours (then by a POST with the version it replaced, on a reservation
    of that node), or somebody else's, which is counted."""

    def __init__(
        self,
        findings: Findings,
        *,
        acts: BinderRules,
        held: dict[str, list[LedgerEntry]] | None,
        all_held: bool,
        node_gone_ns: dict[str, int],
    ) -> None:
        """held: every entry that a pod ever had, None if the ledger's past is not known;
        ``all_held``: none is missing."""
        self._findings = findings
        self._all_read = acts.all_read
        self._held = held
        self._all_held = all_held
        self._node_gone_ns = node_gone_ns
        self._posts: dict[tuple[str, str], dict[int, AuditRecord]] = {}
        """(pod uid, node) → resourceVersion → the POST."""
        for (uid, node, version), post in acts.posts.items():
            self._posts.setdefault((uid, node), {})[version] = post

    def run(self, binds: list[Bind], *, schedulers: frozenset[str]) -> None:
        """Check every bind."""
        for bind in binds:
            if bind.scheduler not in schedulers:
                self._findings.notes["binds of other schedulers' pods"] += 1
            elif bind.outside:
                self._findings.notes["binds before the recording began"] += 1
            else:
                self._bind(bind, f"revision {bind.version}")

    def _bind(self, bind: Bind, where: str) -> None:
        named = self._posts.get((bind.uid, bind.node), {})
        sure = bind.since == bind.before
        fitting = [v for v in named if bind.since <= v <= bind.before]
        if not named:
            self._findings.check("I10", holds=True, where=where, what="")
            self._findings.notes["binds of our pods by others"] += 1
            return
        versions = f"version {bind.before}" if sure else f"{bind.since} to {bind.before}"
        self._findings.check(
            "I10", holds=sure and bool(fitting), where=where,
            known=self._all_read and not fitting,
            what=f"pod {bind.name} was bound to {bind.node} at {versions}, which no bind of ours "
            "named",
        )  # fmt: skip
        if fitting:
            self._place(bind, named[max(fitting)], where)

    def _place(self, bind: Bind, post: AuditRecord, where: str) -> None:
        """The node: there was an entry on it, or it had only just been deleted."""
        if bind.node_uid:
            if self._held is not None:
                entries = [e for e in self._held.get(bind.uid, ()) if e.node_uid == bind.node_uid]
                self._findings.check(
                    "I2", holds=bool(entries), where=where,
                    known=self._all_held and bind.node_known,
                    what=f"pod {bind.name} was bound to {bind.node} and never had an entry there",
                )  # fmt: skip
            return
        lag = post.t - self._node_gone_ns.get(bind.node, post.t)
        self._findings.notes["binds to nodes just deleted"] += 1
        self._findings.check(
            "I20", holds=lag <= GHOST_NS, where=where, known=bind.node_known,
            what=f"pod {bind.name} was bound to {bind.node}, deleted {lag / 1e9:.1f} s before",
        )  # fmt: skip
