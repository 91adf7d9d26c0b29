"""What a Binder does, a line an act: for the history checker, and for people after an incident.

Off unless a file is named. A line is one ``write`` to a file opened for appending, so that a
process that is killed has written what it did, and a successor's lines follow those of its
predecessor. ``-`` is stdout, for containers whose file system is read-only: there the lines may
stand among those of the log, from which their field ``act`` tells them.
"""

from __future__ import annotations

import os
import pathlib
import time

import msgspec

from stretto.model.errors import OperatorError

STDOUT = pathlib.Path("-")
"""Names stdout instead of a file."""
_STDOUT_FD = 1


class AuditFileError(OperatorError):
    """The file cannot be written."""

    exit_code = 2


class AuditRecord(msgspec.Struct, omit_defaults=True, gc=False):
    """One act; fields that say nothing are left out."""

    act: str
    """"open", "reserved", "post", "answer", "rebased", "fenced", "freed", "bound", "evict" (a
    victim was asked to go), "lost" (the ledger: commits stand still), "whole" (again), "drift",
    "stop"."""
    epoch: int = 0
    t: int = 0
    """Monotonic nanoseconds of the host."""
    uid: str = ""
    """Of the pod."""
    node: str = ""
    """Its name."""
    node_uid: str = ""
    rv: int = 0
    """post, reserved, rebased: the resourceVersion that the bind requires; fenced: the new one."""
    cause: str = ""
    """freed: what it ended with; answer, evict: what it was answered; drift: what disagrees."""


class AuditLog:
    """Writes records, or nothing if there is no file."""

    def __init__(self, path: pathlib.Path | None, *, epoch: int = 0) -> None:
        self.on = path is not None
        """Ask before making a record on a hot path."""
        self._epoch = epoch
        self._encode = msgspec.json.Encoder().encode
        self._file = -1
        if path == STDOUT:
            self._file = _STDOUT_FD
        elif path is not None:
            try:
                self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
            except OSError as error:
                raise AuditFileError(
                    f"the audit log {path} cannot be written: {error.strerror}; name another file"
                ) from None

    def note(self, record: AuditRecord) -> None:
        """Write a record; its time and epoch are set here."""
        if self._file < 0:
            return
        record.t, record.epoch = time.monotonic_ns(), self._epoch
        line = self._encode(record) + b"\n"
        written = os.write(self._file, line)
        while written < len(line):  # a pipe may take a part
            written += os.write(self._file, line[written:])

    def close(self) -> None:
        """No more records."""
        if self._file >= 0 and self._file != _STDOUT_FD:
            os.close(self._file)
        self._file = -1
