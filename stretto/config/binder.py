"""Settings of ``stretto binder``."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from stretto.model.errors import OperatorError


class BinderConfigError(OperatorError, ValueError):
    """Settings that cannot work together."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BinderSettings:
    """Flags of the binder. Each says its unit and the reason of its default."""

    kubeconfig: Path | None = dataclasses.field(
        default=None,
        metadata={
            "help": "kubeconfig of the cluster; without it the in-cluster account",
            "env": "KUBECONFIG",
        },
    )
    scheduler_name: tuple[str, ...] = dataclasses.field(
        default=("stretto",), metadata={"help": "schedulerName to serve; repeatable"}
    )
    redis_url: str = dataclasses.field(
        default="",
        metadata={
            "help": "Redis or Valkey that holds the ledger: redis://, rediss:// or unix://",
            "env": "REDIS_URL",
        },
    )
    listen: str = dataclasses.field(
        default="127.0.0.1:7071",
        metadata={
            "help": "host:port that shards and the dispatcher dial; loopback unless told "
            "otherwise, because plain text is allowed there only"
        },
    )
    advertise: str = dataclasses.field(
        default="",
        metadata={"help": "host:port that standbys name as the leader's; empty: that of --listen"},
    )
    telemetry_listen: str = dataclasses.field(
        default="127.0.0.1:10271",
        metadata={"help": "host:port of /metrics, /livez, /readyz; port 0 takes any free one"},
    )
    insecure: bool = dataclasses.field(
        default=False, metadata={"help": "allow plain text beyond loopback"}
    )
    tls_certificate: Path | None = dataclasses.field(
        default=None, metadata={"help": "PEM file of our certificate, for mutual TLS"}
    )
    tls_key: Path | None = dataclasses.field(default=None, metadata={"help": "PEM file of its key"})
    tls_authority: Path | None = dataclasses.field(
        default=None, metadata={"help": "PEM file of the authority that signed the peers'"}
    )
    lease_namespace: str = dataclasses.field(
        default="kube-system", metadata={"help": "namespace of the leader Lease"}
    )
    lease_name: str = dataclasses.field(
        default="stretto-binder", metadata={"help": "name of the leader Lease"}
    )
    lease_duration_s: float = dataclasses.field(
        default=15.0,
        metadata={"help": "seconds a Lease must stand still to be taken; client-go's default"},
    )
    lease_renew_deadline_s: float = dataclasses.field(
        default=10.0,
        metadata={"help": "seconds without a renewal after which a leader stops acting"},
    )
    lease_retry_s: float = dataclasses.field(
        default=2.0, metadata={"help": "seconds between renewals"}
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
    log_bytes: int = dataclasses.field(
        default=64 << 20,
        metadata={"help": "bytes of the log kept for followers that fall behind"},
    )
    log_format: str = dataclasses.field(default="json", metadata={"help": "json or text"})
    log_level: str = dataclasses.field(
        default="info", metadata={"help": "debug, info, warning or error"}
    )

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not self.scheduler_name or not all(self.scheduler_name):
            raise BinderConfigError("--scheduler-name is empty; name at least one")
        if not self.redis_url:
            raise BinderConfigError(
                "--redis-url is missing: name the Redis or Valkey that holds the ledger, in the "
                "flag or in REDIS_URL (`stretto run` starts one itself)"
            )
        for name in ("binds_in_flight", "reservations_waiting", "batch", "event_queue"):
            if getattr(self, name) < 1:
                flag = name.replace("_", "-")
                raise BinderConfigError(f"--{flag} {getattr(self, name)}: take 1 or more")
