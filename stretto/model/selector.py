"""Label selectors, read once and matched often (upstream: apimachinery labels,
metav1.LabelSelector)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stretto.model.errors import OperatorError
from stretto.model.shape import Requirement

OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})


class SelectorError(OperatorError, ValueError):
    """A selector that the API server would refuse, too."""


class SelectorExpression(msgspec.Struct, rename="camel", gc=False):
    """One matchExpression."""

    key: str
    operator: str
    values: tuple[str, ...] | None = None


class LabelSelectorSpec(msgspec.Struct, rename="camel"):
    """metav1.LabelSelector as it is sent."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[SelectorExpression, ...] | None = None


class LabelSelector(msgspec.Struct, frozen=True):
    """A compiled selector: all requirements must hold; none at all matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected."""
        return all(requirement_matches(requirement, labels) for requirement in self.requirements)

    @property
    def keys(self) -> frozenset[str]:
        """Label keys that the selector reads."""
        return frozenset(requirement.key for requirement in self.requirements)


def requirement_matches(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Whether one requirement holds; NotIn and DoesNotExist also when the key is absent."""
    value = labels.get(requirement.key)
    if requirement.operator == "In":
        return value is not None and value in requirement.values
    if requirement.operator == "NotIn":
        return value is None or value not in requirement.values
    if requirement.operator == "Exists":
        return value is not None
    if requirement.operator == "DoesNotExist":
        return value is None
    raise SelectorError(f"operator {requirement.operator!r} of a label selector is unknown")


def compile_label_selector(spec: LabelSelectorSpec, *, where: str = "selector") -> LabelSelector:
    """Read a selector; equal selectors give equal results, whatever their order.

    Raises:
        SelectorError: names ``where`` and the operator.
    """
    found = [Requirement(key, "In", (value,)) for key, value in (spec.match_labels or {}).items()]
    for expression in spec.match_expressions or ():
        values = tuple(sorted(set(expression.values or ())))
        if expression.operator not in OPERATORS:
            raise SelectorError(f"{where}: operator {expression.operator!r} is unknown")
        if bool(values) != (expression.operator in ("In", "NotIn")):
            raise SelectorError(
                f"{where}: operator {expression.operator} with {len(values)} values"
            )
        found.append(Requirement(expression.key, expression.operator, values))
    return LabelSelector(tuple(sorted(set(found), key=msgspec.msgpack.encode)))
