"""Units that extenders are being asked about: out of the fast path until the answers are here.

A *question* names the nodes that the unit fits by the plugins, at the time of asking. The shell
asks the extenders, one after the other, and brings a *reply*; only then is a node chosen, among
those that are left and still fit. A reply to a unit that is no longer held is dropped.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from scheduler_shard.shapes import ShapeEntry
from stretto.model.diagnosis import Diagnosis, Rejected
from stretto.model.unit import Attempt, Unit, UnitId
from stretto.placement.extenders import Extender
from stretto.placement.postfilter import PreemptionCandidate
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import NodeRow

Key = tuple[UnitId, Attempt]
EXTENDER = "Extender"
"""Stands for all extenders among the plugins that rejected, as upstream."""
MAX_ASKED = 3
"""Times a unit is asked about before it goes back; each time all nodes left were taken
meanwhile."""


class Doomed(NamedTuple):
    """A node on which preemption helps."""

    node_id: int
    name: str
    uids: tuple[str, ...]
    """Of the victims."""
    violations: int


class Question(msgspec.Struct, frozen=True):
    """What the shell is to ask."""

    unit: Unit
    entry: ShapeEntry
    extenders: tuple[Extender, ...]
    nodes: tuple[tuple[int, NodeRow], ...]
    """(node id, node) where the unit fits by the plugins."""
    asked: int = 1
    doomed: tuple[Doomed, ...] = ()
    """The unit fits nowhere: where preemption would help. Extenders are asked about that then."""
    refused: Reply | None = None
    """With that: what extenders said to the nodes that the unit does fit by the plugins."""

    @property
    def pod(self) -> bytes:
        """JSON of the pod."""
        return self.unit.members[0].document

    @property
    def key(self) -> Key:
        """The unit and its attempt."""
        return self.unit.unit_id, self.unit.attempt


class Reply(msgspec.Struct):
    """What the extenders said together."""

    allowed: list[str] = msgspec.field(default_factory=list)
    """Names of the nodes that are left."""
    bonus: dict[str, int] = msgspec.field(default_factory=dict)
    """Node name → what prioritising adds to its total."""
    failed: dict[str, str] = msgspec.field(default_factory=dict)
    """Node name → why an extender left it out."""
    unresolvable: set[str] = msgspec.field(default_factory=set)
    """Those of them where preemption cannot help."""
    doomed: dict[str, list[str]] = msgspec.field(default_factory=dict)
    """Of a question about victims: node name → uids of the pods to go."""
    error: str = ""
    """An extender that matters failed: the attempt ends with this."""


class Asking:
    """See the module docstring."""

    def __init__(self) -> None:
        self._open: dict[Key, Question] = {}
        self._new: list[Question] = []
        self._answered: deque[tuple[Question, Reply]] = deque()

    def __len__(self) -> int:
        return len(self._open)

    def ask(self, question: Question) -> None:
        """A unit waits for extenders from now on."""
        assert question.key not in self._open, f"{question.key} is asked about already"
        self._open[question.key] = question
        self._new.append(question)

    def take_new(self) -> list[Question]:
        """Questions for the shell; each is given once."""
        taken, self._new = self._new, []
        return [question for question in taken if self._open.get(question.key) is question]

    def answer(self, question: Question, reply: Reply) -> None:
        """The shell has a reply."""
        if self._open.get(question.key) is question:
            self._answered.append((question, reply))

    def take_answered(self) -> tuple[Question, Reply] | None:
        """A question with its reply, None if there is none; the unit is the caller's again."""
        while self._answered:
            question, reply = self._answered.popleft()
            if self._open.get(question.key) is question:
                del self._open[question.key]
                assert question.asked <= MAX_ASKED, f"{question.key} is asked about for ever"
                return question, reply
        return None

    @property
    def ready(self) -> bool:
        """A reply waits to be acted on."""
        return bool(self._answered)

    def clear(self) -> list[Question]:
        """Give up all; late replies are dropped."""
        questions = list(self._open.values())
        self._open.clear()
        self._new.clear()
        self._answered.clear()
        return questions


def rows_left(
    question: Question, reply: Reply, snapshot: Snapshot
) -> tuple[list[int], dict[int, int]]:
    """(rows that extenders left, what they add to the totals of rows), as far as they are there."""
    rows, bonus = [], {}
    ids = {row.name: node_id for node_id, row in question.nodes}
    for name in reply.allowed:
        row = snapshot.row_of(ids[name])
        if row is not None:
            rows.append(row)
            bonus[row] = reply.bonus.get(name, 0)
    return rows, bonus


def rows_refused(reply: Reply, snapshot: Snapshot) -> dict[int, bool]:
    """Row that extenders left out → whether preemption cannot help there."""
    rows = {snapshot.row_of_name(name): name in reply.unresolvable for name in reply.failed}
    return {row: for_good for row, for_good in rows.items() if row is not None}


def doomed_of(candidates: Iterable[PreemptionCandidate], snapshot: Snapshot) -> tuple[Doomed, ...]:
    """Candidates of preemption as a question names them."""
    return tuple(
        Doomed(int(snapshot.node_id[each.row]), snapshot.name[each.row], each.victims,
               each.pdb_violations)
        for each in candidates
    )  # fmt: skip


def with_failed(diagnosis: Diagnosis, reply: Reply, nodes: int) -> Diagnosis:
    """The diagnosis of the plugins with the nodes that extenders left out beside."""
    reasons = Counter(reply.failed.values())
    final = Counter(reply.failed[name] for name in reply.unresolvable if name in reply.failed)
    rejected = (
        *diagnosis.rejected,
        *(Rejected(EXTENDER, text, count, final[text]) for text, count in sorted(reasons.items())),
    )
    counts = Counter(dict(diagnosis.counts)) + reasons
    items = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    return Diagnosis(
        message=f"0/{nodes} nodes are available: {items}.",
        plugins=tuple(sorted({*diagnosis.plugins, EXTENDER})),
        nodes=nodes,
        rejected=rejected,
        plugin_nodes=(*diagnosis.plugin_nodes, (EXTENDER, len(reply.failed))),
    )
