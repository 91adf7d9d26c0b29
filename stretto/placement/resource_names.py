"""Which resource names the scheduler counts (upstream's IsScalarResourceName and its parts)."""

from __future__ import annotations

import functools
import re

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL = "ephemeral-storage"
BASIC = (CPU, MEMORY, EPHEMERAL)
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@functools.lru_cache(maxsize=32_768)
def is_extended(name: str) -> bool:
    """A fully qualified name outside kubernetes.io."""
    prefix, slash, rest = name.partition("/")
    if not slash or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    # The quota name "requests.<name>" must be qualified too, which shortens the prefix by nine.
    return (
        "/" not in rest
        and len(rest) <= 63
        and len(prefix) + len("requests.") <= 253
        and _QUALIFIED.fullmatch(rest) is not None
        and _SUBDOMAIN.fullmatch(prefix) is not None
    )


@functools.lru_cache(maxsize=32_768)
def is_scalar(name: str) -> bool:
    """Counted beside cpu, memory, ephemeral storage and pods."""
    return (
        is_extended(name)
        or name.startswith(("hugepages-", "attachable-volumes-"))
        or "kubernetes.io/" in name
    )
