"""Why a gang cannot be decided now: it is not there, not complete, or its members disagree."""

from __future__ import annotations

from dispatcher.group_records import GroupRecord
from dispatcher.pods import WAITS, Condition, PodRecord
from dispatcher.shape_records import Mode
from stretto.model.groups import GroupRow, group_name_of

QUORUM = "waiting for minCount pods from a gang to appear in scheduling queue"


def hindrance_of(group: GroupRecord, ready: list[PodRecord]) -> Condition | None:
    """What keeps a group and its ``ready`` members from being decided, in upstream's words where it
    has some; None: nothing.

    Upstream holds back members of groups that are not there or not complete without a word. We
    say it, under a reason that no autoscaler takes for a pod that wants a node.
    """
    row = group.row
    if row is None:
        name = group_name_of(group.key)
        text = f'waiting for pods\'s pod group "{name}" to appear in scheduling queue'
        return Condition(WAITS, text)
    if row.problem:
        return Condition("SchedulerError", row.problem)
    if group.short:
        return Condition(WAITS, QUORUM)
    text = _disagreement(ready, row)
    return Condition("SchedulerError", text) if text else None


def _disagreement(members: list[PodRecord], row: GroupRow) -> str:
    """What members of one group must have in common (upstream validatePodGroup)."""
    first = members[0]
    priority = first.shape.priority if row.priority is None else row.priority
    for record in members:
        if record.profile != first.profile:
            return (
                "all pods in a single pod group should have the same .spec.schedulerName set, "
                f'got: "{record.profile}" and "{first.profile}"'
            )
        if record.shape.priority != priority:
            return (
                "all pods in a single pod group should have the same priority as the pod group's "
                f"priority, got {record.shape.priority} and {priority}"
            )
        if _policy(record) != _policy(first):
            return (
                "all pods in a single pod group should have the same preemption policy, got "
                f"{_policy(first)} and {_policy(record)}"
            )
        if (record.shape.shape and record.shape.shape.queue) != (
            first.shape.shape and first.shape.shape.queue
        ):
            return f"members of a pod group must be in one queue; {record.name} is in another"
        if record.shape.mode is Mode.REFUSED:
            why = record.shape.condition.message if record.shape.condition else "it is refused"
            return f"member {record.name} of the pod group cannot be placed: {why}"
    return ""


def _policy(record: PodRecord) -> str:
    return (record.shape.shape and record.shape.shape.preemption_policy) or "PreemptLowerPriority"
