"""All rules over a recorded history."""

from __future__ import annotations

import dataclasses
import pathlib

from stretto.audit.api_log import read_api_log
from stretto.audit.findings import Findings
from stretto.audit.ledger_log import Step, steps_of
from stretto.audit.rules_api import ApiRules
from stretto.audit.rules_binder import BinderRules, BindRules, check_releases, read_records
from stretto.audit.rules_gangs import GangRules
from stretto.audit.rules_ledger import LedgerRules
from stretto.audit.rules_rest import check_rest
from stretto.model.errors import OperatorError

API_LOG = "api.jsonl"
AUDIT_LOG = "audit.jsonl"
LEDGER_FOLDER = "ledger"
EMPTIED = b"*1\r\n$8\r\nFLUSHALL\r\n"
OWNER = "owner"
"""File that names the ledger's owner."""


class HistoryError(OperatorError):
    """No history to check."""

    exit_code = 2


@dataclasses.dataclass(frozen=True, slots=True)
class History:
    """The three logs as bytes; one that was not kept is None, and its rules are not run."""

    api: bytes
    audit: bytes | None = None
    ledger: bytes | None = None
    owner: str = ""
    """Of the ledger: its keys carry it."""
    ledger_gap: str = ""
    """Why the ledger's log is not whole."""


def read_history(folder: pathlib.Path) -> History:
    """The logs of a folder as the recorder leaves them.

    Raises:
        HistoryError: there is none.
    """
    try:
        api = (folder / API_LOG).read_bytes()
    except OSError as error:
        raise HistoryError(
            f"{folder / API_LOG}: {error.strerror}; name the folder of a recorded history"
        ) from None
    audit = folder / AUDIT_LOG
    owner = folder / OWNER
    ledger, gap = _append_only(folder / LEDGER_FOLDER)
    return History(
        api,
        audit.read_bytes() if audit.exists() else None,
        ledger,
        owner.read_text().strip() if owner.exists() else "",
        gap,
    )


def _append_only(folder: pathlib.Path) -> tuple[bytes | None, str]:
    """The append-only files of a data folder in order.

    Folders ``appendonlydir.*`` hold what the server had before its data was taken from it; it began
    anew each time.
    """
    parts, gap = [], ""
    for kept in (*sorted(folder.glob("appendonlydir.*")), folder / "appendonlydir"):
        files = sorted(kept.glob("*.incr.aof"), key=_number)
        if not files:
            continue
        if _number(files[0]) != 1:
            gap = "the ledger's file was rewritten: its beginning is gone"
        parts.append(b"".join(file.read_bytes() for file in files))
    return (EMPTIED.join(parts), gap) if parts else (None, "")


def _number(file: pathlib.Path) -> int:
    """Of an append-only file; a rewrite begins the next one."""
    return int(file.name.split(".")[-3])


def check(
    history: History, *, schedulers: tuple[str, ...] = ("stretto",), at_rest: bool = True
) -> Findings:
    """Recompute the invariants. ``at_rest``: nothing was under way at the end."""
    findings, names = Findings(), frozenset(schedulers)
    api = read_api_log(history.api.splitlines())
    for gap in api.gaps:
        findings.gap(gap)
    truth = ApiRules(findings, schedulers=schedulers)
    truth.run(api)
    gangs = GangRules(findings)
    gangs.run_api(api)
    ledger = LedgerRules(findings, gangs=gangs)
    steps, end_known = _steps(history, findings)
    ledger.run(steps or [])
    if history.audit is not None:
        acts = BinderRules(findings)
        acts.run(read_records(history.audit.splitlines(), findings))
        if history.ledger is not None:
            binds = BindRules(
                findings, acts=acts, held=None if steps is None else ledger.held,
                all_held=end_known, node_gone_ns=truth.node_gone_ns,
            )  # fmt: skip
            binds.run(truth.binds, schedulers=names)
            check_releases(
                ledger.releases, findings, acts=acts,
                bound={bind.uid for bind in truth.binds}, pods=set(truth.pods),
            )  # fmt: skip
    if at_rest:
        gangs.rest()
        check_rest(
            findings, truth=truth, schedulers=names,
            ledger=None if steps is None else ledger.state,
            api_known=api.known_at_the_end("pods") and api.known_at_the_end("nodes"),
            ledger_known=end_known,
        )  # fmt: skip
    return findings


def _steps(history: History, findings: Findings) -> tuple[list[Step] | None, bool]:
    """(the ledger's steps, the end is known); None: there is no history of it, or one without its
    beginning, and what every step did to what was there before it is not known."""
    if history.ledger is None:
        return None, False
    if history.ledger_gap:
        findings.gap(history.ledger_gap)
        return None, False
    steps, problem = steps_of(history.ledger, owner=history.owner)
    if problem:
        findings.gap(f"the ledger's file: {problem}")
    return steps, not problem
