"""Whether a run was good: what its exit code and its last line say."""

from __future__ import annotations

from stretto.workload.load import LoadResult

BROKEN = 1
UNFINISHED = 3
EXIT_CODES = (
    "exit codes: 0 every pod was created and bound, once; "
    f"{UNFINISHED} pods are unfinished at the end (waiting, deleted before they were bound, or "
    f"refused by the API server); {BROKEN} a pod was seen on two nodes or turned away by its "
    "kubelet, or the run was stopped; 2 wrong flags, a file that cannot be read, or no API server"
)


def broken(result: LoadResult) -> list[str]:
    """What must never happen, and did; a run that was stopped proves nothing either."""
    counts = result.counts
    found = [] if result.finished else ["the run was stopped before its end"]
    if counts.rebound:
        found.append(f"{counts.rebound} pods were seen on two nodes")
    if counts.refused:
        found.append(f"{counts.refused} pods were turned away by their kubelet")
    return found


def unfinished(result: LoadResult) -> list[str]:
    """Pods that did not come to a node."""
    counts = result.counts
    found = []
    if counts.waiting:
        untold = counts.waiting - counts.told
        silent = f", {untold} of them without having been told why" if untold else ""
        found.append(f"{counts.waiting} pods still wait{silent}")
    if counts.gone_unbound:
        found.append(f"{counts.gone_unbound} pods were deleted before they were bound")
    if counts.create_failed:
        (why, _), *_ = counts.failures.most_common(1)
        found.append(f"{counts.create_failed} pods could not be created ({why})")
    return found


def outcome(result: LoadResult) -> tuple[int, str]:
    """The exit code, and the line that gives its reason ("" for a good run)."""
    wrong, left = broken(result), unfinished(result)
    code = BROKEN if wrong else UNFINISHED if left else 0
    return code, "; ".join([*wrong, *left])
