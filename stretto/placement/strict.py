"""Reading configuration strictly: a field that is not known is an error that says where it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from stretto.model.errors import OperatorError


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
