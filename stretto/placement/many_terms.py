"""Many terms against many kins at once.

A pod may have a thousand terms, and a cluster thousands of kins: one by one that is a second. Here
each requirement is a table over the values that a key has among the kins, looked up for all of them
in one vector pass; most terms end sooner, because no kin carries the key, or none the value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from stretto.model.shape import Requirement
from stretto.snapshot.kins import Kin

Bools = npt.NDArray[np.bool_]
FEW = 8
"""Up to so many terms are quicker one by one."""


class About(Protocol):
    """Which pods a term is about."""

    @property
    def namespaces(self) -> frozenset[str] | None:
        """None: of all."""

    @property
    def selector(self) -> tuple[Requirement, ...] | None:
        """None matches no pod."""


class _Column(NamedTuple):
    ids: npt.NDArray[np.intp]
    numbers: dict[str, int]


class KinColumns:
    """The namespaces and labels of some kins, in columns."""

    def __init__(self, kins: Sequence[Kin]) -> None:
        self._size = len(kins)
        self._labels: dict[str, _Column] = {}
        self._namespaces = _Column(np.zeros(self._size, dtype=np.intp), {})
        self._inside: dict[frozenset[str], Bools] = {}
        for at, kin in enumerate(kins):
            _set(self._namespaces, at, kin.namespace)
            for key, value in kin.identity.labels:
                column = self._labels.get(key)
                if column is None:
                    ids = np.zeros(self._size, dtype=np.intp)
                    column = self._labels[key] = _Column(ids, {})
                _set(column, at, value)

    def weights(self, terms: Iterable[tuple[int, About]]) -> npt.NDArray[np.int64]:
        """By kin: the sum of the weights of the terms that are about its pods."""
        found = np.zeros(self._size, dtype=np.int64)
        for weight, term in terms:
            about = self._about(term)
            if about is not False:
                found += weight * about
        return found

    def _about(self, term: About) -> Bools | bool:
        """bool by kin, or the same for all."""
        if term.selector is None:
            return False
        found = self._in(term.namespaces)
        for requirement in term.selector:
            part = self._meeting(requirement)
            if part is False:
                return False
            if part is not True:
                found = part if found is True else found & part
        return found

    def _in(self, namespaces: frozenset[str] | None) -> Bools | bool:
        if namespaces is None:
            return True
        found = self._inside.get(namespaces)
        if found is None:
            known = self._namespaces
            table = np.zeros(len(known.numbers) + 1, dtype=np.bool_)
            table[[known.numbers[name] for name in namespaces if name in known.numbers]] = True
            found = self._inside[namespaces] = table[known.ids]
        return found

    def _meeting(self, requirement: Requirement) -> Bools | bool:
        """As :func:`stretto.model.selector.requirement_matches` says, for all kins."""
        operator = requirement.operator
        absent = operator in ("NotIn", "DoesNotExist")
        column = self._labels.get(requirement.key)
        if column is None:
            return absent
        table = np.full(len(column.numbers) + 1, operator in ("NotIn", "Exists"), dtype=np.bool_)
        for value in requirement.values:
            known = column.numbers.get(value)
            if known is not None:
                table[known] = operator == "In"
        table[0] = absent
        if not table.any():
            return False
        found: Bools = table[column.ids]
        return found


def _set(column: _Column, at: int, value: str) -> None:
    column.ids[at] = column.numbers.setdefault(value, len(column.numbers) + 1)
