"""Constraints between the devices of a claim: they share a value of an attribute, or differ in it.

A device without the attribute meets neither. Source: matchAttribute and distinctAttribute of the
structured allocator.
"""

from __future__ import annotations

from stretto.model.devices import Constraint
from stretto.placement.devices.inventory import Device

Value = tuple[str, bool | int | str]
"""(kind, value): values of two kinds are never equal."""


class Watch:
    """One constraint during a search: devices come and go in the order of a stack."""

    def __init__(self, constraint: Constraint) -> None:
        self._requests = frozenset(constraint.requests)
        self._attribute = constraint.attribute
        self._distinct = constraint.distinct
        self._values: list[Value] = []

    def add(self, request: str, alternative: str, device: Device) -> bool:
        """Whether the device may join; it has joined if so."""
        if not self._concerns(request, alternative):
            return True
        value = attribute_of(device, self._attribute)
        if value is None:
            return False
        if self._values and (value in self._values) is self._distinct:
            return False
        self._values.append(value)
        return True

    def remove(self, request: str, alternative: str) -> None:
        """Undo the last :meth:`add` of this request."""
        if self._concerns(request, alternative):
            self._values.pop()

    def _concerns(self, request: str, alternative: str) -> bool:
        wanted = self._requests
        return not wanted or request in wanted or f"{request}/{alternative}" in wanted


def attribute_of(device: Device, name: str) -> Value | None:
    """An attribute by its qualified name; names without a domain are of the driver's."""
    domain, _, identifier = name.partition("/")
    names = (name, identifier) if domain == device.id.driver else (name,)
    for wanted in names:
        for known, value in device.row.attributes:
            if known == wanted:
                return type(value).__name__, value
        for known, text in device.row.versions:
            if known == wanted:
                return "version", text
    return None
