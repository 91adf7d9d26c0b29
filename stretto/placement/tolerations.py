"""Which taints a list of tolerations tolerates (core/v1 Toleration.ToleratesTaint of 1.37)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from stretto.model.shape import Toleration
from stretto.placement.framework import Gates
from stretto.snapshot.delta import Taint

_DECIMAL = re.compile(r"0|-?[1-9][0-9]*")
_INT64 = 1 << 63


def tolerates(tolerations: Iterable[Toleration], taint: Taint, gates: Gates) -> bool:
    """Whether any of the tolerations tolerates the taint."""
    return any(_tolerates(toleration, taint, gates) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint, gates: Gates) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Lt" | "Gt" if gates.taint_toleration_comparison_operators:
            return _compares(toleration, taint)
    return False


def _compares(toleration: Toleration, taint: Taint) -> bool:
    bound, value = _int64(toleration.value), _int64(taint.value)
    if bound is None or value is None:
        return False
    return value < bound if toleration.operator == "Lt" else value > bound


def _int64(text: str) -> int | None:
    """Upstream's IsDecimalInteger and ParseInt: no sign +, no leading zeros, int64."""
    if not _DECIMAL.fullmatch(text) or len(text) > 20:
        return None
    value = int(text)
    return value if -_INT64 <= value < _INT64 else None
