"""Metrics have texts, health is told, stories are bounded, logs are one line."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
import urllib.error
import urllib.request

import pytest

from stretto.config.addresses import AddressError
from stretto.config.common import ConfigError
from stretto.telemetry.binder_metrics import BinderMetrics
from stretto.telemetry.guard import TelemetryError
from stretto.telemetry.http import MAX_CONNECTIONS, TelemetryServer
from stretto.telemetry.logs import JsonFormatter, TextFormatter, setup_logging
from stretto.telemetry.story import StoryLog


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_paths_answer() -> None:
    metrics = BinderMetrics()
    metrics.resolving.set(3)
    stories = StoryLog()
    stories.note("u1", "attempt 1", "sent to shard-1", at_s=1.5)
    state = {"ready": False}
    server = TelemetryServer(
        "127.0.0.1:0", registry=metrics.registry, ready=lambda: state["ready"], stories=stories
    )
    try:
        assert "stretto_resolving 3.0" in get(server.port, "/metrics")[1]
        assert get(server.port, "/livez") == (200, "ok\n")
        assert get(server.port, "/readyz")[0] == 503
        state["ready"] = True
        assert get(server.port, "/readyz") == (200, "ok\n")
        assert (
            json.loads(get(server.port, "/debug/story?unit=u1")[1])[0]["text"] == "sent to shard-1"
        )
        assert get(server.port, "/other")[0] == 404
        with pytest.raises(TelemetryError, match="choose another address"):
            TelemetryServer(f"127.0.0.1:{server.port}", registry=metrics.registry)
    finally:
        server.close()


@pytest.mark.parametrize("listen", ["nonsense", ":80", "127.0.0.1:99999", "127.0.0.1:x"])
def test_wrong_address_is_one_line(listen: str) -> None:
    with pytest.raises(AddressError, match=r"--telemetry-listen .* is not an address"):
        TelemetryServer(listen, registry=BinderMetrics().registry)


def test_the_log_says_whose_port_it_is(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="stretto.telemetry.http"):
        server = TelemetryServer(
            "127.0.0.1:0", registry=BinderMetrics().registry, role="the binder"
        )
    server.close()
    assert f"metrics and health of the binder are served on port {server.port}" in caplog.messages


def test_unknown_host_is_one_line() -> None:
    with pytest.raises(TelemetryError, match="choose another address"):
        TelemetryServer("no-such-host.invalid:1", registry=BinderMetrics().registry)


def test_stories_are_told_to_this_host_only() -> None:
    stories = StoryLog()
    server = TelemetryServer("127.0.0.1:0", registry=BinderMetrics().registry, stories=stories)
    try:
        assert server.answer("/debug/story?unit=u", peer="10.0.0.7").status == 403
        stories.note("u", "dispatched", "to shard-1")
        assert server.answer("/debug/story?unit=u", peer="::1").status == 200
        assert server.answer("/debug/story?pod=u").status == 200
        assert server.answer("/debug/story?name=u").status == 400
    finally:
        server.close()


def test_a_unit_of_which_nothing_is_remembered_is_not_found_in_one_line() -> None:
    stories = StoryLog(2)
    server = TelemetryServer("127.0.0.1:0", registry=BinderMetrics().registry, stories=stories)
    try:
        for unit in ("forgotten", "a", "b"):
            stories.note(unit, "dispatched", "to shard-1")
        for unit in ("forgotten", "n\u00f6", "x" * 5_000):
            answer = server.answer(f"/debug/story?unit={unit}")
            line = answer.body.decode()
            assert answer.status == 404
            assert line.count("\n") == 1
            assert len(line) < 400
            assert repr(unit[:80]) in line
            assert "the last 2 lines of all units are kept" in line
    finally:
        server.close()


async def test_a_wedged_loop_is_not_alive() -> None:
    """The loop that made the server is asked; blocked, it cannot answer."""
    server = TelemetryServer("127.0.0.1:0", registry=BinderMetrics().registry, wedged_s=0.2)
    try:
        assert await asyncio.to_thread(get, server.port, "/livez") == (200, "ok\n")
        probe = threading.Thread(target=lambda: seen.append(get(server.port, "/livez")))
        seen: list[tuple[int, str]] = []
        probe.start()
        probe.join()  # blocks the loop until the probe has its answer
        assert seen == [(503, "not ok\n")]
    finally:
        server.close()


def test_a_check_that_fails_is_not_ok(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> bool:
        raise ValueError("broken")

    server = TelemetryServer("127.0.0.1:0", registry=BinderMetrics().registry, ready=broken)
    try:
        assert get(server.port, "/readyz")[0] == 503
        assert "health check failed" in caplog.text
    finally:
        server.close()


def test_many_silent_clients_do_not_stop_the_answers() -> None:
    server = TelemetryServer("127.0.0.1:0", registry=BinderMetrics().registry)
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(8)]
    try:
        assert get(server.port, "/livez")[0] == 200
    finally:
        for connection in silent:
            connection.close()
        server.close()


def test_silent_clients_cannot_keep_a_health_check_out() -> None:
    """The one that has been silent for the longest time goes."""
    server = TelemetryServer("127.0.0.1:0", registry=BinderMetrics().registry)
    silent = []
    try:
        for _ in range(MAX_CONNECTIONS):
            silent.append(socket.create_connection(("127.0.0.1", server.port)))
            silent[-1].sendall(b"GET /livez HTTP/1.1\r\n")
        for closed in range(3):
            assert get(server.port, "/livez") == (200, "ok\n")
            silent[closed].settimeout(60)
            assert silent[closed].recv(1) == b""
            silent.append(socket.create_connection(("127.0.0.1", server.port)))
    finally:
        for each in silent:
            each.close()
        server.close()


def test_story_keeps_the_latest_lines() -> None:
    told = StoryLog(clock=lambda: 7.0)
    told.note("u", "cause", "text")
    told.note("u", "cause", "text", at_s=3.0)
    assert [line.at_s for line in told.story("u")] == [7.0, 3.0]
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
    with pytest.raises(ConfigError, match=value):
        setup_logging(**{name: value})
