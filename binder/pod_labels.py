"""Which label keys count, and the labels that pods on nodes have under them (design §12.10).

A shape carries only labels whose key some selector reads: of pods on nodes, of pending pods (the
dispatcher names those), of Services, controllers and budgets. The set of keys grows and is never
made smaller while a Binder leads: pods come back, and every change costs a new shape for every pod.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from stretto.model.shape import LABEL_KEYS_LIMIT, Shape

Labels = tuple[tuple[str, str], ...]
"""(key, value) pairs sorted by key."""
_REMEMBERED = 16_384


class PodLabels:
    """See the module docstring."""

    def __init__(self) -> None:
        self.keys: tuple[str, ...] = ()
        """Sorted."""
        self._wanted: frozenset[str] = frozenset()
        self._projected: dict[tuple[bytes, Labels], Shape] = {}

    def read(self, keys: Iterable[str]) -> bool:
        """Some selector reads these keys; whether there are new ones among them. Beyond the limit
        keys are not shown, and no pod matches a selector that reads them."""
        unknown = frozenset(keys) - self._wanted  # most pods' selectors read nothing at all
        new = sorted(unknown)[: LABEL_KEYS_LIMIT - len(self._wanted)] if unknown else []
        if not new:
            return False
        self._wanted = self._wanted.union(new)
        assert len(self._wanted) <= LABEL_KEYS_LIMIT
        self.keys = tuple(sorted(self._wanted))
        self._projected.clear()
        return True

    def project(self, shape: Shape, labels: Labels) -> Shape:
        """The shape that a pod on a node with these labels has in the log: under the keys as they
        are now, and without naming them, so that a new key changes only pods that have it; and
        without the one node that it could go to."""
        known = shape.digest, labels
        found = self._projected.get(known)
        if found is None:
            shape = shape.anywhere
            if len(self._projected) >= _REMEMBERED:
                self._projected.clear()
            kept = tuple(pair for pair in labels if pair[0] in self._wanted)
            if (kept, ()) == (shape.labels, shape.label_keys):
                found = shape
            else:
                found = msgspec.structs.replace(shape, labels=kept, label_keys=())
            self._projected[known] = found
        return found
