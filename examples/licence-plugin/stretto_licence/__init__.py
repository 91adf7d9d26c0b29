"""An own plugin: pods that name a licence go to nodes that hold it, and rather to old hardware.

A pod names it with the label ``example.com/licence``; a node lists what it holds under
``example.com/licences``, joined by dots. Generation 1 hardware (node label ``example.com/gen``)
scores 100, each later generation less.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from stretto.placement.extension import Nodes, OwnPlugin, Shape

WANTED = "example.com/licence"
HELD = "example.com/licences"
GENERATION = "example.com/gen"


class Licence(OwnPlugin):
    """See the module docstring."""

    name = "Licence"
    label_keys = (WANTED,)
    reason = "node(s) didn't hold the licence"

    def __init__(self, args: Mapping[str, object]) -> None:
        """``forbidden``: licences that nobody may use."""
        forbidden = args.get("forbidden", [])
        if set(args) - {"forbidden"} or not isinstance(forbidden, list):
            raise ValueError("takes only 'forbidden', a list of licences")
        self._forbidden = frozenset(forbidden)

    def concerns(self, pod: Shape) -> bool:
        """Only pods that name a licence."""
        return WANTED in dict(pod.labels)

    def reject(self, pod: Shape) -> str:
        """A forbidden licence is found nowhere."""
        wanted = dict(pod.labels)[WANTED]
        return f'licence "{wanted}" is forbidden' if wanted in self._forbidden else ""

    def mask(self, pod: Shape, nodes: Nodes) -> NDArray[np.bool_]:
        """One answer per distinct label value, then one look-up per node."""
        wanted = dict(pod.labels)[WANTED]
        ids, values = nodes.labels(HELD)
        return np.array([wanted in value.split(".") for value in values], dtype=np.bool_)[ids]

    def scores(self, pod: Shape, nodes: Nodes) -> NDArray[np.int64]:
        """100 for the first generation, 10 less for each later one; 0 without a label."""
        ids, values = nodes.labels(GENERATION)
        points = [
            max(0, 110 - 10 * int(value)) if value.isdigit() and value != "0" else 0
            for value in values
        ]
        return np.minimum(np.array(points, dtype=np.int64), 100)[ids]
