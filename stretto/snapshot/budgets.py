"""PodDisruptionBudgets: from the API's object to the row that preemption reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from stretto.model.errors import OperatorError
from stretto.model.objects import ObjectMeta
from stretto.model.selector import RawSelector, requirements_match, requirements_of
from stretto.model.shape import Requirement, Shape
from stretto.snapshot.delta import ObjectRow

BUDGET = "PodDisruptionBudget"
"""Object kind; key: namespace/name, payload: a :class:`BudgetRow`."""


class BudgetSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Whom the budget protects."""

    selector: RawSelector | None = None


class BudgetStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What the disruption controller allows now."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, object] | None = None
    """By pod name: evicted a moment ago, counted already."""


class PodDisruptionBudget(msgspec.Struct):
    """A PodDisruptionBudget, as far as preemption reads it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


class BudgetRow(msgspec.Struct, frozen=True, array_like=True):
    """A budget, resolved."""

    namespace: str
    selector: tuple[Requirement, ...]
    """Never empty: a budget with a null, empty or unreadable selector protects nobody and has no
    row (upstream filterPodsWithPDBViolation)."""
    allowed: int
    disrupted: tuple[str, ...] = ()
    """Uids of pods that were evicted a moment ago and are counted in ``allowed`` already."""

    def covers(self, shape: Shape) -> bool:
        """Whether pods of a shape are protected."""
        if shape.namespace != self.namespace:
            return False
        return requirements_match(self.selector, dict(shape.labels))

    def label_keys(self) -> frozenset[str]:
        """The label keys that the selector reads."""
        return frozenset(requirement.key for requirement in self.selector)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(BudgetRow)


def budget_of(
    budget: PodDisruptionBudget, *, uid_of: Callable[[str, str], str]
) -> BudgetRow | None:
    """The row of a budget; None if it protects nobody.

    ``uid_of`` (namespace, name) names the pod of that name, '' if there is none.
    """
    try:
        selector = requirements_of(budget.spec.selector)
    except OperatorError:
        return None
    if not selector:
        return None
    namespace = budget.metadata.namespace
    names = budget.status.disrupted_pods or {}
    disrupted = sorted(uid for name in names if (uid := uid_of(namespace, name)))
    return BudgetRow(namespace, selector, budget.status.disruptions_allowed, tuple(disrupted))


def encode_budget(row: BudgetRow) -> bytes:
    """Payload of a PodDisruptionBudget object."""
    return _encoder.encode(row)


def budgets(payloads: Mapping[str, bytes]) -> list[BudgetRow]:
    """Read the payloads of PodDisruptionBudget objects; in the order of their names."""
    return [_decoder.decode(payload) for _, payload in sorted(payloads.items())]


def budget_object(budget: PodDisruptionBudget, *, uid_of: Callable[[str, str], str]) -> ObjectRow:
    """A budget as an object of the log; removed if it protects nobody."""
    row = budget_of(budget, uid_of=uid_of)
    key = f"{budget.metadata.namespace}/{budget.metadata.name}"
    payload = b"" if row is None else encode_budget(row)
    return ObjectRow(BUDGET, key, payload=payload, removed=row is None)
