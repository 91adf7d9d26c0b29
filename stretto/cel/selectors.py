"""Selectors of devices: CEL expressions, compiled once and asked about many devices.

A selector says yes or no about a device, or fails: it does not compile, or it fails on a device (an
attribute is missing, types do not go together). Texts of failures are those of kube-scheduler, as
far as the two CEL libraries speak of the same thing.

The API server has refused expressions whose estimated cost is beyond the API's limit; what is left
is bounded here by the library's own limit on the steps of comprehensions.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import Any

from stretto.cel.environment import new_environment, quantity_value, version_value

_REMEMBERED = 1024
"""Compiled expressions that are kept."""
_HINT = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with "
    "has() for optional fields"
)
_STATUS = re.compile(r"^[A-Z_]+: |\s*\[[A-Z_]+\]$")
_NO_KEY = re.compile(r'Key not found in map : "?(.*?)"?$')
_LITERAL = re.compile(r"""(?:"([^"\\]*)"|'([^'\\]*)')(?!\s*in\b)""")

AttributeValue = bool | int | str


class SelectorError(ValueError):
    """A selector fails on a device; the text says how."""


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What a selector may look at. Names without a domain belong to the driver's."""

    driver: str
    attributes: tuple[tuple[str, AttributeValue], ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    """Attributes that are semantic versions."""
    capacity: tuple[tuple[str, str], ...] = ()
    """Quantities as text."""
    allow_multiple: bool = False


@dataclass(slots=True)
class Selector:
    """An expression; ``problem`` says why it cannot be used, in one line or a few."""

    expression: str
    problem: str = ""
    _compiled: Any = None
    _domains: tuple[str, ...] = field(default=())
    """Literals of the expression: domains that it may ask for; an absent one is an empty map."""

    def matches(self, facts: DeviceFacts) -> bool:
        """Whether the device is selected.

        Raises:
            SelectorError: the expression fails on this device.
        """
        assert not self.problem, "a selector that does not compile selects nothing"
        try:
            result = self._compiled.eval(data=self._variables(facts))
        except RuntimeError as error:  # the library's limits
            raise SelectorError(_runtime_text(str(error))) from None
        kind, value = result.type().name(), result.value()
        if kind == "BOOL":
            return bool(value)
        if kind == "ERROR":
            raise SelectorError(_runtime_text(str(value)))
        name = kind.lower()
        raise SelectorError(
            f"CEL result of type {name} could not be converted to bool: type conversion error from "
            f"'{name}' to 'bool'"
        )

    def _variables(self, facts: DeviceFacts) -> dict[str, object]:
        attributes: dict[str, dict[str, object]] = {domain: {} for domain in self._domains}
        capacity: dict[str, dict[str, object]] = {domain: {} for domain in self._domains}
        for name, value in facts.attributes:
            _put(attributes, name, value, facts.driver)
        for name, text in facts.versions:
            _put(attributes, name, _converted(version_value, name, text), facts.driver)
        for name, text in facts.capacity:
            _put(capacity, name, _converted(quantity_value, name, text), facts.driver)
        device = {
            "driver": facts.driver,
            "allowMultipleAllocations": facts.allow_multiple,
            "attributes": attributes,
            "capacity": capacity,
        }
        return {"device": device, **{f"device.{name}": value for name, value in device.items()}}


def _put(maps: dict[str, dict[str, object]], name: str, value: object, driver: str) -> None:
    domain, slash, identifier = name.partition("/")
    if not slash:
        domain, identifier = driver, name
    maps.setdefault(domain, {})[identifier] = value


def _converted(make: Any, name: str, text: str) -> object:
    try:
        return make(text)
    except ValueError as error:
        raise SelectorError(f"attribute {name}: {error}") from None


def _runtime_text(text: str) -> str:
    text = _STATUS.sub("", text)
    key = _NO_KEY.search(text)
    if key is not None:
        return f"no such key: {key.group(1)}{_HINT}"
    if text.startswith("No matching overloads found"):
        return "no such overload"
    return "division by zero" if text == "divide by zero" else text


@functools.cache
def _environment() -> Any:
    return new_environment()


@functools.lru_cache(maxsize=_REMEMBERED)
def selector_of(expression: str) -> Selector:
    """Compile an expression, or say why it does not compile."""
    try:
        compiled = _environment().compile(expression)
    except RuntimeError as error:
        return Selector(expression, f"compilation failed: {_STATUS.sub('', str(error))}")
    kind = compiled.return_type().name()
    if kind not in ("BOOL", "DYN"):
        problem = f"must evaluate to bool or the unknown type, not {kind.lower()}"
        return Selector(expression, problem)
    domains = tuple({a or b for a, b in _LITERAL.findall(expression)} - {""})
    return Selector(expression, "", compiled, domains)
