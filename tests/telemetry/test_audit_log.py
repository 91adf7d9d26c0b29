"""Where the Binder's acts are written."""

from __future__ import annotations

import json
import os
import pathlib

import pytest

from stretto.telemetry.audit_log import STDOUT, AuditFileError, AuditLog, AuditRecord


def test_acts_go_to_stdout_where_no_file_can_be_written(capfd: pytest.CaptureFixture[str]) -> None:
    for epoch in (7, 8):
        log = AuditLog(STDOUT, epoch=epoch)
        assert log.on
        log.note(AuditRecord("post", uid="u", node="n"))
        log.close()
        log.note(AuditRecord("stop"))
    os.write(1, b"stdout is left open\n")
    *lines, last = capfd.readouterr().out.splitlines()
    acts = [json.loads(line) for line in lines]
    assert [(act["act"], act["epoch"], act["uid"]) for act in acts] == [
        ("post", 7, "u"), ("post", 8, "u"),
    ]  # fmt: skip
    assert last == "stdout is left open"


def test_acts_are_appended_to_a_file(tmp_path: pathlib.Path) -> None:
    for epoch in (7, 8):
        log = AuditLog(tmp_path / "audit", epoch=epoch)
        log.note(AuditRecord("open"))
        log.close()
    lines = (tmp_path / "audit").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [7, 8]


def test_a_file_that_cannot_be_written_ends_the_start(tmp_path: pathlib.Path) -> None:
    with pytest.raises(AuditFileError, match="name another file"):
        AuditLog(tmp_path / "absent" / "audit")
