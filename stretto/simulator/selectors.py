"""Field and label selectors, compiled into one predicate."""

from __future__ import annotations

import re
from collections.abc import Callable

from stretto.simulator.answers import bad_request
from stretto.simulator.records import Record

Predicate = Callable[[Record], bool]
_FIELD = re.compile(r"([A-Za-z][\w.]*)(==|!=|=)(.*)\Z", re.DOTALL)
_SET = re.compile(r"([^\s!,()=]+)\s+(in|notin)\s*\(([^()]*)\)\Z")
_EQUALITY = re.compile(r"([^\s!,()=]+)\s*(==|!=|=)\s*([^\s!,()=]*)\Z")
_EXISTS = re.compile(r"(!?)\s*([^\s!,()=]+)\Z")
_TERMS = re.compile(r",(?![^()]*\))")


def selects(fields: str, labels: str) -> Predicate | None:
    """What passes both selectors; None if everything does.

    Raises:
        Refusal: 400, a selector cannot be read.
    """
    tests = [_field_test(text) for text in fields.split(",") if text]
    tests += [_label_test(text.strip()) for text in _TERMS.split(labels) if text.strip()]
    if not tests:
        return None
    if len(tests) == 1:
        return tests[0]
    if len(tests) == 2:  # asked for every change by each watch, and most selectors are a pair
        first, second = tests
        return lambda record: first(record) and second(record)
    return lambda record: all(test(record) for test in tests)


def _field_test(text: str) -> Predicate:
    match = _FIELD.match(text)
    if match is None:
        raise bad_request(
            f"invalid field selector: {text[:100]!r}; use field=value or field!=value"
        )
    path, operator, wanted = match.groups()
    if operator == "!=":
        return lambda record: _value(record, path) != wanted
    return lambda record: _value(record, path) == wanted


def _value(record: Record, path: str) -> str:
    value = record.field(path)
    if value is None:
        raise bad_request(f"field label not supported: {path}")
    return value


def _label_test(text: str) -> Predicate:
    if match := _SET.match(text):
        key, operator, listed = match.groups()
        values = frozenset(value.strip() for value in listed.split(","))
        if operator == "in":
            return lambda record: record.labels.get(key) in values
        return lambda record: record.labels.get(key) not in values
    if match := _EQUALITY.match(text):
        key, operator, wanted = match.groups()
        if operator == "!=":
            return lambda record: record.labels.get(key) != wanted
        return lambda record: record.labels.get(key) == wanted
    if match := _EXISTS.match(text):
        absent, key = match.groups()
        return lambda record: (key in record.labels) is not bool(absent)
    raise bad_request(f"unable to parse requirement: {text[:100]!r}")
