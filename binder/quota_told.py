"""What the log has been told of the sums of queues, and of which it must be told again."""

from __future__ import annotations

from collections.abc import Iterable

from stretto.quota.accounts import Accounts
from stretto.quota.rows import UsageRow
from stretto.quota.tree import QueueNode, Tree


class ToldSums:
    """See the module docstring."""

    def __init__(self) -> None:
        self._rows: dict[str, UsageRow] = {}
        self._moved: dict[str, None] = {}
        """Queues whose sums may not be those that were told."""

    def move(self, queue: QueueNode) -> None:
        """The sums of a queue, and of all above it, change."""
        for each in queue.path:
            self._moved[each.name] = None

    def move_all(self, names: Iterable[str]) -> None:
        """Queues of these names are there, and no others."""
        self._moved |= dict.fromkeys([*names, *self._rows])

    def changes(self, tree: Tree, accounts: Accounts) -> list[tuple[str, UsageRow | None]]:
        """What the log is to be told: (queue, its sums); None for one that is gone."""
        changed: list[tuple[str, UsageRow | None]] = []
        moved, self._moved = self._moved, {}
        for name in moved:
            node = tree.nodes.get(name)
            row = None if node is None else _row(node, accounts)
            if self._rows.get(name) != row:
                changed.append((name, row))
            if row is None:
                self._rows.pop(name, None)
            else:
                self._rows[name] = row
        return changed

    def validate(self, node: QueueNode, accounts: Accounts) -> None:
        """Assert that the log has been, or is about to be, told of a queue."""
        told = node.name in self._moved or self._rows.get(node.name) == _row(node, accounts)
        assert told, f"{node!r} is told otherwise"


def _row(node: QueueNode, accounts: Accounts) -> UsageRow:
    account = accounts.of(node)
    return UsageRow(
        tuple(sorted(account.used.items())),
        tuple(sorted(account.held.items())),
        tuple(sorted(account.leaving.items())),
        account.aged,
    )
