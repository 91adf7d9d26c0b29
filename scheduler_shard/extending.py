"""The shell that asks extenders for the brain: each unit in a task of its own, a few at a time.

Nothing else waits for it: an extender that hangs costs the units that it is asked about their
time-out, and the others nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from scheduler_shard.asking import Question, Reply
from stretto.placement.extenders import Extender
from stretto.snapshot.delta import NodeRow

if TYPE_CHECKING:
    from stretto.rpc.extender_client import ExtenderClient, ExtenderFailed

logger = logging.getLogger(__name__)
IN_FLIGHT = 64
"""Units asked about at once; more wait here."""
SPARE_DOCUMENTS = 1024
"""JSON of nodes that is kept beyond twice those of the question in hand."""
SCORE_FACTOR = 10
"""An extender's 0..10 count as 0..100 (MaxNodeScore / MaxExtenderPriority)."""


class Extending:
    """Asks questions; ``answered`` is called with each reply."""

    def __init__(
        self, extenders: Sequence[Extender], answered: Callable[[Question, Reply], None]
    ) -> None:
        # Only a shard that has extenders to ask carries an HTTP client.
        from stretto.rpc.extender_client import ExtenderClient, ExtenderFailed

        self._failure: type[ExtenderFailed] = ExtenderFailed
        self._client: ExtenderClient = ExtenderClient(extenders)
        self._answered = answered
        self._questions: asyncio.Queue[Question] = asyncio.Queue()
        self._documents: dict[int, tuple[NodeRow, bytes]] = {}

    def put(self, questions: Sequence[Question]) -> None:
        """Ask these as soon as possible."""
        for question in questions:
            self._questions.put_nowait(question)

    async def run(self) -> None:
        """Ask until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(IN_FLIGHT):
                    group.create_task(self._work())
        finally:
            await self._client.close()

    async def _work(self) -> None:
        while True:
            question = await self._questions.get()
            self._answered(question, await self.ask(question))

    async def ask(self, question: Question) -> Reply:
        """All extenders of a question, one after the other as upstream: filter, then prioritise."""
        if question.doomed:
            return await self._ask_whom(question)
        reply = Reply(allowed=[row.name for _, row in question.nodes])
        try:
            for extender in question.extenders:
                if extender.filter_verb and reply.allowed:
                    await self._filter(extender, question, reply)
            if len(reply.allowed) > 1:
                for extender in question.extenders:
                    if extender.prioritize_verb:
                        await self._prioritize(extender, question, reply)
        except self._failure as error:
            logger.warning("%s", error)
            return Reply(error=str(error))
        return reply

    async def _ask_whom(self, question: Question) -> Reply:
        """Each extender may take candidates of preemption away, or name other victims there."""
        doomed = {each.name: list(each.uids) for each in question.doomed}
        violations = {each.name: each.violations for each in question.doomed}
        for extender in question.extenders:
            try:
                doomed = await self._client.preempt(
                    extender, pod=question.pod, doomed=doomed, violations=violations
                )
            except self._failure as error:
                logger.warning("%s", error)
                if not extender.ignorable:
                    return Reply(error=str(error))
            if not doomed:
                break
        return Reply(doomed=doomed)

    async def _filter(self, extender: Extender, question: Question, reply: Reply) -> None:
        try:
            left = await self._client.filter(
                extender, pod=question.pod, names=reply.allowed,
                nodes=self._nodes(extender, question),
            )  # fmt: skip
        except self._failure as error:
            if not extender.ignorable:
                raise
            logger.warning("%s; it is ignorable, so pods go on without it", error)
            return
        kept = set(left.names)
        for name in reply.allowed:
            if name not in kept:
                why = left.unresolvable.get(name) or left.failed.get(name)
                reply.failed[name] = why or f"node(s) were rejected by extender {extender.url}"
        reply.unresolvable.update(left.unresolvable)
        reply.allowed = [name for name in reply.allowed if name in kept]

    async def _prioritize(self, extender: Extender, question: Question, reply: Reply) -> None:
        """As upstream, an extender that cannot be asked adds nothing; one that lies is an error."""
        try:
            scores = await self._client.prioritize(
                extender, pod=question.pod, names=reply.allowed,
                nodes=self._nodes(extender, question),
            )  # fmt: skip
        except self._failure as error:
            if error.lied and not extender.ignorable:
                raise
            logger.warning("%s; it adds nothing to the scores", error)
            return
        for name, score in scores.items():
            added = score * extender.weight * SCORE_FACTOR
            reply.bonus[name] = reply.bonus.get(name, 0) + added

    def _nodes(self, extender: Extender, question: Question) -> dict[str, bytes]:
        """JSON of the nodes, kept while they are as they are; nothing for extenders that know
        them."""
        if extender.node_cache_capable:
            return {}
        found = {}
        for node_id, row in question.nodes:
            known = self._documents.get(node_id)
            if known is None or known[0] is not row:
                known = self._documents[node_id] = (row, node_document(row))
            found[row.name] = known[1]
        if len(self._documents) > 2 * len(question.nodes) + SPARE_DOCUMENTS:
            for node_id in self._documents.keys() - {node_id for node_id, _ in question.nodes}:
                del self._documents[node_id]  # most of them have left the cluster
        return found


def node_document(row: NodeRow) -> bytes:
    """A node as JSON of the API, as far as the snapshot knows it."""
    amounts = {
        name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in row.allocatable
    }
    taints = [{"key": t.key, "value": t.value, "effect": t.effect} for t in row.taints]
    images = [{"names": list(image.names), "sizeBytes": image.size} for image in row.images]
    return msgspec.json.encode(
        {
            "kind": "Node",
            "apiVersion": "v1",
            "metadata": {"name": row.name, "uid": row.uid, "labels": dict(row.labels)},
            "spec": {"unschedulable": row.unschedulable, "taints": taints},
            "status": {"allocatable": amounts, "capacity": amounts, "images": images},
        }
    )
