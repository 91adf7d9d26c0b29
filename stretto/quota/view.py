"""Quota as of a snapshot: what the log says of queues and their usage, and the tentative pods.

The same view answers a shard that decides, the Binder that commits, and preemption in both; the
snapshot tells it of every tentative pod and of every pod that is supposed away. Without queues it
is off, and costs a look at one attribute.

Nominated pods are counted beside: the room that their victims leave is theirs, so that an other's
admission counts them as used. What Jobs are promised for members without a pod counts as far as
they could use it (:mod:`stretto.quota.owed`). What is asked to go still counts as used for
admission, and not for reclaim.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from stretto.model.shape import Shape
from stretto.quota.accounts import NO_LEVEL, Accounts, Sums, add, may_leave
from stretto.quota.owed import Owed
from stretto.quota.rows import Amounts, QueueRow, UsageRow, asked
from stretto.quota.tree import Assigned, QueueNode, Tree

AGED = 4
"""Flag of a pod: it has run for the minimum of its queue, and may be reclaimed."""
LEVEL_SHIFT = 4
"""Above this bit of the flags: the level of its guarantee plus 1, 0 for none."""
LEVEL_MASK = 0xF0


class Standing(NamedTuple):
    """What quota makes of a pod that wants to be placed."""

    queue: QueueNode | None
    level: int


OUTSIDE = Standing(None, NO_LEVEL)


Kind = tuple[str, str, Amounts]
"""(namespace, queue label, requests)."""


def _kind(shape: Shape) -> Kind:
    return shape.namespace, shape.queue, shape.requests


def level_of(flags: int) -> int:
    """The level that a pod's flags say."""
    return ((flags & LEVEL_MASK) >> LEVEL_SHIFT) - 1


def flags_for(level: int, *, aged: bool) -> int:
    """The flags that say a level, and whether the pod may be reclaimed."""
    return (level + 1) << LEVEL_SHIFT | (AGED if aged else 0)


