"""What `stretto run` starts when it is not told."""

from __future__ import annotations

import os
import pathlib

import pytest

from stretto.cli.run import RunError, RunSettings, log_of, shards_for


@pytest.mark.parametrize(("cpus", "shards"), [(1, 1), (2, 1), (3, 1), (4, 2), (64, 2)])
def test_a_second_shard_needs_a_cpu_of_its_own(
    monkeypatch: pytest.MonkeyPatch, cpus: int, shards: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cpus)))
    assert shards_for(cpus) == RunSettings().shards == shards


def test_a_log_that_cannot_be_written_is_one_line(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "logs" / "binder.log").mkdir(parents=True)
    for folder in ("file", "logs"):
        with pytest.raises(RunError, match=rf"--log-dir .*/{folder}: binder.log: .*; name a f"):
            log_of(RunSettings(log_dir=tmp_path / folder), "binder")
