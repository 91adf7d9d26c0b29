"""The I/O around the rules of leadership, on a clock of the test's own."""

from __future__ import annotations

import json
from typing import Any

from stretto.kube.answers import Response
from stretto.kube.lease import LeaseSettings
from stretto.kube.lease_keeper import LeaseKeeper

SETTINGS = LeaseSettings(namespace="ns", name="binder", identity="me")


class SlowServer:
    """Has no Lease at first; each write takes ``write_s`` of the test's clock."""

    def __init__(self, *, write_s: float) -> None:
        self.now = 1000.0
        self._write_s = write_s
        self._lease: dict[str, Any] = {}
        self._version = 10

    async def get(self, _path: str) -> Any:
        return self._answer(200 if self._lease else 404)

    async def post(self, _path: str, body: dict[str, Any]) -> Any:
        self.now += self._write_s
        self._version += 1
        self._lease = body
        self._lease["metadata"]["resourceVersion"] = str(self._version)
        return self._answer(201)

    put = post

    def _answer(self, status: int) -> Any:
        return Response(status, json.dumps(self._lease).encode())


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
