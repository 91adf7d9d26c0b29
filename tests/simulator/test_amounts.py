"""Quantities and sums, as the simulated kubelet reckons them."""

from __future__ import annotations

from typing import Any

import pytest

from stretto.simulator.amounts import MOST, AmountError, amount, pod_amounts


@pytest.mark.parametrize(
    ("text", "milli", "value"),
    [
        ("100m", True, 100),
        ("0.1", True, 100),
        ("1", True, 1000),
        ("100u", True, 1),
        ("1Gi", False, 1 << 30),
        ("1.5Gi", False, 3 << 29),
        ("1e3", False, 1000),
        ("1E", False, 10**18),
        ("12E3", False, 12000),
        ("100m", False, 1),
        (".5k", False, 500),
        ("9e30", False, MOST),
    ],
)
def test_quantities_round_up_to_the_unit(text: str, milli: bool, value: int) -> None:
    assert amount(text, milli=milli) == value


@pytest.mark.parametrize("text", ["", "x", "1e200000", "9" * 5000, "1KiB", "1e", "--1", "1 "])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(AmountError):
        amount(text, milli=False)


def with_cpu(cpu: str, **more: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}


def test_init_containers_count_where_they_need_more() -> None:
    spec = {"initContainers": [with_cpu("5"), with_cpu("1")], "containers": [with_cpu("2")] * 2}
    assert pod_amounts(spec) == {"cpu": 5000, "pods": 1}


def test_sidecars_run_beside_what_comes_after_them() -> None:
    spec = {
        "initContainers": [with_cpu("4"), with_cpu("1", restartPolicy="Always"), with_cpu("4")],
        "containers": [with_cpu("2")],
    }
    assert pod_amounts(spec)["cpu"] == 5000


def test_overhead_is_added_and_requests_of_the_pod_replace() -> None:
    spec = {
        "containers": [with_cpu("2")],
        "resources": {"requests": {"cpu": "3", "memory": "1Ki"}},
        "overhead": {"cpu": "250m"},
    }
    assert pod_amounts(spec) == {"cpu": 3250, "memory": 1024, "pods": 1}
