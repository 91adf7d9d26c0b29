"""Processes that are forks of the fork server, for the supervisor's event loop.

The server is started with the first process and again if it has died, which its forks do not
survive; see :mod:`stretto.cli.fork_server`. A command that knows that it will need one forks it off
itself before there is a loop (:func:`fork_ahead`): then an interpreter does not start again, what
is loaded already is shared, and the rest is loaded while the command goes about its own start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections import deque
from typing import Protocol

import msgspec

from stretto.cli.fork_server import MESSAGE_MAX, Report, Start
from stretto.ledger.server import die_with_parent

logger = logging.getLogger(__name__)

LOST = -int(signal.SIGKILL)
"""How a process has ended whose server died: the kernel has killed it."""
END_S = 10.0
"""For the server to end after its last process."""


class Fork:
    """A process; as much of asyncio's own as the supervisor uses."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = asyncio.Event()

    async def wait(self) -> int:
        """How it ended."""
        await self._ended.wait()
        assert self.returncode is not None, "ended without a code"
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def end(self, code: int) -> None:
        """It has ended."""
        self.returncode = code
        self._ended.set()


class ServerProcess(Protocol):
    """The process of a server; as much of asyncio's own as is used here."""

    @property
    def pid(self) -> int:
        """Its process id."""

    async def wait(self) -> int:
        """How it ended."""

    def kill(self) -> None:
        """SIGKILL."""


class Ahead:
    """A server that was forked before there was a loop."""

    LOOK_S = 0.01
    """Between looks whether it has ended, which only somebody does who has told it to."""

    def __init__(self, pid: int, control: socket.socket) -> None:
        self.pid = pid
        self.control = control

    async def wait(self) -> int:
        """How it ended."""
        while (code := self._ended()) is None:  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(self.LOOK_S)
        return code

    def _ended(self) -> int | None:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None

    def kill(self) -> None:
        """SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)


def fork_ahead() -> Ahead | socket.socket:
    """Fork a server off, before there is a loop, a thread or a connection. In the fork, the socket
    that it now has to serve: with :func:`stretto.cli.fork_server.serve_ahead`."""
    ours, its = control_pair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        return its
    its.close()
    return Ahead(pid, ours)


def control_pair() -> tuple[socket.socket, socket.socket]:
    """Our end and the server's of the socket between us, which keeps messages apart."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class _Server:
    """A running fork server, and what it has forked."""

    def __init__(self, process: ServerProcess, control: socket.socket) -> None:
        control.setblocking(False)
        self.process = process
        self.lost = False
        self._control = control
        self._asked: deque[asyncio.Future[Fork]] = deque()
        self._forks: dict[int, Fork] = {}
        self._decode = msgspec.json.Decoder(Report).decode
        asyncio.get_running_loop().add_reader(control, self._read)

    async def start(self, start: Start, *, output: int | None) -> Fork:
        """Raises OSError if there is no process to be had."""
        asked: asyncio.Future[Fork] = asyncio.get_running_loop().create_future()
        outputs = [] if output is None else [output]
        socket.send_fds(self._control, [msgspec.json.encode(start)], outputs)
        self._asked.append(asked)
        return await asked

    async def close(self) -> None:
        """End it; what it has forked should have ended before."""
        self._lose()
        try:
            async with asyncio.timeout(END_S):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()

    def _read(self) -> None:
        try:
            data = self._control.recv(MESSAGE_MAX)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if not data:
            self._lose()
            return
        report = self._decode(data)
        if report.code is not None:
            self._forks.pop(report.pid).end(report.code)
            return
        asked = self._asked.popleft()
        if report.error:
            if not asked.done():
                asked.set_exception(OSError(report.error))
            return
        fork = self._forks[report.pid] = Fork(report.pid)
        if asked.done():  # cancelled
            fork.kill()
        else:
            asked.set_result(fork)

    def _lose(self) -> None:
        """The connection is over, and with it, soon, all that was forked."""
        if self.lost:
            return
        self.lost = True
        asyncio.get_running_loop().remove_reader(self._control)
        self._control.close()
        for asked in self._asked:
            if not asked.done():
                asked.set_exception(OSError("the fork server has ended"))
        for fork in self._forks.values():
            fork.end(LOST)


class Forks:
    """Starts processes from a fork server, and the server when it is needed and not there yet."""

    def __init__(self, ahead: Ahead | None = None) -> None:
        self._server = _Server(ahead, ahead.control) if ahead else None
        self._starting = asyncio.Lock()

    @property
    def server_pid(self) -> int | None:
        """The server's process id, None if it does not run."""
        server = self._server
        return server.process.pid if server is not None and not server.lost else None

    async def start(self, name: str, arguments: list[str], *, output: int | None) -> Fork:
        """A process that runs ``stretto`` with these arguments and writes to a descriptor, or to
        where we write.

        Raises:
            OSError: it could not be started.
        """
        server = await self._running()
        return await server.start(Start(name=name, arguments=arguments), output=output)

    async def close(self) -> None:
        """End the server."""
        server, self._server = self._server, None
        if server is not None:
            await server.close()

    async def _running(self) -> _Server:
        async with self._starting:
            if self._server is not None and self._server.lost:
                await self._server.close()
                logger.warning("the fork server has ended; starting it again.")
                self._server = None
            if self._server is None:
                self._server = await _start_server()
            return self._server


async def _start_server() -> _Server:
    ours, its = control_pair()
    with its:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "stretto.cli.fork_server", str(its.fileno()),
            stdin=asyncio.subprocess.DEVNULL, pass_fds=(its.fileno(),),
            preexec_fn=die_with_parent, start_new_session=True,
        )  # fmt: skip
    return _Server(process, ours)
