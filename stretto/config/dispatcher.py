"""Settings of ``stretto dispatcher``."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from stretto.model.errors import OperatorError


class DispatcherConfigError(OperatorError, ValueError):
    """Settings that cannot work together."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DispatcherSettings:
    """Flags of the dispatcher. Each says its unit and the reason of its default."""

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
    listen: str = dataclasses.field(
        default="127.0.0.1:7070",
        metadata={
            "help": "host:port that shards dial; loopback unless told otherwise, because plain "
            "text is allowed there only"
        },
    )
    advertise: str = dataclasses.field(
        default="",
        metadata={"help": "host:port that standbys name as the leader's; empty: that of --listen"},
    )
    telemetry_listen: str = dataclasses.field(
        default="127.0.0.1:10270",
        metadata={"help": "host:port of /metrics, /livez, /readyz; port 0 takes any free one"},
    )
    binder: str = dataclasses.field(
        default="127.0.0.1:7071",
        metadata={"help": "host:port of the binder; every address behind the name is dialled"},
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
        default="stretto-dispatcher", metadata={"help": "name of the leader Lease"}
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
    linger_ms: float = dataclasses.field(
        default=2.0,
        metadata={"help": "milliseconds to wait for company before units are sent to shards"},
    )
    stories: int = dataclasses.field(
        default=20_000,
        metadata={"help": "units whose story is kept for /debug/story; 0 keeps none"},
    )
    log_format: str = dataclasses.field(default="json", metadata={"help": "json or text"})
    log_level: str = dataclasses.field(
        default="info", metadata={"help": "debug, info, warning or error"}
    )

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not self.scheduler_name or not all(self.scheduler_name):
            raise DispatcherConfigError("--scheduler-name is empty; name at least one")
        if self.initial_backoff_s <= 0 or self.max_backoff_s < self.initial_backoff_s:
            raise DispatcherConfigError(
                f"--initial-backoff-s {self.initial_backoff_s:g} and --max-backoff-s "
                f"{self.max_backoff_s:g}: take 0 < initial ≤ max"
            )
        if self.conditions_per_second <= 0 or self.conditions_in_flight < 1:
            raise DispatcherConfigError(
                "--conditions-per-second and --conditions-in-flight must be positive"
            )
