"""Label selectors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stretto.model.selector import SelectorError, compile_label_selector, requirement_matches

LABELS = {"app": "web", "tier": "front"}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "web", "tier": "back"}}, False),
        (expression("app", "In", "db", "web"), True),
        (expression("app", "NotIn", "web"), False),
        (expression("zone", "NotIn", "web"), True),
        (expression("zone", "In", "a"), False),
        (expression("app", "Exists"), True),
        (expression("zone", "Exists"), False),
        (expression("zone", "DoesNotExist"), True),
        (expression("app", "DoesNotExist"), False),
    ],
)
def test_matches(selector: dict[str, Any] | None, expected: bool) -> None:
    assert compile_label_selector(selector).matches(LABELS) is expected


@pytest.mark.parametrize(
    "selector",
    [
        expression("a", "Gt", "1"),
        expression("a", "In"),
        expression("a", "Exists", "x"),
        {"matchLabels": {"a": 1}},
        {"matchExpressions": "x"},
    ],
)
def test_a_bad_selector_is_one_line(selector: dict[str, Any]) -> None:
    with pytest.raises(SelectorError) as caught:
        compile_label_selector(selector)
    assert "\n" not in str(caught.value)


def test_keys_are_what_the_selector_reads() -> None:
    selector = {"matchLabels": {"a": "1"}, **expression("b", "Exists")}
    assert compile_label_selector(selector).keys == {"a", "b"}


@given(
    labels=st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz")),
    wanted=st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz")),
    key=st.sampled_from("abc"),
    operator=st.sampled_from(["In", "NotIn"]),
    values=st.lists(st.sampled_from("xyz"), min_size=1),
)
def test_compiled_equals_requirement_by_requirement(
    labels: dict[str, str],
    wanted: dict[str, str],
    key: str,
    operator: str,
    values: list[str],
) -> None:
    selector = compile_label_selector({"matchLabels": wanted, **expression(key, operator, *values)})
    each = [requirement_matches(r, labels) for r in selector.requirements or ()]
    assert selector.matches(labels) is all(each)
