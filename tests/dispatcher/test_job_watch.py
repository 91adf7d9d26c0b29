"""What the watch of Jobs says when it cannot read them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import pytest

import dispatcher.job_watch
from dispatcher.core import Core
from dispatcher.job_watch import CLASSES_PATH, JobWatch
from stretto.kube.answers import Response
from stretto.kube.client import KubeClient
from stretto.kube.errors import KubeError
from tests.dispatcher.brain import Brain


class Refusing(KubeClient):
    """Answers lists of classes from a script, and no others."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.done = asyncio.Event()

    async def list_page(
        self, path: str, params: Mapping[str, str], *, limit: int = 0, continue_token: str = ""
    ) -> Response:
        if path != CLASSES_PATH or not self.statuses:
            if path == CLASSES_PATH:
                self.done.set()
            await asyncio.Event().wait()
        status = self.statuses.pop(0)
        if not status:
            raise KubeError("connection refused")
        return Response(status=status, body=b'{"message": "no"}')


async def test_what_keeps_jobs_away_is_said_once_until_it_is_something_else(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher.job_watch, "LOOK_AGAIN_S", 0.0)
    monkeypatch.setattr(dispatcher.job_watch, "ASK_AGAIN_S", 0.0)
    client = Refusing(403, 403, 403, 0, 0, 500, 403, 403)
    watch = JobWatch(client, core=Core(Brain().machine, linger_s=0.0), schedulers=("stretto",))
    with caplog.at_level(logging.WARNING):
        task = asyncio.create_task(watch.run())
        await client.done.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    lists = [line for line in caplog.messages if "priorityclasses" in line]
    assert [line.split()[2] for line in lists] == ["403", "connection", "500", "403"]
