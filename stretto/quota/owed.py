"""What is promised to members that have no pod yet, as far as they could use it, queue by queue.

More may be promised in a queue than its limit leaves: a Job that somebody else has resumed, a limit
that was lowered, borrowers that have yet to leave. Naive form: count all of it at the queues above
too. Its fault: a sibling waits there for room that nobody can use. The form chosen counts at each
queue, and hands to the one above, at most

* of members of one kind as many as have room here if they were alone;
* of a resource what the queues below hand up, and what is free here below the limit.

So what counts is never less than promised members can take, in whatever order they come, and it is
never above a limit. What is cut off counts as soon as room comes for it, from the bottom up.

It is part of the sums ``used`` and ``held`` of the accounts. A change costs the way up, and the
kinds of members of a queue only where something is cut off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from stretto.quota.accounts import Accounts, Sums, add
from stretto.quota.rows import Amounts
from stretto.quota.tree import QueueNode

Key = TypeVar("Key")
Members = dict[Amounts, int]
"""What one asks for → how many."""


class _Account:
    """Of one queue."""

    __slots__ = ("counted", "cut", "handed", "members")

    def __init__(self) -> None:
        self.members: Members = {}
        """Its own, and what the queues below hand up."""
        self.handed: Sums = {}
        """The same by resource, as far as the queues below have room for it."""
        self.cut: Members | None = None
        """Those of the members that have room here; None: all have."""
        self.counted: Sums = {}
        """What counts here."""


class Owed:
    """See the module docstring."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._by_name: dict[str, _Account] = {}

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def of(self, node: QueueNode) -> Sums:
        """What counts at a queue."""
        found = self._by_name.get(node.name)
        return found.counted if found is not None else {}

    def promise(self, node: QueueNode, amounts: Amounts, count: int) -> None:
        """So many members more (or fewer) are promised room in a queue."""
        self._climb(node, {amounts: count}, _total({amounts: count}))

    def used(self, node: QueueNode) -> None:
        """What is used in a queue, and above it, has changed."""
        if self._by_name:
            self._climb(node, {}, {})

    def _climb(self, node: QueueNode, members: Members, sums: Sums) -> None:
        """Hand changes up."""
        for each in node.path:
            account = self._by_name.get(each.name)
            if account is None:
                if not members and not sums:
                    continue
                account = self._by_name[each.name] = _Account()
            before = account.cut
            add_members(account.members, members)
            add(account.handed, sums.items())
            counted = self._cut(account, self._free(each, account))
            if before is not None or account.cut is not None:
                was = _less(account.members, members) if before is None else before
                members = _less(account.members if account.cut is None else account.cut, was)
            sums = _less(counted, account.counted)
            account.counted = counted
            here = self._accounts.of(each)
            add(here.used, sums.items())
            add(here.held, sums.items())
            if not account.members:
                assert not counted, f"nobody is promised anything in {each!r}, and it counts"
                del self._by_name[each.name]

    def _free(self, node: QueueNode, account: _Account) -> Sums:
        """What a limit leaves beside what is used."""
        used, own = self._accounts.of(node).used, account.counted
        return {
            name: max(0, most - used.get(name, 0) + own.get(name, 0))
            for name, most in node.limit.items()
        }

    def _cut(self, account: _Account, free: Sums) -> Sums:
        """Find which members have room, and what they count for."""
        handed = account.handed
        if all(handed.get(name, 0) <= most for name, most in free.items()):
            account.cut = None
            return dict(handed)
        account.cut = cut = {}
        for amounts, count in account.members.items():
            fit = min([count, *(free[n] // a for n, a in amounts if a and n in free)])
            if fit:
                cut[amounts] = fit
        total = _total(cut)
        least = {n: min(a, handed.get(n, 0), free.get(n, a)) for n, a in total.items()}
        return {name: amount for name, amount in least.items() if amount}


def add_members(members: Members, more: Members) -> None:
    """members += more; zeros are dropped."""
    for amounts, count in more.items():
        left = members.get(amounts, 0) + count
        assert left >= 0, "fewer than no members are promised something"
        if left:
            members[amounts] = left
        else:
            members.pop(amounts, None)


def _total(members: Members) -> Sums:
    """What members ask for together."""
    sums: Sums = {}
    for amounts, count in members.items():
        add(sums, amounts, count)
    return sums


def _less(one: Mapping[Key, int], other: Mapping[Key, int]) -> dict[Key, int]:
    """one - other, without zeros."""
    both = {key: one.get(key, 0) - other.get(key, 0) for key in {**one, **other}}
    return {key: amount for key, amount in both.items() if amount}
