"""Invariants of the state at rest, when faults have stopped and everything has had its time."""

from __future__ import annotations

from stretto.audit.api_log import Object, condition_of, live, node_name_of
from stretto.audit.findings import Findings
from stretto.audit.ledger_log import LedgerState
from stretto.audit.rules_api import ApiRules
from stretto.simulator.amounts import met_by_devices, pod_amounts

REST = "the end"


def check_rest(
    findings: Findings,
    *,
    truth: ApiRules,
    ledger: LedgerState | None,
    schedulers: frozenset[str],
    api_known: bool,
    ledger_known: bool,
) -> None:
    """I4: every pod of ours is bound or told why not. I8 and I24: the ledger is the projection of
    the API. Of a log whose end is not known nothing is known to be wrong at the end."""
    pods = truth.pods.items()
    ours = {uid: pod for uid, pod in pods if pod["spec"].get("schedulerName") in schedulers}
    for pod in ours.values():
        if live(pod) and not node_name_of(pod) and not pod["spec"].get("schedulingGates"):
            condition = condition_of(pod, "PodScheduled")
            told = condition.get("status") == "False" and bool(condition.get("message"))
            findings.check(
                "I4", holds=told, where=REST, known=api_known,
                what=f"pod {pod['metadata']['name']} is neither bound nor told why it waits",
            )  # fmt: skip
    if ledger is not None:
        known = api_known and ledger_known
        for uid in ledger.open:
            findings.check(
                "I8", holds=False, where=REST, known=ledger_known,
                what=f"the entry of pod {uid} is still open",
            )  # fmt: skip
        _check_ledger(findings, ours=ours, nodes=truth.nodes, ledger=ledger, known=known)


def _check_ledger(
    findings: Findings,
    *,
    ours: dict[str, Object],
    nodes: dict[str, Object],
    ledger: LedgerState,
    known: bool,
) -> None:
    bound = {uid: pod for uid, pod in ours.items() if node_name_of(pod) and live(pod)}
    entries = ledger.entries()
    uids = {name: node["metadata"]["uid"] for name, node in nodes.items()}
    for uid, pod in bound.items():
        entry, name = entries.get(uid), pod["metadata"]["name"]
        node_uid = uids.get(node_name_of(pod))
        if node_uid is None:
            continue  # bound to a name that no node has: nothing to count it on
        findings.check(
            "I24", holds=entry is not None, where=REST, known=known,
            what=f"pod {name} is bound and has no entry in the ledger",
        )  # fmt: skip
        if entry is None:
            continue
        met = met_by_devices(pod)
        taken = {k: v for k, v in pod_amounts(pod["spec"]).items() if v and k not in met}
        counted = {k: v for k, v in entry.lines if v}
        findings.check(
            "I24", holds=entry.node_uid == node_uid and counted == taken, where=REST, known=known,
            what=f"the entry of pod {name} says {counted} on {entry.node_uid}, the API {taken} on "
            f"{node_uid}",
        )  # fmt: skip
    for uid in entries.keys() - bound.keys():
        findings.check(
            "I24", holds=uid in ledger.open, where=REST, known=known,
            what=f"the ledger holds an entry of pod {uid}, which is not bound",
        )  # fmt: skip
