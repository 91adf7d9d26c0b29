"""The I/O around the rules of leadership, on a clock of the test's own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stretto.kube.answers import Response
from stretto.kube.lease import LeaseSettings
from stretto.kube.lease_keeper import LeaseKeeper

SETTINGS = LeaseSettings(namespace="ns", name="binder", identity="me")


class SlowServer:
    """Has no Lease at first; each write takes ``write_s`` of the test's clock."""

    def __init__(self, *, write_s: float) -> None:
        self.now = 1000.0
        self.write_s = write_s
        self.lease: dict[str, Any] = {}
        self.version = 10

    async def get(self, _path: str) -> Any:
        return self._answer(200 if self.lease else 404)

    async def post(self, _path: str, body: dict[str, Any]) -> Any:
        self.now += self.write_s
        self.version += 1
        self.lease = body
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return self._answer(201)

    put = post

    def _answer(self, status: int) -> Any:
        return Response(status, json.dumps(self.lease).encode())


async def test_a_slow_write_shortens_the_time_in_which_we_may_act() -> None:
    """It may have been carried out at its very beginning, and others count from then."""
    server = SlowServer(write_s=4.0)
    client: Any = server
    keeper = LeaseKeeper(client, SETTINGS, clock=lambda: server.now)
    tenure = await keeper.acquire()
    assert tenure.epoch == 11
    server.now += 5.9
    assert keeper.valid()
    server.now += 0.2
    assert not keeper.valid()


class ContendedServer(SlowServer):
    """Another takes the Lease before the answer to the write that makes it is there, and gives it
    up when it has been looked at a few times."""

    looks = 0

    async def get(self, path: str) -> Any:
        self.looks += bool(self.lease)
        if self.looks == 4:
            self._passes_to("")
        return await super().get(path)

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        answer = await super().post(path, body)
        self._passes_to("another")
        return answer

    async def put(self, path: str, body: dict[str, Any]) -> Any:
        if body["metadata"]["resourceVersion"] != str(self.version):
            return Response(409, b"{}")
        self.write_s = 1.0
        return await super().post(path, body)

    def _passes_to(self, holder: str) -> None:
        self.version += 1
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        self.lease["spec"]["holderIdentity"] = holder


async def test_a_process_that_stood_still_while_it_acquired_stands_by_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = ContendedServer(write_s=60.0)
    client: Any = server
    keeper = LeaseKeeper(client, SETTINGS, clock=lambda: server.now)

    async def sleep(seconds: float) -> None:
        server.now += seconds

    monkeypatch.setattr("stretto.kube.lease_keeper.asyncio.sleep", sleep)
    tenure = await keeper.acquire()
    assert server.looks >= 4
    assert tenure.epoch == server.version, "of the write that counts"
    assert keeper.valid()
    assert not keeper.announced.is_set()
    assert not keeper.lost.is_set()
