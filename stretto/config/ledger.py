"""Settings of the way to the ledger's server, for whoever opens it."""

from __future__ import annotations

import dataclasses
from pathlib import Path


@dataclasses.dataclass(frozen=True, kw_only=True)
class LedgerSettings:
    """Where the ledger is, and what proves both sides to each other."""

    redis_url: str = dataclasses.field(
        default="",
        metadata={
            "help": "Redis or Valkey that holds the ledger: rediss://user@host:port, unix://path, "
            "or redis:// on loopback",
            "env": "REDIS_URL",
        },
    )
    redis_password_file: Path | None = dataclasses.field(
        default=None,
        metadata={
            "help": "file with the password of the URL's user, read at each connection, so that "
            "it can be changed without a restart"
        },
    )
    redis_authority: Path | None = dataclasses.field(
        default=None,
        metadata={"help": "PEM file of the authority that signed the ledger server's certificate"},
    )
    redis_certificate: Path | None = dataclasses.field(
        default=None,
        metadata={
            "help": "PEM file of our certificate for the ledger's server, if it asks for one"
        },
    )
    redis_key: Path | None = dataclasses.field(
        default=None, metadata={"help": "PEM file of its key"}
    )
    redis_insecure: bool = dataclasses.field(
        default=False,
        metadata={
            "help": "allow plain text beyond loopback, and a user that may do more than the "
            "ledger needs"
        },
    )
