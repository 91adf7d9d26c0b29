"""Settings of ``stretto shard``."""

from __future__ import annotations

import dataclasses
import os
import socket

from stretto.config.addresses import split_address
from stretto.config.common import ConfigError, RoleSettings


def default_name() -> str:
    """Host and process: in a pod its name, and distinct for shards that share a machine."""
    return f"{socket.gethostname()}-{os.getpid()}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardSettings(RoleSettings):
    """Flags of a shard. Each says its unit and the reason of its default."""

    name: str = dataclasses.field(
        default="",
        metadata={
            "help": "stable name of this shard, unique among the shards; empty: host and process id"
        },
    )
    dispatcher: str = dataclasses.field(
        default="127.0.0.1:7070",
        metadata={
            "help": "host:port of the dispatcher, or several with commas between; every address "
            "behind a name is dialled, and the one that leads is kept"
        },
    )
    binder: str = dataclasses.field(
        default="127.0.0.1:7071",
        metadata={
            "help": "host:port of the binder, or several with commas between; every address "
            "behind a name is dialled, and the one that leads is kept"
        },
    )
    telemetry_listen: str = dataclasses.field(
        default="127.0.0.1:10272",
        metadata={"help": "host:port of /metrics, /livez, /readyz; port 0 takes any free one"},
    )
    scheduler_name: tuple[str, ...] = dataclasses.field(
        default=(),
        metadata={
            "help": "schedulerName to serve; repeatable; none: whatever the dispatcher sends"
        },
    )
    window: int = dataclasses.field(
        default=512,
        metadata={
            "help": "units held at most, decided or not: eight messages of 64 keep both streams "
            "busy, more would only wait here instead of in the queue"
        },
    )
    spares: int = dataclasses.field(
        default=2,
        metadata={
            "help": "other nodes named in a proposal, which the binder tries before it says "
            "conflict"
        },
    )
    partition_index: int = dataclasses.field(
        default=0,
        metadata={"help": "which of --partition-count slices of the nodes to prefer among equals"},
    )
    partition_count: int = dataclasses.field(
        default=0,
        metadata={
            "help": "slices the nodes are dealt into, usually the number of shards; 0: prefer a "
            "quarter chosen by the shard's name"
        },
    )
    snapshot_silence_s: float = dataclasses.field(
        default=5.0,
        metadata={
            "help": "seconds without a word from the binder's log after which nothing is proposed: "
            "five of its heartbeats"
        },
    )
    linger_ms: float = dataclasses.field(
        default=1.0,
        metadata={
            "help": "milliseconds that a proposal waits for company before it is sent; answers to "
            "the dispatcher wait four times as long"
        },
    )
    drain_s: float = dataclasses.field(
        default=5.0,
        metadata={"help": "seconds to wait for verdicts on open proposals after SIGTERM"},
    )
    validate: bool = dataclasses.field(
        default=False,
        metadata={"help": "check the state's invariants each second; costs CPU, for tests"},
    )
    stories: int = dataclasses.field(
        default=20_000,
        metadata={"help": "lines kept for /debug/story, of all units; 0 keeps none"},
    )

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        super().__post_init__()
        split_address(self.dispatcher, flag="--dispatcher")
        split_address(self.binder, flag="--binder")
        split_address(self.telemetry_listen, flag="--telemetry-listen")
        if self.partition_count < 0:
            raise ConfigError(f"--partition-count {self.partition_count}: take 0 or more")
        if not 1 <= self.window <= 65_536:
            raise ConfigError(f"--window {self.window}: take 1 to 65536 units")
        if not 0 <= self.spares <= 16:
            raise ConfigError(f"--spares {self.spares}: take 0 to 16 nodes")
        if self.partition_count and not 0 <= self.partition_index < self.partition_count:
            raise ConfigError(
                f"--partition-index {self.partition_index}: take 0 to {self.partition_count - 1}, "
                "below --partition-count"
            )
        if self.snapshot_silence_s <= 0 or self.drain_s < 0 or self.linger_ms < 0:
            raise ConfigError(
                "--snapshot-silence-s must be positive, --drain-s and --linger-ms not negative"
            )

    @property
    def shard_name(self) -> str:
        """The name in use."""
        return self.name or default_name()
