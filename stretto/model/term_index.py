"""Which of very many terms hold for some labels.

A term is requirements ANDed; a pod may have twenty thousand. Asked one after the other they cost
terms × labels that are asked about. Here each term is a bit: for a key and a value, the terms that
this does not speak against are one number, and those that hold are a few of these ANDed, whatever
their number; a thousand bits are ANDed in less time than it takes to call a function.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stretto.model.shape import Requirement

_INTEGER = re.compile(r"[+-]?[0-9]+")
_INT64 = 1 << 63
_BELOW_ALL = -_INT64 - 1
"""Bounds are exclusive: the least of all numbers is above this one."""
_FEW = 24
"""Up to so many bits are set one by one."""
_REMEMBERED = 256
"""Answers kept for a key, at most."""


def int64(text: str) -> int | None:
    """Go's strconv.ParseInt(text, 10, 64)."""
    if len(text) > 64 or not _INTEGER.fullmatch(text):
        return None
    value = int(text)
    return value if -_INT64 <= value < _INT64 else None


class _Clause(NamedTuple):
    """What a term asks of the value of one key."""

    absent: bool
    """It holds without the key."""
    inside: frozenset[str] | None
    """Only these values pass; None: all."""
    outside: frozenset[str] = frozenset()
    above: int = _BELOW_ALL
    below: int = _INT64
    """Values are numbers between, if either is other than this."""
    present: bool = True
    """It may hold with the key."""

    def takes(self, value: str) -> bool:
        """Whether a value passes, ``inside`` apart."""
        if value in self.outside or not self.present:
            return False
        if not self.counts:
            return True
        number = int64(value)
        return number is not None and self.above < number < self.below

    @property
    def counts(self) -> bool:
        """Only numbers pass."""
        return (self.above, self.below) != (_BELOW_ALL, _INT64)


_NOTHING: frozenset[str] = frozenset()


def _clause(requirement: Requirement) -> _Clause:
    values = requirement.values
    match requirement.operator:
        case "In":
            return _Clause(absent=False, inside=frozenset(values))
        case "NotIn":
            return _Clause(absent=True, inside=None, outside=frozenset(values))
        case "Exists":
            return _Clause(absent=False, inside=None)
        case "DoesNotExist":
            return _Clause(absent=True, inside=None, present=False)
    bound = int64(values[0])
    assert bound is not None, f"{requirement} was not checked"
    if requirement.operator == "Gt":
        return _Clause(absent=False, inside=None, above=bound)
    assert requirement.operator == "Lt", requirement.operator
    return _Clause(absent=False, inside=None, below=bound)


def _merged(requirements: Sequence[Requirement]) -> _Clause:
    """What several requirements on one key ask together; there may be ten thousand."""
    clauses = [_clause(requirement) for requirement in requirements]
    lists = [each.inside for each in clauses if each.inside is not None]
    return _Clause(
        absent=all(each.absent for each in clauses),
        inside=frozenset.intersection(*lists) if lists else None,
        outside=_NOTHING.union(*(each.outside for each in clauses)),
        above=max(each.above for each in clauses),
        below=min(each.below for each in clauses),
        present=all(each.present for each in clauses),
    )


