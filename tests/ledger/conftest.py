"""A real server for the ledger's tests: one a session, emptied by each test through its own
owner."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Iterator

import pytest

from stretto.ledger.server import EmbeddedServer


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a running server."""
    folder: pathlib.Path = tmp_path_factory.mktemp("ledger")
    with asyncio.Runner() as runner:
        server = EmbeddedServer(folder=folder)
        runner.run(server.start())
        yield server.url
        runner.run(server.stop())
