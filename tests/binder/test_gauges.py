"""What the Binder's gauges tell that an operator acts on."""

from __future__ import annotations

from prometheus_client import generate_latest

from binder.gauges import Ages, Gauges
from stretto.telemetry.binder_metrics import BinderMetrics
from tests.binder.world import World


def text_of(metrics: BinderMetrics) -> str:
    return generate_latest(metrics.registry).decode()


def test_the_oldest_is_told_until_it_is_gone() -> None:
    ages = Ages()
    assert ages.oldest_s([], now=5.0) == 0.0
    assert ages.oldest_s(["a"], now=10.0) == 0.0
    assert ages.oldest_s(["a", "b"], now=40.0) == 30.0
    assert ages.oldest_s(["b"], now=41.0) == 1.0
    assert ages.oldest_s(["a", "b"], now=42.0) == 2.0, "one that comes again is a new one"


def test_each_generation_of_the_ledger_counts_once() -> None:
    metrics = BinderMetrics()
    gauges = Gauges(World().machine, metrics)
    for generations in (1, 1, 2):
        gauges.look(now=0.0, silence_s=0.0, generations=generations)
    assert "stretto_ledger_generations_total 2.0" in text_of(metrics)