class _Key:
    """What all terms ask of one key."""

    __slots__ = (
        "absent",
        "asks",
        "bounds",
        "inside",
        "known",
        "others",
        "outside",
        "rest",
        "silent",
    )

    def __init__(self) -> None:
        self.asks: list[int] = []
        """Terms that ask for it."""
        self.absent: list[int] = []
        """Those of them that hold without it."""
        self.others: list[int] = []
        """Those that take any value that is not in ``outside``."""
        self.inside: dict[str, list[int]] = {}
        """Those that take a value by name."""
        self.outside: dict[str, list[int]] = {}
        """Those that do not take it, though others."""
        self.bounds: list[tuple[int, int, int]] = []
        """(term, above, below) of those that take numbers only."""
        self.known: dict[str | None, int] = {}
        """The answers to what was asked lately."""
        self.silent: int | None = None
        """The terms that do not ask for the key, as one number once it was needed."""
        self.rest: int | None = None
        """The same of ``others``."""

    def take(self, bit: int, requirement: Requirement) -> bool:
        """One more term, which asks for the key once; whether it needs it. Terms are added by the
        thousand: what most of them ask is written out here."""
        self.asks.append(bit)
        operator = requirement.operator
        if operator == "In":
            named = self.inside
        elif operator == "NotIn":
            self.absent.append(bit)
            self.others.append(bit)
            named = self.outside
        elif operator == "Exists":
            self.others.append(bit)
            return True
        else:
            self._add(bit, clause := _clause(requirement))
            return not clause.absent
        for value in requirement.values:
            if value in named:
                named[value].append(bit)
            else:
                named[value] = [bit]
        return operator == "In"

    def add(self, bit: int, clause: _Clause) -> None:
        """One more term, which may ask for the key several times."""
        self.asks.append(bit)
        self._add(bit, clause)

    def _add(self, bit: int, clause: _Clause) -> None:
        if clause.absent:
            self.absent.append(bit)
        if not clause.present:
            return
        if clause.inside is not None:
            for value in clause.inside:
                if clause.takes(value):
                    self.inside.setdefault(value, []).append(bit)
            return
        if clause.counts:
            self.bounds.append((bit, clause.above, clause.below))
        else:
            self.others.append(bit)
        for value in clause.outside:
            self.outside.setdefault(value, []).append(bit)


