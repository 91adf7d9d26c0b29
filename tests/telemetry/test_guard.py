"""Who may read metrics beyond loopback."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import ssl
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge

from stretto.config.common import RoleSettings
from stretto.telemetry.guard import Guard, Review, TelemetryError, Verdict, guard_of
from stretto.telemetry.http import TelemetryServer
from tests.rpc.certificates import Authority, Issued

OUTSIDE = "0.0.0.0:0"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def own(authority: Authority) -> Issued:
    return authority.issue("stretto-binder")


def served(own: Issued, *, review: Review | None) -> TelemetryServer:
    registry = CollectorRegistry()
    Gauge("here", "It is read.", registry=registry).set(1)
    guard = guard_of(RoleSettings(**own.settings()), OUTSIDE, review=review)
    assert guard is not None
    return TelemetryServer(OUTSIDE, registry=registry, guard=guard)


def ask(
    port: int,
    path: str,
    *,
    trusted: Path,
    token: str = "",
    client: Issued | None = None,
    method: str = "GET",
) -> tuple[int, str]:
    context = ssl.create_default_context(cafile=str(trusted))
    if client is not None:
        context.load_cert_chain(client.certificate, client.key)
    with closing(http.client.HTTPSConnection("127.0.0.1", port, context=context)) as connection:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request(method, path, headers=headers)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()


VERDICTS = {"reader": Verdict.ALLOWED, "user": Verdict.FORBIDDEN, "down": Verdict.UNKNOWN}


async def reviewed(token: str, path: str) -> Verdict:
    assert path == "/metrics"
    if token == "broken":
        raise RuntimeError("a defect")
    return VERDICTS.get(token, Verdict.UNAUTHENTICATED)


@pytest.mark.parametrize(
    ("token", "status"),
    [("", 401), ("unknown", 401), ("user", 403), ("down", 503), ("broken", 503), ("reader", 200),
     ("x" * 20_000, 401)],
)  # fmt: skip
async def test_metrics_are_for_tokens_that_may_read_them(
    own: Issued, token: str, status: int
) -> None:
    """Whatever goes wrong is a refusal."""
    server = served(own, review=reviewed)
    try:
        found, body = await asyncio.to_thread(
            ask, server.port, "/metrics", trusted=own.authority, token=token
        )
        assert found == status
        assert ("here 1.0" in body) is (status == 200)
        for path in ("/livez", "/readyz", "/healthz"):
            asked = await asyncio.to_thread(ask, server.port, path, trusted=own.authority)
            assert asked == (200, "ok\n")
    finally:
        server.close()


def test_metrics_are_for_a_certificate_that_says_so(own: Issued, authority: Authority) -> None:
    """A shard can ask nobody about tokens; its monitoring comes with a certificate."""
    server = served(own, review=None)
    try:
        reader, shard = authority.issue("stretto-metrics"), authority.issue("stretto-shard")
        path, trusted = "/metrics", own.authority
        assert ask(server.port, path, trusted=trusted, client=reader)[0] == 200
        assert ask(server.port, path, trusted=trusted, client=shard)[0] == 401
        assert ask(server.port, path, trusted=trusted, token="reader")[0] == 401
        assert ask(server.port, path, trusted=trusted, client=reader, method="DELETE")[0] == 501
    finally:
        server.close()


def test_a_forged_certificate_and_plain_text_get_nothing(own: Issued, tmp_path: Path) -> None:
    """And they cost nobody else his answer."""
    forged = Authority(tmp_path).issue("stretto-metrics")
    server = served(own, review=None)
    try:
        with pytest.raises(OSError):  # noqa: PT011  the handshake, or the first read after it
            ask(server.port, "/metrics", trusted=own.authority, client=forged)
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as plain:
            plain.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            answer = b""
            with contextlib.suppress(ConnectionResetError):
                answer = plain.recv(4096)
            assert b"here" not in answer
        assert ask(server.port, "/livez", trusted=own.authority)[0] == 200
    finally:
        server.close()


def test_a_peer_that_says_nothing_does_not_hold_up_others(own: Issued) -> None:
    """The handshake is on the connection's own thread."""
    server = served(own, review=None)
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(5)]
    try:
        assert ask(server.port, "/livez", trusted=own.authority)[0] == 200
    finally:
        for each in silent:
            each.close()
        server.close()


def test_renewed_certificates_are_served(tmp_path: Path) -> None:
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    own = old.issue("stretto-binder")
    server = served(own, review=None)
    try:
        assert ask(server.port, "/livez", trusted=old.file)[0] == 200
        own.become(new.issue("stretto-binder"))
        assert ask(server.port, "/livez", trusted=new.file)[0] == 200
    finally:
        server.close()


def test_beyond_loopback_something_must_guard_it(own: Issued) -> None:
    """Refused otherwise, in one line that says what to do."""
    assert guard_of(RoleSettings(), "127.0.0.1:0") is None
    assert guard_of(RoleSettings(**own.settings()), "[::1]:0") is None
    assert guard_of(RoleSettings(insecure=True), OUTSIDE) is None
    assert isinstance(guard_of(RoleSettings(**own.settings()), OUTSIDE), Guard)
    with pytest.raises(TelemetryError, match="give --tls-certificate") as caught:
        guard_of(RoleSettings(), OUTSIDE)
    assert "\n" not in str(caught.value)
