"""What PostFilter answers for a pod that fits nowhere: the record that golden cases, conditions
and proposals with victims share."""

from __future__ import annotations

import msgspec

from stretto.model.devices import ClaimRow
from stretto.placement.framework import Code, Status


class PreemptionArgs(msgspec.Struct, frozen=True):
    """DefaultPreemptionArgs."""

    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100
    strict_budgets: bool = False
    """No argument of kube-scheduler's: who would violate a disruption budget is no victim."""

    def candidates(self, potential: int) -> int:
        """How many candidates are enough."""
        share = potential * self.min_candidate_nodes_percentage // 100
        return min(max(share, self.min_candidate_nodes_absolute), potential)


class PreemptionCandidate(msgspec.Struct, frozen=True):
    """A node on which preemption works, and who would have to go."""

    row: int
    victims: tuple[str, ...]
    """Pod uids, most important first."""
    pdb_violations: int = 0


class PostFilterResult(msgspec.Struct, frozen=True):
    """PostFilter of all plugins together."""

    code: Code
    message: str = ""
    """What follows the fit error in the condition's message."""
    nominate: str | None = None
    """None: status.nominatedNodeName stays; '': it is cleared; otherwise the nominated node."""
    victims: tuple[str, ...] = ()
    """Uids of the pods to go from that node, most important first."""
    release: ClaimRow | None = None
    """The claim whose allocation is to be given up."""
    candidates: tuple[PreemptionCandidate, ...] = ()
    """Every node on which preemption works, by row."""
    dry_run: tuple[tuple[int, Status], ...] = ()
    """(row, why not) of the potential nodes on which it does not, by row."""


def condition_message(fit_error: str, result: PostFilterResult | None) -> str:
    """The complete message of the condition."""
    return f"{fit_error} {result.message}" if result is not None and result.message else fit_error
