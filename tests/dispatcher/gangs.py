"""Gangs for the tests of the dispatcher's brain."""

from __future__ import annotations

from dispatcher.patching import PatchResult
from stretto.model.groups import GroupRow
from tests.dispatcher.brain import Brain, shape

GROUP = "default/g"
GANG_OF_3 = GroupRow(min_count=3)


def gang(
    *, members: int = 3, row: GroupRow | None = GANG_OF_3, key: str = GROUP, credits_: int = 64
) -> Brain:
    brain = Brain()
    brain.shard(credits_=credits_)
    if row is not None:
        known(brain, row, key=key)
    for number in range(members):
        brain.pod(f"m{number}", shape(number + 1), group=key)
    return brain


def known(brain: Brain, row: GroupRow | None, *, key: str = GROUP, placed: int = 0) -> None:
    brain.machine.group_states([(key, row, placed)], anew=False)


def members_of(brain: Brain, lead: str) -> list[str]:
    return [member.uid for member in brain.sent[lead][1].members]


def message(brain: Brain, uid: str) -> str:
    """What a pod is told; everybody's conditions are written."""
    for order in brain.machine.patches(brain.now):
        brain.machine.patch_replied(order.uid, PatchResult.WRITTEN, now=brain.now)
    condition = brain.told(uid)
    return condition.message if condition is not None else ""