class TermIndex:
    """Terms by number, in the order they were added; see the module docstring."""

    def __init__(self) -> None:
        self.size = 0
        self._keys: dict[str, _Key] = {}
        self._needs: dict[int, tuple[str, ...]] = {}
        """The keys without which a term does not hold, of those that have any; () if it never
        holds."""
        self._free: int | None = None
        """The terms that hold without any label; None: not asked yet."""
        self._at_key: dict[str, tuple[list[int], int, tuple[str, ...]]] = {}
        """Terms by the rarest key that they need, as one number too, with the other keys that some
        of them need. The number is 0 if these are more than the terms."""

    @property
    def keys(self) -> Iterable[str]:
        """The keys that terms ask for."""
        return self._keys

    @property
    def all(self) -> int:
        """Every term."""
        return (1 << self.size) - 1

    def add(self, requirements: Sequence[Requirement] | None) -> None:
        """One more term, before the first question; None: one that never holds."""
        assert self._free is None, "a term comes after the first question"
        bit = self.size
        self.size += 1
        if requirements is None:
            self._needs[bit] = ()
            return
        if len(requirements) > 1 and len({r.key for r in requirements}) < len(requirements):
            needs = self._add_merged(bit, requirements)
        else:
            needs = [r.key for r in requirements if self._at(r.key).take(bit, r)]
        if needs:
            self._needs[bit] = tuple(needs)

    def _at(self, key: str) -> _Key:
        found = self._keys.get(key)
        if found is None:
            found = self._keys[key] = _Key()
        return found

    def _add_merged(self, bit: int, requirements: Sequence[Requirement]) -> list[str]:
        """A term that asks for a key more than once."""
        by_key: dict[str, list[Requirement]] = {}
        for requirement in requirements:
            by_key.setdefault(requirement.key, []).append(requirement)
        clauses = {key: _merged(some) for key, some in by_key.items()}
        for key, clause in clauses.items():
            self._at(key).add(bit, clause)
        return [key for key, clause in clauses.items() if not clause.absent]

    def _settle(self) -> int:
        """Sort the terms by what they need; they are all there.

        A term is looked at only if the rarest key that it needs is among the labels. If a terms of
        n requirements wait at that key, others that they need are asked for as often, so there are
        at most n/a of them; then either these keys are looked at or the terms, whichever are fewer:
        some hundred for the worst of pods.
        """
        at_key: dict[str, list[int]] = {}
        others: dict[str, dict[str, None]] = {}
        for bit, keys in self._needs.items():
            if len(keys) > 1:
                rarest = min(keys, key=lambda key: len(self._keys[key].asks))
                others.setdefault(rarest, {}).update(dict.fromkeys(keys))
                at_key.setdefault(rarest, []).append(bit)
            elif keys:
                at_key.setdefault(keys[0], []).append(bit)
        for key, bits in at_key.items():
            more = [each for each in others.get(key, ()) if each != key]
            one_by_one = len(more) > len(bits)
            self._at_key[key] = bits, 0 if one_by_one else self.mask(bits), tuple(more)
        self._free = self.all & ~self.mask(list(self._needs))
        return self._free

    def mask(self, bits: Sequence[int]) -> int:
        """Terms as one number."""
        if len(bits) <= _FEW:
            found = 0
            for bit in bits:
                found |= 1 << bit
            return found
        flags = np.zeros(self.size, dtype=np.bool_)
        flags[np.array(bits, dtype=np.int64)] = True
        return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")

    def holding(self, labels: Mapping[str, str]) -> int:
        """The terms that hold for some labels."""
        found = self._settle() if self._free is None else self._free
        for key in labels:
            if key in self._at_key:
                found |= self._waiting(key, labels)
        for key, value in labels.items():
            if found and key in self._keys:
                found &= self._allowing(key, value)
        return found

    def _waiting(self, key: str, labels: Mapping[str, str]) -> int:
        """The terms that wait at a key which is there, if all other keys that they need are too."""
        bits, terms, more = self._at_key[key]
        if not terms:
            needs = self._needs
            return self.mask([bit for bit in bits if all(each in labels for each in needs[bit])])
        for other in more:
            if other not in labels:
                terms &= self._allowing(other, None)
        return terms

    def settle(self) -> None:
        """No more terms come: what can be done before the first question is done."""
        if self._free is None:
            self._settle()

    def by_row(
        self, columns: Iterable[tuple[str, Sequence[str], Sequence[int]]], *, rows: int
    ) -> list[int]:
        """The terms that hold on each of many rows, several times faster than one after the other.

        A column is (key, its values, which of them each row has: 0 is none). No row has a key that
        has no column.
        """
        found: list[int] | None = None
        there = set()
        for key, values, ids in columns:
            there.add(key)
            table = {at: self._allowing(key, values[at] if at else None) for at in set(ids)}
            if found is None:
                found = [table[at] for at in ids]
            else:
                found = [terms and terms & table[at] for terms, at in zip(found, ids, strict=True)]
        never = [bit for bit, keys in self._needs.items() if not keys or not there.issuperset(keys)]
        hopeful = self.all & ~self.mask(never)
        if found is None:
            return [hopeful] * rows
        return [terms and terms & hopeful for terms in found]

    def _allowing(self, key: str, value: str | None) -> int:
        """The terms that a value of a key does not speak against; None: no such key."""
        each = self._keys[key]
        found = each.known.get(value)
        if found is None:
            if len(each.known) >= _REMEMBERED:
                each.known.clear()
            found = each.known[value] = self._silent(each) | self._taking(each, value)
        return found

    def _silent(self, each: _Key) -> int:
        if each.silent is None:
            each.silent = self.all & ~self.mask(each.asks)
        return each.silent

    def _taking(self, each: _Key, value: str | None) -> int:
        """Those of the terms that ask for a key."""
        if value is None:
            return self.mask(each.absent)
        if each.rest is None:
            each.rest = self.mask(each.others)
        found = each.rest
        if each.bounds and (number := int64(value)) is not None:
            found |= self.mask([bit for bit, low, high in each.bounds if low < number < high])
        if value in each.outside:
            found &= ~self.mask(each.outside[value])
        if value in each.inside:
            found |= self.mask(each.inside[value])
        return found


def bits_of(mask: int) -> Iterator[int]:
    """The terms of a number."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def planes(weights: Iterable[tuple[int, int]], index: TermIndex) -> list[tuple[int, int]]:
    """(term, weight) pairs, so that weights are summed by counting bits: (worth, terms)."""
    found: dict[int, list[int]] = {}
    for bit, weight in weights:
        sign, left = (1, weight) if weight > 0 else (-1, -weight)
        while left:
            low = left & -left
            found.setdefault(sign * low, []).append(bit)
            left ^= low
    return [(worth, index.mask(bits)) for worth, bits in found.items()]


def weight_of(terms: int, of: Sequence[tuple[int, int]]) -> int:
    """The sum of the weights of some terms."""
    return sum([worth * (terms & mask).bit_count() for worth, mask in of]) if terms else 0
