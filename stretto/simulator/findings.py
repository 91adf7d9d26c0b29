"""What validation finds in an object, worded as an API server words it: field, kind of fault, why.

All faults are gathered and told together, as the real one does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from stretto.simulator.answers import Refusal, invalid

LABEL = "must be no more than 63 characters"
_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]\Z")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?\Z")
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")
_DNS = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_ALPHANUMERIC = "and must start and end with an alphanumeric character"


def key_fault(key: str) -> str:
    """What is wrong with a qualified name (of a label, a taint, a gate); "" for nothing."""
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > 253 or not _DNS.match(prefix)):
        return (
            "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric "
            f"characters, '-' or '.', {_ALPHANUMERIC}"
        )
    if not name:
        return "name part must be non-empty"
    if len(name) > 63:
        return f"name part {LABEL}"
    if not _PART.match(name):
        return (
            f"name part must consist of alphanumeric characters, '-', '_' or '.', {_ALPHANUMERIC}"
        )
    return ""


def value_fault(value: str) -> str:
    """What is wrong with a label's value; "" for nothing."""
    if len(value) > 63:
        return LABEL
    if not _VALUE.match(value):
        return (
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' "
            f"or '.', {_ALPHANUMERIC}"
        )
    return ""


def name_fault(name: str, *, dots: bool) -> str:
    """What is wrong with the name of an object (dots) or of a part of one; "" for nothing."""
    pattern, most = (_DNS, 253) if dots else (_DNS_LABEL, 63)
    if len(name) > most:
        return f"must be no more than {most} characters"
    if not pattern.match(name):
        what, signs = ("subdomain", "'-' or '.',") if dots else ("label", "or '-',")
        return (
            f"a lowercase RFC 1123 {what} must consist of lower case alphanumeric characters"
            f"{', ' if dots else ' '}{signs} {_ALPHANUMERIC}"
        )
    return ""


class Findings:
    """The faults of one object."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def invalid(self, field: str, value: object, why: str) -> None:
        """A value that breaks a rule; no rule broken (``why`` empty) adds nothing."""
        if why:
            shown = json.dumps(value, ensure_ascii=False)[:300]
            self.found.append(f"{field}: Invalid value: {shown}: {why}")

    def required(self, field: str, why: str = "") -> None:
        """A value that is missing."""
        self.found.append(f"{field}: Required value{': ' if why else ''}{why}")

    def forbidden(self, field: str, why: str) -> None:
        """A value that may not be there."""
        self.found.append(f"{field}: Forbidden: {why}")

    def duplicate(self, field: str, value: str) -> None:
        """A value that is there twice."""
        self.found.append(f'{field}: Duplicate value: "{value}"')

    def one_of(self, field: str, value: str | None, known: Iterable[str]) -> None:
        """A word that has to be one of some; absent is fine."""
        known = list(known)
        if value is not None and value not in known:
            words = ", ".join(f'"{word}"' for word in known)
            shown = json.dumps(value, ensure_ascii=False)[:300]
            self.found.append(f"{field}: Unsupported value: {shown}: supported values: {words}")

    def within(self, field: str, value: int | None, low: int, high: int) -> None:
        """A number between two others; absent is fine."""
        if value is not None and not low <= value <= high:
            self.invalid(field, value, f"must be between {low} and {high}, inclusive")

    def labels(self, field: str, labels: Mapping[str, str | None] | None) -> None:
        """Keys and values of labels."""
        for key, value in (labels or {}).items():
            self.invalid(field, key, key_fault(key))
            self.invalid(field, value, value_fault(value or ""))

    def raise_for(self, kind: str, name: str) -> None:
        """Tell what was found.

        Raises:
            Refusal: 422, if anything was.
        """
        if self.found:
            raise self.refusal(kind, name)

    def refusal(self, kind: str, name: str) -> Refusal:
        """422 with all that was found."""
        found = self.found[0] if len(self.found) == 1 else f"[{', '.join(self.found)}]"
        return invalid(kind, name, found)
