"""A real server for the ledger's tests: one a session; each test takes an owner of its own."""

from __future__ import annotations

import asyncio
import itertools
import pathlib
from collections.abc import AsyncIterator, Iterator

import pytest

from stretto.ledger.client import Ledger
from stretto.ledger.server import EmbeddedServer
from tests.ledger.proxy import LossyProxy
from tests.ledger.users import put_in_force

OWNERS = itertools.count()


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a running server, as the user that the deployment gives the Binder."""
    folder: pathlib.Path = tmp_path_factory.mktemp("ledger")
    with asyncio.Runner() as runner:
        server = EmbeddedServer(folder=folder)
        runner.run(server.start())
        yield put_in_force(server.url)
        runner.run(server.stop())


@pytest.fixture
def owner() -> str:
    """A ledger that no other test uses."""
    return f"test-{next(OWNERS)}"


@pytest.fixture
async def ledger(server_url: str, owner: str) -> AsyncIterator[Ledger]:
    """An open, empty ledger; not installed."""
    ledger = await Ledger.open(server_url, owner=owner)
    yield ledger
    await ledger.close()


@pytest.fixture
async def proxy(server_url: str, tmp_path: pathlib.Path) -> AsyncIterator[LossyProxy]:
    """A lossy way to the server."""
    async with LossyProxy(server_url, folder=tmp_path) as proxy:
        yield proxy
