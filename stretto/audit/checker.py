"""All rules over a recorded history."""

from __future__ import annotations

import dataclasses
import pathlib

from stretto.audit.api_log import read_api_log
from stretto.audit.findings import Findings
from stretto.audit.ledger_log import Step, steps_of
from stretto.audit.rules_api import ApiRules
from stretto.audit.rules_binder import BinderRules, check_binds, check_releases, read_records
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
    if history.ledger is not None:
        ledger.run(_steps(history, findings))
    if history.audit is not None:
        acts = BinderRules(findings)
        acts.run(read_records(history.audit.splitlines(), findings))
        if history.ledger is not None:
            check_binds(
                truth.binds, findings, posts=acts.posts, held=ledger.held, schedulers=names,
                node_gone_ns=truth.node_gone_ns,
            )  # fmt: skip
            check_releases(
                ledger.releases, findings, fenced=acts.fenced,
                bound={bind.uid for bind in truth.binds}, pods=set(truth.pods),
            )  # fmt: skip
    if at_rest:
        gangs.rest()
        check_rest(
            findings, pods=truth.pods, nodes=truth.nodes, schedulers=names,
            ledger=ledger.state if history.ledger is not None else None,
        )  # fmt: skip
    return findings


def _steps(history: History, findings: Findings) -> list[Step]:
    assert history.ledger is not None
    steps, problem = steps_of(history.ledger, owner=history.owner)
    if problem:
        findings.gap(f"the ledger's file: {problem}")
    if history.ledger_gap:
        findings.gap(history.ledger_gap)
    return steps
