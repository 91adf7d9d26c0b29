"""Errors that a person can act on."""

from __future__ import annotations


class OperatorError(Exception):
    """What is wrong, where, and what to do, in one line.

    Whoever raises it has written a sentence for the operator; the command prints that sentence
    without a stack trace and exits with ``exit_code``. Everything else that escapes is a defect
    and keeps its trace.
    """

    exit_code = 2
