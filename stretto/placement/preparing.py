"""What may be done for a shape of very many parts before it is decided on, and beside that.

It depends on the shape alone: what its terms ask is put in order once, for any snapshot. Shapes are
not changed by it; what is made is remembered for a while by those who need it.
"""

from __future__ import annotations

from collections.abc import Iterable

from stretto.model.shape import Shape
from stretto.placement.node_selector import prepare_node_terms
from stretto.snapshot.term_set import much_in, prepare_terms

PARTS = 100
"""Terms of any kind, or labels of the node selector: beyond, preparing takes a millisecond."""


def to_prepare(shapes: Iterable[Shape]) -> list[Shape]:
    """Those of some shapes that are worth it."""
    return [shape for shape in shapes if _parts(shape) > PARTS]


def _parts(shape: Shape) -> int:
    """Terms, or more if they ask for much. Every shape is asked about, so most have to be told
    apart at a glance."""
    required, preferred = shape.required_node_terms or (), shape.preferred_node_terms
    found = (
        len(required)
        + len(preferred)
        + len(shape.affinity)
        + len(shape.anti_affinity)
        + len(shape.preferred_affinity)
        + len(shape.preferred_anti_affinity)
    )
    if found and found <= PARTS:
        terms = (*required, *(each.term for each in preferred))
        asked = [each for term in terms for each in term.expressions]
        found += len(asked) // 8 + sum([len(each.values) for each in asked]) // 8
        found += much_in(shape)
    return found + len(shape.node_selector)


def prepare(shapes: Iterable[Shape]) -> None:
    """Do it; in any thread."""
    for shape in shapes:
        prepare_node_terms(shape)
        prepare_terms(shape)
