"""Settings of ``stretto dispatcher``."""

from __future__ import annotations

import dataclasses

from stretto.config.addresses import split_address
from stretto.config.common import ConfigError, LeaderSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class DispatcherSettings(LeaderSettings):
    """Flags of the dispatcher. Each says its unit and the reason of its default."""

    listen: str = dataclasses.field(
        default="127.0.0.1:7070",
        metadata={
            "help": "host:port that shards dial; loopback unless told otherwise, because plain "
            "text is allowed there only"
        },
    )
    telemetry_listen: str = dataclasses.field(
        default="127.0.0.1:10270",
        metadata={"help": "host:port of /metrics, /livez, /readyz; port 0 takes any free one"},
    )
    binder: str = dataclasses.field(
        default="127.0.0.1:7071",
        metadata={
            "help": "host:port of the binder, or several with commas between; every address "
            "behind a name is dialled, and the one that leads is kept"
        },
    )
    lease_name: str = dataclasses.field(
        default="stretto-dispatcher", metadata={"help": "name of the leader Lease"}
    )
    initial_backoff_s: float = dataclasses.field(
        default=1.0,
        metadata={"help": "seconds after the first fruitless decision; kube-scheduler's default"},
    )
    max_backoff_s: float = dataclasses.field(
        default=10.0, metadata={"help": "seconds; the backoff doubles up to this"}
    )
    unschedulable_flush_s: float = dataclasses.field(
        default=300.0,
        metadata={
            "help": "seconds after which pods are tried again although nothing happened; a pod "
            "that then fits is counted as a defect"
        },
    )
    conditions_per_second: float = dataclasses.field(
        default=50.0,
        metadata={
            "help": "PodScheduled=False patches a second at most; one costs the API server about "
            "as much as a bind, so they trail"
        },
    )
    conditions_in_flight: int = dataclasses.field(
        default=8, metadata={"help": "such patches in flight at most"}
    )
    shard_deadline_s: float = dataclasses.field(
        default=60.0,
        metadata={
            "help": "seconds a living shard may hold a unit without an answer before another gets "
            "it; decisions take milliseconds, so this only catches a shard that hangs"
        },
    )
    stake_after_s: float = dataclasses.field(
        default=60.0,
        metadata={
            "help": "seconds after which a unit that fits nowhere is promised the room that comes "
            "free on some nodes, so that smaller ones cannot keep it out; 0: never"
        },
    )
    promise_s: float = dataclasses.field(
        default=660.0,
        metadata={
            "help": "seconds for which a queue keeps room for pods of an admitted Job while none "
            "of them appears; 0: for ever. A Job controller replaces a pod that has failed often "
            "after ten minutes"
        },
    )
    linger_ms: float = dataclasses.field(
        default=2.0,
        metadata={"help": "milliseconds to wait for company before units are sent to shards"},
    )
    stories: int = dataclasses.field(
        default=20_000,
        metadata={"help": "lines kept for /debug/story, of all units; 0 keeps none"},
    )

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        super().__post_init__()
        split_address(self.binder, flag="--binder")
        split_address(self.telemetry_listen, flag="--telemetry-listen")
        if self.linger_ms < 0:
            raise ConfigError(f"--linger-ms {self.linger_ms:g}: take 0 or more")
        if self.initial_backoff_s <= 0 or self.max_backoff_s < self.initial_backoff_s:
            raise ConfigError(
                f"--initial-backoff-s {self.initial_backoff_s:g} and --max-backoff-s "
                f"{self.max_backoff_s:g}: take 0 < initial ≤ max"
            )
        if self.stake_after_s < 0:
            raise ConfigError(f"--stake-after-s {self.stake_after_s:g}: take 0 (never) or more")
        if self.promise_s < 0:
            raise ConfigError(f"--promise-s {self.promise_s:g}: take 0 (for ever) or more")
        if self.conditions_per_second <= 0 or self.conditions_in_flight < 1:
            raise ConfigError("--conditions-per-second and --conditions-in-flight must be positive")
