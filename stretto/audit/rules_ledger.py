"""Invariants of the ledger's own history: sums, room, epochs, one entry a pod."""

from __future__ import annotations

from typing import NamedTuple

from stretto.audit.findings import Findings
from stretto.audit.ledger_log import AccountState, LedgerState, Step
from stretto.audit.rules_gangs import GangRules
from stretto.ledger.types import LedgerEntry, account_kind, sums_of_entries

Sums = dict[str, dict[str, int]]


class Release(NamedTuple):
    """A reservation that was given up."""

    step: int
    epoch: int
    """Of the Binder that freed it."""
    entry: LedgerEntry


class LedgerRules:
    """Goes through the steps once; afterwards :attr:`state` is the end, :attr:`held` the past."""

    def __init__(self, findings: Findings, *, gangs: GangRules) -> None:
        self.state = LedgerState()
        self._gangs = gangs
        self.held: dict[str, list[LedgerEntry]] = {}
        """Every reservation that a pod ever had, in order."""
        self.releases: list[Release] = []
        self._findings = findings
        self._sums: Sums = {}
        """Account → what entries take of it, added up here."""

    def run(self, steps: list[Step]) -> None:
        """Check every step."""
        for step in steps:
            before_meta = dict(self.state.meta)
            touched = step.fields("open").keys() | step.fields("bound").keys()
            old = {uid: self.state.entry(uid) for uid in touched}
            if step.cleared & {"open", "bound"}:
                self._sums.clear()
                self._gangs.cleared()
            self.state.apply(step)
            new = {uid: self.state.entry(uid) for uid in touched}
            self._remember(new)
            if not step.cleared:
                self._released(step, old, new)
            self._add_up(old if not step.cleared else {}, new)
            self._epochs(step, before_meta)
            self._sums_agree(step)
            granted = self._granted(step, new)
            self._grants(step, old, granted)
            self._gangs.step(step.number, new.items(), granted)

    def _remember(self, new: dict[str, LedgerEntry | None]) -> None:
        for uid, entry in new.items():
            if entry is not None:
                self.held.setdefault(uid, []).append(entry)

    def _released(
        self, step: Step, old: dict[str, LedgerEntry | None], new: dict[str, LedgerEntry | None]
    ) -> None:
        for uid, entry in old.items():
            if entry is not None and new[uid] is None:
                self.releases.append(Release(step.number, self.state.epoch, entry))

    def _add_up(
        self, old: dict[str, LedgerEntry | None], new: dict[str, LedgerEntry | None]
    ) -> None:
        for entries, sign in ((old, -1), (new, 1)):
            for entry in entries.values():
                for account, lines in () if entry is None else entry.holds():
                    sums = self._sums.setdefault(account, {})
                    for name, amount in lines:
                        sums[name] = sums.get(name, 0) + sign * amount

    def _epochs(self, step: Step, before: dict[str, str]) -> None:
        meta, where = self.state.meta, f"ledger step {step.number}"
        same = meta.get("generation") == before.get("generation")
        old, new = int(before.get("epoch") or 0), self.state.epoch
        if same and old:
            self._findings.check(
                "I9", holds=new >= old, where=where, what=f"the epoch fell from {old} to {new}"
            )
        if meta.get("stamp") == before.get("stamp") and "seq" in step.fields("meta"):
            last, now = int(before.get("seq") or 0), int(meta.get("seq") or 0)
            self._findings.check(
                "I12", holds=now == last + 1, where=where,
                what=f"call {now} follows call {last}: acknowledged calls are missing",
            )  # fmt: skip

    def _sums_agree(self, step: Step) -> None:
        """I1a, first half: what an account says is used is what its entries take."""
        touched = {uid for uid in step.fields("accounts") if uid in self.state.accounts}
        for uid in touched:
            account = self.state.accounts[uid]
            used = {name: used for name, (_, used, _) in account.amounts.items() if used}
            wanted = {name: amount for name, amount in self._sums.get(uid, {}).items() if amount}
            self._findings.check(
                "I1a", holds=used == wanted, where=f"ledger step {step.number}",
                what=f"account {uid} says {used}, its entries take {wanted}",
            )  # fmt: skip

    def _granted(self, step: Step, new: dict[str, LedgerEntry | None]) -> list[LedgerEntry]:
        """Entries that a reserve call made: it alone writes units' records as well."""
        units = {unit for unit, value in step.fields("units").items() if value is not None}
        opened = step.fields("open")
        return [
            entry
            for uid, entry in new.items()
            if entry is not None and opened.get(uid) is not None and entry.unit_id in units
        ]

    def _grants(
        self, step: Step, old: dict[str, LedgerEntry | None], granted: list[LedgerEntry]
    ) -> None:
        where = f"ledger step {step.number}"
        for entry in granted:
            before = old.get(entry.pod_uid)
            self._findings.check(
                "I18", holds=before is None, where=where,
                what=f"pod {entry.pod_uid} was reserved while it held a reservation",
            )  # fmt: skip
            self._findings.check(
                "I9", holds=entry.epoch == self.state.epoch, where=where,
                what=f"pod {entry.pod_uid} was reserved under epoch {entry.epoch}, the ledger's "
                f"is {self.state.epoch}",
            )  # fmt: skip
            for uid, _ in entry.holds():
                account = self.state.accounts.get(uid)
                self._findings.check(
                    "I20", holds=account is not None and account.flags == 0, where=where,
                    what=f"pod {entry.pod_uid} was reserved on {account_kind(uid)} {uid}, which "
                    "is gone or frozen",
                )  # fmt: skip
        for uid, sums in sums_of_entries(granted).items():
            self._room(where, uid, self.state.accounts.get(uid), set(sums))

    def _room(self, where: str, uid: str, account: AccountState | None, wanted: set[str]) -> None:
        """I1a, second half: a grant fits."""
        for name in wanted if account is not None else ():
            room, used, foreign = account.amounts.get(name, (0, 0, 0)) if account else (0, 0, 0)
            self._findings.check(
                "I1a", holds=used + foreign <= room, where=where,
                what=f"account {uid}: {used} reserved and {foreign} foreign of {room} {name}",
            )  # fmt: skip