class QuotaView:
    """See the module docstring."""

    def __init__(self) -> None:
        self.on = False
        """The API of queues is served."""
        self.version = 0
        """Grows with each change to queues, usage or namespaces."""
        self._rows: dict[str, QueueRow] = {}
        self._usage: dict[str, UsageRow] = {}
        self._namespaces: dict[str, str] = {}
        self._tree: Tree | None = None
        self._accounts = Accounts()
        self._owed = Owed(self._accounts)
        self._members: dict[Kind, tuple[Shape, int]] = {}
        """Members that are promised room: one of each kind, and how many there are."""
        self._tentative: dict[bytes, tuple[Shape, int]] = {}
        """By digest: pods counted beside what the log says."""
        self._nominated: dict[Kind, tuple[Shape, int]] = {}
        """Nominated pods: one of each kind, and how many there are."""
        self._promised: dict[str, Sums] = {}
        """What they are promised, by queue."""
        self._on_rows: dict[int, Counter[bytes]] = {}
        """How many of them are on which row of the snapshot."""

    # -------------------------------------------------------------------------------------- the log
    def served(self, served: bool) -> None:
        """Whether the API server serves queues."""
        if served != self.on:
            self.on = served
            self._tentative.clear()
            self._members.clear()
            self._on_rows.clear()
            self._changed()

    def queue(self, name: str, row: QueueRow | None) -> None:
        """A queue is so, or is gone."""
        before = self._rows.get(name)
        if row is None:
            self._rows.pop(name, None)
        else:
            self._rows[name] = row
        if before is None or row is None or before.asks != row.asks:
            self._changed()

    def usage(self, name: str, row: UsageRow | None) -> None:
        """The Binder says what a queue has used."""
        self.version += 1
        if row is None:
            self._usage.pop(name, None)
        else:
            self._usage[name] = row
        if self._tree is not None:
            self._count(name)

    def namespace(self, name: str, label: str) -> None:
        """A namespace has this queue label, or none ("")."""
        if self._namespaces.get(name, "") == label:
            return
        if label:
            self._namespaces[name] = label
        else:
            del self._namespaces[name]
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        self._tree = None

    # ------------------------------------------------------------------------------------- reading
    @property
    def tree(self) -> Tree:
        """The queues as they are now."""
        if self._tree is None:
            self._tree = Tree(self._rows, self._namespaces)
            self._accounts = Accounts()
            self._owed = Owed(self._accounts)
            for name in self._tree.nodes:
                self._count(name)
            for shape, count in self._members.values():
                self._owe(shape, count)
            self._promised = {}
            for shape, count in self._nominated.values():
                self._promise(self._promised, shape, count)
        return self._tree

    @property
    def accounts(self) -> Accounts:
        """The sums of the queues, tentative pods included; those are taken for held, so that what
        is under way is never promised a guarantee twice."""
        assert self.tree is not None
        return self._accounts

    def _count(self, name: str) -> None:
        """Take over a queue's usage row, the tentative pods on top."""
        assert self._tree is not None
        node = self._tree.nodes.get(name)
        if node is None:
            return
        row = self._usage.get(name, UsageRow())
        account = self._accounts.of(node)
        account.used, account.held = dict(row.used), dict(row.held)
        account.leaving, account.aged = dict(row.leaving), row.aged
        for shape, count in self._tentative.values():
            queue = self.charged(shape)
            if queue is not None and node.contains(queue):
                for sums in (account.used, account.held):
                    add(sums, asked(shape), count)
        for sums in (account.used, account.held):
            add(sums, self._owed.of(node).items())
        self._owed.used(node)

    def usage_of(self, name: str) -> UsageRow:
        """What the log says of a queue."""
        return self._usage.get(name, UsageRow())

    def row(self, name: str) -> QueueRow:
        """A queue as the log has it now, with what its status says."""
        return self._rows.get(name, QueueRow())

    def assigned(self, shape: Shape) -> Assigned:
        """The queue of pods of a shape."""
        return self.tree.assigned(shape.namespace, shape.queue)

    def charged(self, shape: Shape) -> QueueNode | None:
        """Where pods of a shape count that run."""
        return self.tree.charged(shape.namespace, shape.queue)

    # ------------------------------------------------------------------------------------ tentative
    def count(self, shape: Shape, row: int, count: int) -> None:
        """So many pods of a shape more (or fewer) are counted on a row beside the log. Those that
        were counted before there were queues are not known here, and their going is nothing."""
        here = self._on_rows.setdefault(row, Counter())
        count = max(count, -here[shape.digest])
        here[shape.digest] += count
        if not here[shape.digest]:
            del here[shape.digest]
        if not here:
            del self._on_rows[row]
        if count:
            self.suppose(shape, count)

    def clear_row(self, row: int) -> None:
        """The node of a row has left and takes what was counted there along."""
        for digest, count in list(self._on_rows.get(row, Counter()).items()):
            self.count(self._tentative[digest][0], row, -count)

    def suppose(self, shape: Shape, count: int) -> None:
        """The same for the length of a question; whoever asks undoes it."""
        _, before = self._tentative.get(shape.digest, (shape, 0))
        if before + count:
            self._tentative[shape.digest] = shape, before + count
        else:
            self._tentative.pop(shape.digest, None)
        if self._tree is not None:
            self._add(shape, count)

    def _add(self, shape: Shape, count: int) -> None:
        queue = self.charged(shape)
        if queue is not None:
            amounts = asked(shape)
            self._accounts.use(queue, amounts, count)
            self._accounts.hold(queue, queue.depth, amounts, count)
            self._owed.used(queue)

    # --------------------------------------------------------------------------------------- Jobs
    def promise(self, shape: Shape, count: int) -> None:
        """So many members of a shape more (or fewer) are promised room before they have pods."""
        kind = _kind(shape)
        left = self._members.pop(kind, (shape, 0))[1] + count
        assert left >= 0, "fewer than no members are promised room"
        if left:
            self._members[kind] = shape, left
        if self._tree is not None:
            self._owe(shape, count)

    def _owe(self, shape: Shape, count: int) -> None:
        queue = self.assigned(shape).queue
        if queue is not None:
            self._owed.promise(queue, asked(shape), count)

    def owed(self, queue: QueueNode) -> Sums:
        """What counts at a queue for members without a pod."""
        return self._owed.of(queue)

    # ------------------------------------------------------------------------------------ nominated
    def nominate(self, shape: Shape, count: int) -> None:
        """So many pods of a shape more (or fewer) are nominated."""
        kind = _kind(shape)
        left = self._nominated.pop(kind, (shape, 0))[1] + count
        if left:
            self._nominated[kind] = shape, left
        if self._tree is not None:
            self._promise(self._promised, shape, count)

    def _promise(self, sums: dict[str, Sums], shape: Shape, count: int) -> None:
        queue = self.assigned(shape).queue
        for each in queue.path if queue is not None else ():
            add(sums.setdefault(each.name, {}), asked(shape), count)

    def _besides(self, shape: Shape) -> dict[str, Sums]:
        """What others are promised, by queue: a nominated shape leaves one of its own kind out,
        which is itself."""
        if not shape.nominated_node or _kind(shape) not in self._nominated:
            return self._promised
        queue = self.assigned(shape).queue
        path = queue.path if queue is not None else ()
        others = self._promised | {each.name: dict(self._promised[each.name]) for each in path}
        self._promise(others, shape, -1)
        return others

    # ------------------------------------------------------------------------------------ answering
    def refusal(self, shape: Shape, *, promised: bool = False) -> str:
        """Why a pod of this shape may not be placed, '' if it may. ``promised``: what is promised
        to members does not count, as it is one of them."""
        queue, problem = self.assigned(shape)
        if queue is None or problem:
            return problem
        besides = self._besides(shape)
        if promised:
            besides = self._without_owed(queue, besides)
        over = self.accounts.over(queue, asked(shape), besides=besides)
        return "" if over is None else over_text(queue, *over)

    def _without_owed(self, queue: QueueNode, besides: dict[str, Sums]) -> dict[str, Sums]:
        less = dict(besides)
        for each in queue.path:
            sums = less[each.name] = dict(besides.get(each.name, {}))
            add(sums, self.owed(each).items(), -1)
        return less

    def lack(self, queue: QueueNode, shape: Shape, count: int = 1) -> tuple[QueueNode, str] | None:
        """Which queue on the way up from a pod's own lacks room for so many of it, and of what;
        None: there is room."""
        amounts = tuple((name, amount * count) for name, amount in asked(shape))
        return self.accounts.over(queue, amounts, besides=self._besides(shape))

    def room(self, shape: Shape, count: int) -> int:
        """How many of ``count`` pods of this shape may be placed."""
        queue, problem = self.assigned(shape)
        if problem:
            return 0
        if queue is None:
            return count
        return self._accounts.room(queue, asked(shape), count, besides=self._besides(shape))

    def fits_without_leaving(self, shape: Shape) -> bool:
        """Whether there is room once everybody is gone who has been asked to go."""
        queue, problem = self.assigned(shape)
        if queue is None or problem:
            return not problem
        besides = dict(self._besides(shape))
        for each in queue.path:
            sums = besides[each.name] = dict(besides.get(each.name, {}))
            add(sums, self._accounts.of(each).leaving.items(), -1)
        return self._accounts.over(queue, asked(shape), besides=besides) is None

    def standing(self, shape: Shape) -> Standing:
        """The queue of a pod that wants to be placed, and the level it would have."""
        queue = self.assigned(shape).queue
        if queue is None:
            return OUTSIDE
        return Standing(queue, self._accounts.level(queue, asked(shape)))

    def may_leave(self, standing: Standing, victim: Shape, flags: int, *, lower: bool) -> bool:
        """Whether a placed pod may be made to leave for a unit; see :func:`may_leave`."""
        return may_leave(
            self.charged(victim),
            level_of(flags),
            aged=bool(flags & AGED),
            lower=lower,
            unit=standing.queue,
            level=standing.level,
        )

    def yields(self, shape: Shape, nominated: Shape) -> bool:
        """Whether a pod has to leave room for a nominated one whatever their priorities: it would
        borrow what the other is guaranteed."""
        queue, level = self.standing(nominated)
        if queue is None or level == NO_LEVEL:
            return False
        own = self.standing(shape)
        return (
            own.queue is not None
            and own.level == NO_LEVEL
            and not queue.at(level).contains(own.queue)
        )


def over_text(queue: QueueNode, full: QueueNode, resource: str) -> str:
    """What a pod is told that has no room. Without numbers that change while it waits."""
    where = "" if full is queue else f" above queue {queue.name}"
    return f"waiting for quota: queue {full.name}{where} is at its limit of {resource}"
