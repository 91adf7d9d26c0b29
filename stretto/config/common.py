"""Settings that several processes share, so that a flag has one meaning, text and default."""

from __future__ import annotations

import dataclasses
from pathlib import Path


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
    log_format: str = dataclasses.field(default="json", metadata={"help": "json or text"})
    log_level: str = dataclasses.field(
        default="info", metadata={"help": "debug, info, warning or error"}
    )


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
