"""Selectors of devices, as kube-scheduler evaluates them."""

from __future__ import annotations

import pytest

from stretto.cel.selectors import DeviceFacts, SelectorError, selector_of

DEVICE = DeviceFacts(
    driver="gpu.example.com",
    attributes=(("healthy", True), ("index", 1), ("model", "h100"), ("other.example.com/lane", 4)),
    versions=(("driverVersion", "1.10.0-rc.1+build5"),),
    capacity=(("memory", "40Gi"), ("link.example.com/rate", "1500m")),
)
MINE = 'device.attributes["gpu.example.com"]'
SIZE = 'device.capacity["gpu.example.com"].memory'


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('device.driver == "gpu.example.com"', True),
        ("device.allowMultipleAllocations", False),
        (f"{MINE}.healthy", True),
        (f"{MINE}.index > 0", True),
        (f'{MINE}.model in ["a100", "l4"]', False),
        (f'{MINE}.model.startsWith("h")', True),
        (f'{MINE}.model.matches("^h[0-9]+$")', True),
        ('device.attributes["other.example.com"].lane == 4', True),
        (f"has({MINE}.missing)", False),
        (f'{MINE}.?missing.orValue("none") == "none"', True),
        ('has(device.attributes["nobody.example.com"].missing)', False),
        ('"nobody.example.com" in device.attributes', False),
        ('"gpu.example.com" in device.attributes', True),
        (f"cel.bind(mine, {MINE}, mine.healthy && mine.index == 1)", True),
        ("1 / 0 == 1 || true", True),
        (f"{MINE}.index == 1.0", True),
        (f'{SIZE}.compareTo(quantity("40Gi")) == 0', True),
        (f'{SIZE} == quantity("41943040Ki")', True),
        (f'{SIZE}.isGreaterThan(quantity("16Gi"))', True),
        (f'{SIZE}.isLessThan(quantity("16Gi"))', False),
        (f"{SIZE}.asInteger() == 42949672960 && {SIZE}.isInteger()", True),
        ('device.capacity["link.example.com"].rate.isInteger()', False),
        ('device.capacity["link.example.com"].rate.asApproximateFloat() == 1.5', True),
        ('quantity("1").sub(quantity("2")) == quantity("-1")', True),
        ('sign(quantity("50M").add(1).sub(50000001)) == 0', True),
        ('isQuantity("1Gi") && !isQuantity("1GG")', True),
        (f'{MINE}.driverVersion.isLessThan(semver("1.10.0"))', True),
        (f'{MINE}.driverVersion.isGreaterThan(semver("1.9.9"))', True),
        (f'{MINE}.driverVersion == semver("1.10.0-rc.1")', True),
        (f"{MINE}.driverVersion.minor() == 10", True),
        ('semver("v01.2", true) == semver("1.2.0") && !isSemver("v1.2")', True),
        ('semver("1.0.0-2").isLessThan(semver("1.0.0-10"))', True),
        ("sets.contains([1, 2], [2]) && !sets.intersects([1], [2])", True),
    ],
)
def test_what_selectors_say(expression: str, expected: bool) -> None:
    """Attributes, capacity, Kubernetes' quantities and versions, and CEL's own operators."""
    selector = selector_of(expression)
    assert selector.problem == ""
    assert selector.matches(DEVICE) is expected


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (f"{MINE}.missing == 1", "no such key: missing. consider using CEL optional chaining"),
        ('device.attributes["x.example.com"].y == 1', "no such key: y. consider"),
        (f'{MINE}.index > "a"', "no such overload"),
        ("1 / 0 == 1", "division by zero"),
        ('quantity("many") == quantity("1")', "'many' is not a quantity"),
        (f"{MINE}.model", "CEL result of type string could not be converted to bool"),
    ],
)
def test_failures_on_a_device_are_kube_schedulers(expression: str, text: str) -> None:
    """The text of a failure names the cause in the words that users know."""
    selector = selector_of(expression)
    assert selector.problem == ""
    with pytest.raises(SelectorError, match="^" + text.replace("(", r"\(")):
        selector.matches(DEVICE)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("1 +", "compilation failed: ERROR: <input>:1:4: Syntax error"),
        ("nothing == 1", "compilation failed: ERROR: <input>:1:1: undeclared reference"),
        (f'{SIZE}.compareTo("40Gi") == 0', "compilation failed: ERROR"),
        ("device.driver", "must evaluate to bool or the unknown type, not string"),
        ('url("https://example.com").getHost() == "x"', "compilation failed"),
    ],
)
def test_what_does_not_compile_says_why(expression: str, text: str) -> None:
    """No exception: the reason is for a condition."""
    problem = selector_of(expression).problem
    assert problem.startswith(text)
    assert "INVALID_ARGUMENT" not in problem


def test_a_comprehension_cannot_run_away() -> None:
    """Nested loops over long lists end at the library's limit, as an error of the selector."""
    ten = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
    loops = "true"
    for name in "abcde":
        loops = f"{ten}.all({name}, {loops})"
    with pytest.raises(SelectorError, match=r"[Ii]teration"):
        selector_of(loops).matches(DEVICE)
