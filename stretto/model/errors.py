"""Errors that a person can act on."""

from __future__ import annotations

import os
from typing import NoReturn

SUPERSEDED = 4
"""Exit code of a process in whose place another may lead: no defect, and nothing to mend. Whoever
keeps it running starts it again, and it stands by."""


class OperatorError(Exception):
    """What is wrong, where, and what to do, in one line.

    Whoever raises it has written a sentence for the operator; the command prints that sentence
    without a stack trace and exits with ``exit_code``. Everything else that escapes is a defect
    and keeps its trace.
    """

    exit_code = 2


def end_superseded() -> NoReturn:
    """End on the spot: another may be acting already, so there is nothing that we may still do."""
    os._exit(SUPERSEDED)
