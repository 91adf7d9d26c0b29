"""Reading configuration strictly: a field that is not known is an error that says where it is."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from stretto.model.errors import OperatorError

DEFAULT_DIGEST = "default"
"""Of kube-scheduler's default configuration under any names."""


class ProfileError(OperatorError, ValueError):
    """A KubeSchedulerConfiguration that cannot be used: one line, what, where."""


def mapping(raw: object, allowed: Collection[str], *, where: str) -> Mapping[str, object]:
    """A mapping with known fields only; None reads as empty.

    Raises:
        ProfileError: not a mapping, or an unknown field.
    """
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        raise ProfileError(f"{where}: must be a mapping")
    for key in raw:
        if key not in allowed:
            known = ", ".join(sorted(allowed))
            raise ProfileError(f"{where}: unknown field {key!r}; remove it, or use one of {known}")
    return raw


def sequence(raw: object, *, where: str) -> Sequence[object]:
    """A list; None reads as empty."""
    if raw is None:
        return []
    if not isinstance(raw, list | tuple):
        raise ProfileError(f"{where}: must be a list")
    return raw


def text(raw: object, *, where: str) -> str:
    """A string."""
    if not isinstance(raw, str):
        raise ProfileError(f"{where}: must be a string")
    return raw


def integer(raw: object, *, where: str, low: int, high: int) -> int:
    """A whole number within bounds."""
    if isinstance(raw, bool) or not isinstance(raw, int) or not low <= raw <= high:
        raise ProfileError(f"{where}: must be a whole number in {low}..{high}")
    return raw


def boolean(raw: object, *, where: str) -> bool:
    """true or false; None reads as false."""
    if raw is None:
        return False
    if not isinstance(raw, bool):
        raise ProfileError(f"{where}: must be true or false")
    return raw


_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_DURATION = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")


def duration_s(raw: object, *, where: str) -> float:
    """Seconds of a Go duration ("1m30s"); "0" needs no unit."""
    said = text(raw, where=where)
    unsigned = said[1:] if said[:1] in ("+", "-") else said
    parts = list(_DURATION.finditer(unsigned))
    if unsigned != "0" and (not parts or "".join(p.group() for p in parts) != unsigned):
        raise ProfileError(f"{where}: {said!r} is not a duration such as 5s or 1m30s")
    total = sum(float(p.group(1)) * _UNITS_S[p.group(2)] for p in parts)
    return -total if said.startswith("-") else total


_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def qualified_name(raw: object, *, where: str) -> str:
    """A label key or resource name: a name, optionally behind a DNS subdomain and a slash."""
    said = text(raw, where=where)
    prefix, slash, name = said.rpartition("/")
    fits = not slash or (len(prefix) <= 253 and _SUBDOMAIN.fullmatch(prefix))
    if not fits or not _NAME.fullmatch(name):
        raise ProfileError(f"{where}: {said!r} is not a qualified name such as example.com/gpu")
    return said
