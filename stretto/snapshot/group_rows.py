"""Where the members of pod groups are: group → row → pods. Only pods of a group are in it."""

from __future__ import annotations

from collections.abc import Mapping


class GroupRows:
    """Members per row, committed and tentative."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[int, int]] = {}

    def shift(self, group: str, row: int, by: int) -> None:
        """Count ``by`` more (or fewer) members on a row."""
        rows = self._rows.setdefault(group, {})
        left = rows.get(row, 0) + by
        if left > 0:
            rows[row] = left
            return
        rows.pop(row, None)
        if not rows:
            del self._rows[group]

    def of(self, group: str) -> Mapping[int, int]:
        """Row → members of a group."""
        return self._rows.get(group, _NONE)

    def clear(self, row: int) -> list[str]:
        """Forget a row; the groups that had members there."""
        groups = [group for group, rows in self._rows.items() if row in rows]
        for group in groups:
            del self._rows[group][row]
            if not self._rows[group]:
                del self._rows[group]
        return groups

    def content(self) -> Mapping[str, Mapping[int, int]]:
        """The table itself, for comparing."""
        return self._rows


_NONE: dict[int, int] = {}
