"""Semantic versions (semver 2.0.0) as attributes of devices hold them and as CEL compares them."""

from __future__ import annotations

import re
from typing import NamedTuple

_PART = r"(0|[1-9][0-9]*)"
_TAIL = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_VERSION = re.compile(rf"{_PART}\.{_PART}\.{_PART}(?:-({_TAIL}))?(?:\+({_TAIL}))?", re.ASCII)
_MAX_NUMBER = (1 << 64) - 1
MAX_TEXT = 256
"""Characters that are looked at; an attribute holds at most 64."""

Identifier = tuple[int, int, str]
"""A pre-release identifier in its order: numbers come before words."""


class Version(NamedTuple):
    """A version in semver's order of precedence; build metadata has none and is left out."""

    major: int
    minor: int
    patch: int
    released: bool
    """False for a pre-release, which comes before its release."""
    prerelease: tuple[Identifier, ...] = ()

    @property
    def canonical(self) -> str:
        """The text that is equal exactly for versions of equal precedence."""
        text = f"{self.major}.{self.minor}.{self.patch}"
        words = (word or str(number) for _, number, word in self.prerelease)
        return text if self.released else f"{text}-{'.'.join(words)}"


def version_of(text: str) -> Version:
    """Read a version.

    Raises:
        ValueError: not a semantic version.
    """
    match = _VERSION.fullmatch(text) if len(text) <= MAX_TEXT else None
    if match is None:
        raise ValueError(f"{text[:MAX_TEXT]!r} is not a semantic version like 1.2.3")
    major, minor, patch, tail, _ = match.groups()
    numbers = int(major), int(minor), int(patch)
    if max(numbers) > _MAX_NUMBER:
        raise ValueError(f"{text!r} has a number beyond 64 bits")
    identifiers = tuple(map(_identifier, tail.split("."))) if tail else ()
    return Version(*numbers, released=not tail, prerelease=identifiers)


def _identifier(text: str) -> Identifier:
    if not text.isdigit():
        return 1, 0, text
    if text[0] == "0" and len(text) > 1:
        raise ValueError(f"{text!r} has a leading zero")
    return 0, int(text), ""


def normalised_version(text: str) -> Version:
    """Read a version after dropping a leading v and zeros and adding a missing minor or patch.

    Raises:
        ValueError: not a version even so.
    """
    parts = text[:MAX_TEXT].removeprefix("v").split(".", 2)
    if len(parts) < 3 and any(mark in parts[-1] for mark in "+-"):
        raise ValueError(f"{text!r}: a short version has no pre-release or build part")
    parts += ["0"] * (3 - len(parts))
    return version_of(".".join(re.sub(r"^0+(?=[0-9])", "", part) for part in parts))
