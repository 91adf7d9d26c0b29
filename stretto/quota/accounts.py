"""What queues have used, and the answers that follow from it.

An amount counts for its queue and for every queue above it. Three sums are kept a queue: *used*;
*held*, the part that is under a guarantee of the queue or of one below it; and *leaving*, the part
whose pods have been asked to go.

Rules:

* admission: at the queue and at each one above it, used + asked ≤ limit;
* the *level* of a pod is the lowest queue on its way up whose guarantee covers it whole. It is
  guaranteed there: no queue outside that one may make it leave. A pod without a level borrows;
* a pod may reclaim from pods outside its level that are not guaranteed against it and have run for
  the minimum of their queue.

Why that ends: a reclaim adds to what is held at the level of the unit and takes nothing from what
is held there or deeper, since whoever leaves was guaranteed at most further up. So the sums held,
the deepest first, only grow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from stretto.quota.rows import Amounts
from stretto.quota.tree import QueueNode

Sums = dict[str, int]
NO_LEVEL = -1


class Account:
    """The sums of one queue."""

    __slots__ = ("aged", "held", "leaving", "used")

    def __init__(self) -> None:
        self.used: Sums = {}
        self.held: Sums = {}
        self.leaving: Sums = {}
        self.aged = 0
        """Pods that others may reclaim, as far as it is a matter of this queue."""


def add(sums: Sums, amounts: Iterable[tuple[str, int]], sign: int = 1) -> None:
    """sums += sign · amounts; zeros are dropped."""
    for name, amount in amounts:
        left = sums.get(name, 0) + sign * amount
        if left:
            sums[name] = left
        else:
            sums.pop(name, None)


class Accounts:
    """Accounts by queue name; made when first asked for."""

    def __init__(self) -> None:
        self.by_name: dict[str, Account] = {}

    def of(self, node: QueueNode) -> Account:
        """The account of a queue."""
        found = self.by_name.get(node.name)
        if found is None:
            found = self.by_name[node.name] = Account()
        return found

    def keep(self, names: Collection[str]) -> None:
        """Forget accounts of queues that are no more; nothing is left in them."""
        for name in [name for name in self.by_name if name not in names]:
            gone = self.by_name.pop(name)
            assert not gone.used, f"{name} is gone and has pods left"

    # ------------------------------------------------------------------------------------ counting
    def use(self, node: QueueNode, amounts: Amounts, sign: int = 1) -> None:
        """Count amounts for a queue and all above it."""
        for each in node.path:
            add(self.of(each).used, amounts, sign)

    def hold(self, node: QueueNode, level: int, amounts: Amounts, sign: int = 1) -> None:
        """Count amounts under the guarantee at a level (a depth), and for all above it."""
        if level != NO_LEVEL:
            for each in node.at(level).path:
                add(self.of(each).held, amounts, sign)

    def leave(self, node: QueueNode, amounts: Amounts, sign: int = 1) -> None:
        """Count amounts whose pods have been asked to go."""
        for each in node.path:
            add(self.of(each).leaving, amounts, sign)

    # ----------------------------------------------------------------------------------- answering
    def over(
        self, node: QueueNode, amounts: Amounts, *, besides: Mapping[str, Sums] | None = None
    ) -> tuple[QueueNode, str] | None:
        """The first queue on the way up, and the resource, that has no room for amounts; None:
        there is room. ``besides``: amounts that count as used, by queue."""
        for each in node.path:
            limit = each.limit
            if not limit:
                continue
            used = self.of(each).used
            more = besides.get(each.name) if besides else None
            for name, amount in amounts:
                most = limit.get(name)
                if most is not None and amount:
                    taken = used.get(name, 0) + (more.get(name, 0) if more else 0)
                    if taken + amount > most:
                        return each, name
        return None

    def room(
        self,
        node: QueueNode,
        amounts: Amounts,
        count: int,
        *,
        besides: Mapping[str, Sums] | None = None,
    ) -> int:
        """How many of ``count`` pods that ask for these amounts have room."""
        for each in node.path:
            used = self.of(each).used
            more = besides.get(each.name) if besides else None
            for name, amount in amounts:
                most = each.limit.get(name)
                if most is not None and amount:
                    taken = used.get(name, 0) + (more.get(name, 0) if more else 0)
                    count = min(count, max(0, most - taken) // amount)
        return count

    def level(self, node: QueueNode, amounts: Amounts) -> int:
        """The depth of the lowest queue on the way up whose guarantee covers these amounts;
        NO_LEVEL: they are borrowed."""
        for each in node.path:
            if each.guaranteed and self._covers(each, amounts):
                return each.depth
        return NO_LEVEL

    def _covers(self, node: QueueNode, amounts: Amounts) -> bool:
        """A guarantee covers the resources that it names, and only pods that ask for one."""
        held, some = self.of(node).held, False
        for name, amount in amounts:
            promised = node.guaranteed.get(name)
            if promised is None or not amount:
                continue
            if held.get(name, 0) + amount > promised:
                return False
            some = True
        return some

    def share(
        self, node: QueueNode, totals: Mapping[str, int], *, more: Sums | None = None
    ) -> float:
        """The dominant share of a queue over its weight: the largest part that it has of any
        resource of the cluster (Ghodsi et al., NSDI 2011)."""
        best = 0.0
        used = self.of(node).used
        names = used if not more else {*used, *more}
        for name in names:
            total = totals.get(name, 0)
            if total > 0:
                amount = used.get(name, 0) + (more.get(name, 0) if more else 0)
                best = max(best, amount / total)
        return best / node.row.weight


def may_leave(
    victim: QueueNode | None,
    victim_level: int,
    *,
    aged: bool,
    lower: bool,
    unit: QueueNode | None,
    level: int,
) -> bool:
    """Whether a pod (its queue and level) may be made to leave for a unit (its queue, and the level
    it would have); ``lower``: the pod is of lower priority.

    Priority decides as ever, but against a guarantee that the unit's queue has no part in it counts
    for nothing. Beyond priority only what is borrowed is reclaimed, by what is guaranteed.
    """
    if victim is None or unit is None:
        return lower
    guarded = victim_level != NO_LEVEL and not victim.at(victim_level).contains(unit)
    if guarded:
        return False
    if lower:
        return True
    return aged and level != NO_LEVEL and not unit.at(level).contains(victim)
