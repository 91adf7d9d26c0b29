"""`stretto check-history`: the verdict on a recorded history."""

from __future__ import annotations

import pathlib
import sys

from stretto.audit.checker import check, read_history

CODES = {"held": 0, "violated": 1, "inconclusive": 3}


def check_history(folder: str, *, schedulers: tuple[str, ...], at_rest: bool) -> int:
    """Print the table; 0 if all held, 1 if something is violated, 3 if the history has gaps.

    Raises:
        HistoryError: there is no history in the folder.
    """
    history = read_history(pathlib.Path(folder))
    findings = check(history, schedulers=schedulers, at_rest=at_rest)
    sys.stdout.write(findings.text() + "\n")
    return CODES[findings.verdict]
