"""A proxy in front of the server that loses requests or replies at will."""

from __future__ import annotations

import asyncio
import enum
import pathlib
from typing import Self
from urllib.parse import urlsplit

from tests.ledger.users import login_of


class Loss(enum.Enum):
    """What happens to the next request of a script."""

    NOTHING = enum.auto()
    REQUEST = enum.auto()
    """It never reaches the server; the connection ends."""
    REPLY = enum.auto()
    """It is executed; the answer is lost with the connection."""
    SILENCE = enum.auto()
    """It is held back until :meth:`LossyProxy.deliver`; the connection stays."""


class LossyProxy:
    """``async with LossyProxy(url, folder=…) as proxy: Ledger.open(proxy.url)``."""

    def __init__(self, url: str, *, folder: pathlib.Path) -> None:
        parts = urlsplit(url)
        self._target, self._login = parts.path, login_of(url)
        self._path = folder / "proxy.sock"
        self.url = parts._replace(path=str(self._path)).geturl()
        self.losses: list[Loss] = []
        """For the next script calls, in order; NOTHING when used up."""
        self._held: list[bytes] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._serve, self._path)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def deliver(self) -> bytes:
        """Send the held request now, on a connection of its own; the server's answer."""
        reader, writer = await asyncio.open_unix_connection(self._target)
        if self._login:
            writer.write(" ".join(["AUTH", *self._login, "\r\n"]).encode())
            assert await reader.readline() == b"+OK\r\n"
        writer.write(self._held.pop())
        answer = await reader.read(65536)
        writer.close()
        return answer

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        up_reader, up_writer = await asyncio.open_unix_connection(self._target)
        try:
            while request := await reader.read(1 << 20):
                loss = Loss.NOTHING
                if b"EVALSHA" in request and self.losses:
                    loss = self.losses.pop(0)
                if loss is Loss.REQUEST:
                    return
                if loss is Loss.SILENCE:
                    self._held.append(request)
                    continue
                up_writer.write(request)
                answer = await up_reader.read(1 << 20)
                if loss is Loss.REPLY:
                    return
                writer.write(answer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            up_writer.close()
            writer.close()
            self._tasks.discard(task)
