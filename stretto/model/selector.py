"""Label selectors: compiled once, asked often."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stretto.model.errors import OperatorError
from stretto.model.shape import Requirement

OPERATORS = frozenset(("In", "NotIn", "Exists", "DoesNotExist"))


class SelectorError(OperatorError, ValueError):
    """A selector that the API server would not have accepted."""


class RawRequirement(msgspec.Struct, frozen=True, gc=False):
    """A requirement as JSON has it."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class RawSelector(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A LabelSelector as JSON has it."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[RawRequirement] | None = None


def requirements_of(raw: RawSelector | None) -> tuple[Requirement, ...] | None:
    """All requirements of a selector, ANDed; None for none, which matches nothing.

    Sorted, so that selectors that say the same are equal.

    Raises:
        SelectorError: an operator that there is not, or values that do not go with it.
    """
    if raw is None:
        return None
    found = [Requirement(k, "In", (v,)) for k, v in (raw.match_labels or {}).items()]
    for r in raw.match_expressions or ():
        if r.operator not in OPERATORS:
            raise SelectorError(
                f"label selector operator {r.operator!r} is not one of "
                f"{', '.join(sorted(OPERATORS))}"
            )
        wants_values = r.operator in ("In", "NotIn")
        if wants_values is not bool(r.values):
            needs = "needs values" if wants_values else "takes no values"
            raise SelectorError(f"label selector operator {r.operator} on {r.key!r} {needs}")
        found.append(Requirement(r.key, r.operator, tuple(sorted(set(r.values or ())))))
    return tuple(sorted(found, key=requirement_order))


def requirement_order(requirement: Requirement) -> tuple[str, str, tuple[str, ...]]:
    """The order that requirements of a selector are kept in."""
    return requirement.key, requirement.operator, requirement.values


def requirement_matches(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Whether labels meet one requirement; an absent key meets NotIn and DoesNotExist."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    raise AssertionError(f"a label selector has no operator {requirement.operator!r}")


def requirements_match(
    requirements: tuple[Requirement, ...] | None, labels: Mapping[str, str]
) -> bool:
    """Whether labels meet all requirements; None matches nothing, () everything."""
    if requirements is None:
        return False
    return all(requirement_matches(requirement, labels) for requirement in requirements)


class LabelSelector:
    """A compiled selector."""

    __slots__ = ("_plain", "_rest", "requirements")

    def __init__(self, requirements: tuple[Requirement, ...] | None) -> None:
        self.requirements = requirements
        found = requirements or ()
        self._plain = tuple(
            (r.key, r.values[0]) for r in found if r.operator == "In" and len(r.values) == 1
        )
        self._rest = tuple(r for r in found if not (r.operator == "In" and len(r.values) == 1))

    @property
    def keys(self) -> frozenset[str]:
        """The label keys that the selector reads."""
        return frozenset(r.key for r in self.requirements or ())

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels meet the selector; one that is null matches nothing."""
        if self.requirements is None:
            return False
        for key, value in self._plain:
            if labels.get(key) != value:
                return False
        return all(requirement_matches(requirement, labels) for requirement in self._rest)


def compile_label_selector(raw: Mapping[str, object] | RawSelector | None) -> LabelSelector:
    """Compile a LabelSelector (a decoded JSON object, or None for null).

    Raises:
        SelectorError: not a LabelSelector.
    """
    if raw is not None and not isinstance(raw, RawSelector):
        try:
            raw = msgspec.convert(raw, RawSelector)
        except msgspec.ValidationError as error:
            raise SelectorError(f"not a label selector: {error}") from None
    return LabelSelector(requirements_of(raw))
