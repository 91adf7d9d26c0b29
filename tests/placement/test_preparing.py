"""What is made of very many terms beforehand is not made again when it is decided on."""

from __future__ import annotations

import msgspec
import pytest

from stretto.model.shape import (
    NodeTerm,
    PodTerm,
    PreferredNodeTerm,
    Requirement,
    Shape,
    decode_shape,
)
from stretto.model.term_index import TermIndex
from stretto.placement.preparing import PARTS, prepare, to_prepare
from tests.placement.test_many_terms import bound_with

ASKED = tuple(Requirement(f"k{n % 7}", "NotIn", (f"v{n}",)) for n in range(PARTS + 1))
NODE_TERMS = tuple(NodeTerm((each,)) for each in ASKED)
POD_TERMS = tuple(PodTerm("kubernetes.io/hostname", ("default",), None, (each,)) for each in ASKED)
FIELDS: list[dict[str, object]] = [
    {"required_node_terms": NODE_TERMS},
    {"preferred_node_terms": tuple(PreferredNodeTerm(3, term) for term in NODE_TERMS)},
    {"anti_affinity": POD_TERMS},
    {"affinity": POD_TERMS},
    {"required_node_terms": (NodeTerm(ASKED * 8),)},
    {"required_node_terms": (NodeTerm((Requirement("k", "In", tuple(map(str, range(2_000)))),)),)},
    {"anti_affinity": (PodTerm("kubernetes.io/hostname", ("default",), None, ASKED * 8),)},
    {"node_selector": tuple((f"k{n}", "v") for n in range(PARTS + 1))},
]


@pytest.mark.parametrize("fields", FIELDS, ids=lambda fields: next(iter(fields)))
def test_terms_are_put_in_order_once(
    fields: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, _, plain = bound_with([])
    added = 0
    add = TermIndex.add

    def counting(index: TermIndex, requirements: object) -> None:
        nonlocal added
        added += 1
        add(index, requirements)  # type: ignore[arg-type]

    monkeypatch.setattr(TermIndex, "add", counting)
    shape: Shape = decode_shape(msgspec.structs.replace(plain, **fields).encoded)
    assert to_prepare([plain, shape]) == [shape]
    prepare([shape])
    assert added >= 1
    before = added
    kernel.place(shape, 1, seed=1)
    kernel.check_one(shape, 2)
    assert added == before


def prepared_of(plain: Shape) -> tuple[Shape, Shape]:
    """One with very many terms about nodes, one with as many about pods."""
    return (
        msgspec.structs.replace(plain, required_node_terms=NODE_TERMS),
        msgspec.structs.replace(plain, anti_affinity=POD_TERMS),
    )


def test_few_terms_are_not_prepared() -> None:
    _, _, plain = bound_with([])
    few = msgspec.structs.replace(plain, anti_affinity=POD_TERMS[: PARTS // 2])
    assert to_prepare([plain, few]) == []
