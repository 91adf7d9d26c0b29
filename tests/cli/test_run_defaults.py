"""What `stretto run` starts when it is not told."""

from __future__ import annotations

import os

import pytest

from stretto.cli.run import RunSettings, shards_for


@pytest.mark.parametrize(("cpus", "shards"), [(1, 1), (2, 1), (3, 1), (4, 2), (64, 2)])
def test_a_second_shard_needs_a_cpu_of_its_own(
    monkeypatch: pytest.MonkeyPatch, cpus: int, shards: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cpus)))
    assert shards_for(cpus) == RunSettings().shards == shards
