"""Settings that several processes share, so that a flag has one meaning, text and default."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from stretto.config.addresses import split_address
from stretto.model.errors import OperatorError

LOG_FORMATS = ("json", "text")
LOG_LEVELS = ("debug", "info", "warning", "error")
OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""RFC 1123 subdomain, as the API server wants the names of Leases and namespaces."""


class ConfigError(OperatorError, ValueError):
    """A setting that cannot work."""


def check_logs(*, format: str, level: str) -> None:  # noqa: A002
    """Refuse an unknown format or level.

    Raises:
        ConfigError: naming the flag, and what it takes.
    """
    for flag, value, known in (
        ("--log-format", format, LOG_FORMATS),
        ("--log-level", level, LOG_LEVELS),
    ):
        if value not in known:
            raise ConfigError(f"{flag} {value!r}: take one of {', '.join(known)}")


def check_name(value: str, *, flag: str, most: int = 253) -> None:
    """Refuse what cannot be an object's name of at most so many characters.

    Raises:
        ConfigError: naming the flag.
    """
    if not OBJECT_NAME.fullmatch(value) or len(value) > most:
        raise ConfigError(
            f"{flag} {value[:80]!r}: take lower-case letters, digits, '-' and '.', at most {most}"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoleSettings:
    """What every role of a deployment takes: how it trusts its peers, and how it logs."""

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
    config: Path | None = dataclasses.field(
        default=None,
        metadata={
            "help": "KubeSchedulerConfiguration file (YAML or JSON) with the profiles; the same "
            "for every role; without it the defaults of kube-scheduler"
        },
    )
    feature_gates: tuple[str, ...] = dataclasses.field(
        default=(),
        metadata={"help": "Name=true or Name=false, joined by commas; the same for every role"},
    )
    log_format: str = dataclasses.field(default="json", metadata={"help": "json or text"})
    log_level: str = dataclasses.field(
        default="info", metadata={"help": "debug, info, warning or error"}
    )

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        check_logs(format=self.log_format, level=self.log_level)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LeaderSettings(RoleSettings):
    """What the two roles take of which one is active: the cluster, and its Lease.

    Each of them has its own ``listen`` and ``lease_name``.
    """

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
    listen: str = dataclasses.field(default="", metadata={"help": "host:port that peers dial"})
    advertise: str = dataclasses.field(
        default="",
        metadata={"help": "host:port that standbys name as the leader's; empty: that of --listen"},
    )
    lease_namespace: str = dataclasses.field(
        default="kube-system", metadata={"help": "namespace of the leader Lease"}
    )
    lease_name: str = dataclasses.field(default="", metadata={"help": "name of the leader Lease"})
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

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        super().__post_init__()
        if not self.scheduler_name or not all(self.scheduler_name):
            raise ConfigError("--scheduler-name is empty; name at least one")
        split_address(self.listen, flag="--listen")
        if self.advertise:
            split_address(self.advertise, flag="--advertise")
        check_name(self.lease_namespace, flag="--lease-namespace")
        check_name(self.lease_name, flag="--lease-name")
        if not 0 < self.lease_retry_s < self.lease_renew_deadline_s < self.lease_duration_s:
            raise ConfigError(
                f"--lease-retry-s {self.lease_retry_s:g}, --lease-renew-deadline-s "
                f"{self.lease_renew_deadline_s:g}, --lease-duration-s {self.lease_duration_s:g}: "
                "take 0 < retry < renew deadline < duration"
            )
