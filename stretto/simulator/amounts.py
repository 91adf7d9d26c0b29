"""What a pod takes of a node, by the kubelet's own reckoning.

Written apart from :mod:`stretto.model`, from the API's documentation, so that a fault in the
scheduler's sums shows as a pod that a kubelet rejects.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

Amounts = dict[str, int]
"""By resource: cpu in thousandths, all else in whole units (bytes, pieces)."""
_QUANTITY = re.compile(
    r"([+-]?[0-9]{1,40}(?:\.[0-9]{0,20})?|[+-]?\.[0-9]{1,20})([A-Za-z]*)(?:(?<=[eE])([+-]?[0-9]{1,2}))?\Z"
)
_UNITS = {
    "": Fraction(1),
    **{letter: Fraction(1000) ** power for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Fraction(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
    **{letter: Fraction(1, 1000) ** power for power, letter in enumerate("mun", 1)},
}
MOST = 2**63 - 1


class AmountError(ValueError):
    """A quantity that cannot be read."""


@lru_cache(maxsize=65536)
def amount(text: str, *, milli: bool) -> int:
    """A quantity, rounded up to thousandths or whole units. Raises :class:`AmountError`."""
    match = _QUANTITY.match(text)
    if match is None:
        raise AmountError(f"quantity {text[:40]!r} cannot be read")
    digits, unit, exponent = match.groups()
    if exponent is not None and unit in ("e", "E"):
        factor = Fraction(10) ** int(exponent)
    elif exponent is None and unit in _UNITS:
        factor = _UNITS[unit]
    else:
        raise AmountError(f"quantity {text[:40]!r} has an unknown unit")
    return min(math.ceil(Fraction(digits) * factor * (1000 if milli else 1)), MOST)


def amounts(quantities: Mapping[str, Any] | None) -> Amounts:
    """A resource list. Raises :class:`AmountError`."""
    return {
        name: amount("0" if value is None else str(value), milli=name == "cpu")
        for name, value in (quantities or {}).items()
    }


def met_by_devices(pod: dict[str, Any]) -> set[str]:
    """Extended resources of a pod that devices stand in for, as its status says."""
    found = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    return {mapping["resourceName"] for mapping in found.get("requestMappings") or ()}


def pod_amounts(spec: Mapping[str, Any]) -> Amounts:
    """The most that a pod may ever take at once, by its spec; "pods": 1 included.

    Containers and sidecars run together; before them each init container runs beside the sidecars
    started so far. Requests of the pod as a whole replace that for the resources they name;
    overhead is added. Raises :class:`AmountError`.
    """
    running: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        own = _requests(container)
        if container.get("restartPolicy") == "Always":
            running = _sum((running, own))
            peak = _most((peak, running))
        else:
            peak = _most((peak, _sum((running, own))))
    together = _sum((running, *(_requests(one) for one in spec.get("containers") or ())))
    total = _most((peak, together)) | _requests(spec)
    total = _sum((total, amounts(spec.get("overhead"))))
    return {**total, "pods": 1}


def _requests(holder: Mapping[str, Any]) -> Amounts:
    return amounts((holder.get("resources") or {}).get("requests"))


def _sum(parts: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0) + value
    return total


def _most(parts: Iterable[Amounts]) -> Amounts:
    most: Amounts = {}
    for part in parts:
        for name, value in part.items():
            most[name] = max(most.get(name, 0), value)
    return most
