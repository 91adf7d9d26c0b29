"""Pods that a better guarantee may yet cover.

Pods of one kind are alike to every guarantee, so the first that none has room for speaks for those
behind it: what is looked at are kinds and who is raised, not every pod.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable

from binder.quota_pods import Counted, Likes
from stretto.quota.accounts import Accounts


class Hopes:
    """See the module docstring. Who stands at the best level, that of its own queue, has none."""

    def __init__(self) -> None:
        self._lines: dict[Likes, dict[str, Counted]] = {}
        """By uid, the oldest first; a line is never empty."""

    def add(self, counted: Counted) -> None:
        """A pod counts at its level now."""
        if counted.level != counted.queue.depth:
            self._lines.setdefault(counted.likes, {})[counted.uid] = counted

    def drop(self, counted: Counted) -> None:
        """A pod counts no longer, or not as it is."""
        if counted.level == counted.queue.depth:
            return
        line = self._lines[counted.likes]
        del line[counted.uid]
        if not line:
            del self._lines[counted.likes]

    def sort(self, kinds: Collection[Likes]) -> None:
        """Older pods of these kinds may have come to stand behind younger ones."""
        for likes in self._lines.keys() & kinds:
            line = self._lines[likes]
            self._lines[likes] = {c.uid: c for c in sorted(line.values(), key=by_order)}

    def fulfilled(self, freed: Collection[str], accounts: Accounts) -> list[tuple[Counted, int]]:
        """Pods that a guarantee below these roots has room for now, and its level, which is held
        for them; the oldest first, as when they came."""
        heads = []
        for there in self._lines.values() if freed else ():
            line = iter(there.values())
            first = next(line)
            if first.queue.root.name in freed:
                heads.append((first.order, first, line))
        heapq.heapify(heads)
        raised: list[tuple[Counted, int]] = []
        while heads:
            _, counted, line = heapq.heappop(heads)
            better = _better(counted, accounts)
            if better > counted.level:
                raised.append((counted, better))
                following = next(line, None)
                if following is not None:
                    heapq.heappush(heads, (following.order, following, line))
        return raised

    def validate(self, pods: Iterable[Counted]) -> None:
        """Assert that these, which are all that count in a queue, are in line, and no others."""
        hopeful = [c for c in pods if c.level != c.queue.depth]
        assert sum(map(len, self._lines.values())) == len(hopeful)
        for counted in hopeful:
            assert self._lines[counted.likes][counted.uid] is counted
        for line in self._lines.values():
            orders = [counted.order for counted in line.values()]
            assert orders == sorted(orders), "they are raised oldest first"


def by_order(counted: Counted) -> int:
    """A key to sort by: the oldest first."""
    return counted.order


def _better(counted: Counted, accounts: Accounts) -> int:
    """The level that a pod could have now; if it is better, it is held there."""
    queue, amounts = counted.queue, counted.amounts
    accounts.hold(queue, counted.level, amounts, -1)
    better = accounts.level(queue, amounts)
    assert better <= queue.depth
    accounts.hold(queue, max(better, counted.level), amounts)
    return better
