"""Metrics have texts, health is told, stories are bounded, logs are one line."""

from __future__ import annotations

import json
import logging
import urllib.error
import urllib.request

import pytest

from stretto.telemetry.binder_metrics import BinderMetrics
from stretto.telemetry.dispatcher_metrics import DispatcherMetrics
from stretto.telemetry.http import TelemetryError, TelemetryServer
from stretto.telemetry.logs import JsonFormatter, LogSettingsError, TextFormatter, setup_logging
from stretto.telemetry.shard_metrics import ShardMetrics
from stretto.telemetry.story import StoryLog


@pytest.mark.parametrize("metrics", [DispatcherMetrics, ShardMetrics, BinderMetrics])
def test_every_metric_is_explained_in_a_sentence(metrics: type) -> None:
    families = list(metrics().registry.collect())
    assert families
    for family in families:
        assert family.documentation.endswith("."), family.name
        assert family.name.startswith(("scheduler_", "stretto_"))


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_paths_answer() -> None:
    metrics = DispatcherMetrics()
    metrics.pending_pods.labels("active").set(3)
    stories = StoryLog()
    stories.note("u1", "attempt 1", "sent to shard-1", at_s=1.5)
    state = {"ready": False}
    server = TelemetryServer(
        "127.0.0.1:0", registry=metrics.registry, ready=lambda: state["ready"], stories=stories
    )
    try:
        assert 'scheduler_pending_pods{queue="active"} 3.0' in get(server.port, "/metrics")[1]
        assert get(server.port, "/livez") == (200, "ok\n")
        assert get(server.port, "/readyz")[0] == 503
        state["ready"] = True
        assert get(server.port, "/readyz") == (200, "ok\n")
        assert (
            json.loads(get(server.port, "/debug/story?unit=u1")[1])[0]["text"] == "sent to shard-1"
        )
        assert get(server.port, "/other")[0] == 404
        with pytest.raises(TelemetryError, match="choose another port"):
            TelemetryServer(f"127.0.0.1:{server.port}", registry=metrics.registry)
    finally:
        server.close()


def test_wrong_address_is_one_line() -> None:
    with pytest.raises(TelemetryError, match="take host:port"):
        TelemetryServer("nonsense", registry=DispatcherMetrics().registry)


def test_story_keeps_the_latest_lines() -> None:
    stories = StoryLog(capacity=3)
    for number in range(5):
        stories.note(f"u{number % 2}", f"c{number}", "x")
    assert len(stories) == 3
    assert [line.cause for line in stories.story("u0")] == ["c2", "c4"]


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("n", logging.INFO, "p", 1, "%s", (text,), None)


def test_lines_stay_lines() -> None:
    assert "\n" not in TextFormatter().format(record("a\nb"))
    assert json.loads(JsonFormatter().format(record("a\nb")))["msg"] == "a\nb"


@pytest.mark.parametrize(("name", "value"), [("format", "xml"), ("level", "loud")])
def test_unknown_log_setting_is_one_line(name: str, value: str) -> None:
    with pytest.raises(LogSettingsError, match=value):
        setup_logging(**{name: value})
