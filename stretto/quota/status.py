"""The status of a queue, as it stands in the object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from stretto.quota.rows import UsageRow
from stretto.quota.tree import QueueNode, Tree

READY = "Ready"


class QueueCondition(msgspec.Struct, frozen=True, rename="camel"):
    """Whether pods are placed against the queue, and what an operator should mend."""

    status: str = ""
    reason: str = ""
    message: str = ""
    type: str = READY
    observed_generation: int = 0
    last_transition_time: str = ""


class QueueStatus(msgspec.Struct, frozen=True, rename="camel"):
    """See the fields of the definition in deploy/."""

    used: dict[str, str] = {}
    borrowed: dict[str, str] = {}
    """What is used and under no guarantee of the queue or of one below it."""
    promised: dict[str, str] = {}
    """What Jobs that were admitted are promised for members that have no pod on a node yet."""
    waiting: int = 0
    why: str = ""
    """What the pods of the queue that wait longest for quota are told."""
    conditions: tuple[QueueCondition, ...] = ()

    @property
    def says(self) -> QueueStatus:
        """Without times, which change nothing."""
        bare = tuple(
            msgspec.structs.replace(each, last_transition_time="") for each in self.conditions
        )
        return msgspec.structs.replace(self, conditions=bare)

    def since(self, before: QueueStatus, *, now: str) -> QueueStatus:
        """With the time of its condition's last change: that of ``before`` if it says the same."""
        said, old = self.condition(), before.condition()
        time = old.last_transition_time if old.status == said.status else now
        said = msgspec.structs.replace(said, last_transition_time=time or now)
        return msgspec.structs.replace(self, conditions=(said,))

    def condition(self) -> QueueCondition:
        """Its Ready condition; an empty one if it has none."""
        return next((each for each in self.conditions if each.type == READY), QueueCondition())


def written(resource: str, amount: int) -> str:
    """An amount as a quantity: cpu is counted in milli."""
    if resource != "cpu":
        return str(amount)
    return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"


def _written(amounts: Iterable[tuple[str, int]]) -> dict[str, str]:
    return {name: written(name, amount) for name, amount in sorted(amounts) if amount}


def status_of(
    node: QueueNode,
    tree: Tree,
    usage: UsageRow,
    *,
    waiting: int,
    why: str,
    promised: Mapping[str, int],
) -> QueueStatus:
    """What a queue's status has to say; times are the writer's."""
    held = dict(usage.held)
    borrowed = ((name, amount - held.get(name, 0)) for name, amount in usage.used)
    warning = "" if node.problem else tree.warning(node)
    if node.problem:
        said = QueueCondition("False", "Invalid", node.problem)
    elif warning:
        said = QueueCondition("True", "GuaranteesExceeded", warning)
    else:
        said = QueueCondition("True", "Valid", "")
    said = msgspec.structs.replace(said, observed_generation=node.row.generation)
    return QueueStatus(
        _written(usage.used),
        _written(borrowed),
        _written(promised.items()),
        waiting,
        why or node.problem,
        (said,),
    )


_decoder = msgspec.json.Decoder(QueueStatus)


def status_in(told: bytes) -> QueueStatus:
    """The status in a row of the log; an empty one if it is none, so that it is written anew."""
    try:
        return _decoder.decode(told) if told else QueueStatus()
    except msgspec.MsgspecError:
        return QueueStatus()


def patch_of(status: QueueStatus, before: QueueStatus, *, uid: str) -> Mapping[str, object]:
    """The merge patch of queues/status; the uid keeps it off a queue of the same name that came
    later. A resource that is used no more is taken out by name."""
    body = msgspec.to_builtins(status)
    for field in ("used", "borrowed", "promised"):
        gone = getattr(before, field).keys() - body[field].keys()
        body[field] |= dict.fromkeys(gone)
    return {"metadata": {"uid": uid}, "status": body}
