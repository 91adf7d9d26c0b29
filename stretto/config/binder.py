"""Settings of ``stretto binder``."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from stretto.config.addresses import split_address
from stretto.config.common import ConfigError, LeaderSettings
from stretto.config.ledger import LedgerSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class BinderSettings(LedgerSettings, LeaderSettings):
    """Flags of the binder. Each says its unit and the reason of its default."""

    listen: str = dataclasses.field(
        default="127.0.0.1:7071",
        metadata={
            "help": "host:port that shards and the dispatcher dial; loopback unless told "
            "otherwise, because plain text is allowed there only"
        },
    )
    telemetry_listen: str = dataclasses.field(
        default="127.0.0.1:10271",
        metadata={"help": "host:port of /metrics, /livez, /readyz; port 0 takes any free one"},
    )
    lease_name: str = dataclasses.field(
        default="stretto-binder", metadata={"help": "name of the leader Lease"}
    )
    binds_in_flight: int = dataclasses.field(
        default=32,
        metadata={"help": "binding requests in flight at most; more only queue at the API server"},
    )
    reservations_waiting: int = dataclasses.field(
        default=2_048,
        metadata={
            "help": "reservations that may wait for their bind before no more proposals are "
            "taken: backpressure to the shards"
        },
    )
    batch: int = dataclasses.field(
        default=256, metadata={"help": "units of one ledger call at most; 64 is the knee"}
    )
    linger_ms: float = dataclasses.field(
        default=1.0, metadata={"help": "milliseconds to wait for company before a commit"}
    )
    event_queue: int = dataclasses.field(
        default=65_536,
        metadata={"help": "Scheduled events that may wait on the slower lane; more are dropped"},
    )
    events: bool = dataclasses.field(
        default=True, metadata={"help": "write a Scheduled event for each bind"}
    )
    audit_log: Path | None = dataclasses.field(
        default=None,
        metadata={
            "help": "file to which every reservation, bind, fence, eviction and release is "
            "appended, for `stretto check-history` and for people; - for stdout; none by default"
        },
    )
    log_bytes: int = dataclasses.field(
        default=64 << 20,
        metadata={"help": "bytes of the log kept for followers that fall behind"},
    )
    stories: int = dataclasses.field(
        default=20_000,
        metadata={"help": "lines kept for /debug/story; 0 keeps none"},
    )

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        super().__post_init__()
        split_address(self.telemetry_listen, flag="--telemetry-listen")
        if self.linger_ms < 0:
            raise ConfigError(f"--linger-ms {self.linger_ms:g}: take 0 or more")
        if not self.redis_url:
            raise ConfigError(
                "--redis-url is missing: name the Redis or Valkey that holds the ledger, in the "
                "flag or in REDIS_URL (`stretto run` starts one itself)"
            )
        for name in ("binds_in_flight", "reservations_waiting", "batch", "event_queue"):
            if getattr(self, name) < 1:
                flag = name.replace("_", "-")
                raise ConfigError(f"--{flag} {getattr(self, name)}: take 1 or more")
