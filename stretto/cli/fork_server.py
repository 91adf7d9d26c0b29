"""The fork server of `stretto run` and `stretto demo`: roles' code loaded once, each role a fork.

Loading the code of a role takes 0.2 to 0.5 s of CPU, as much as binding a thousand pods; a fork
takes some milliseconds and shares what is loaded. A fork is safe as long as there is nothing but
code to be copied, so this process has one thread, no event loop, no gRPC core and no connection,
and reads no credentials, then and ever; it checks the first before each fork. A request is one
message (JSON) on a socket pair with the descriptor that the role's output goes to; it answers with
the process id, and later with how the process ended.

It ends when the other end of its socket is closed, and not by a signal, because a service manager
sends SIGTERM to all processes of a unit at once, and the roles need their time. What still runs
then is asked to end first. If it is killed, the kernel kills its forks (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pathlib
import selectors
import signal
import socket
import sys
import time

import msgspec

from stretto.cli.command import NO_THREADS
from stretto.cli.command import run as run_command
from stretto.cli.main import UNTIL_STOPPED, stop_at_once
from stretto.ledger.server import die_with_parent, prctl

ROLES = ("binder.process", "dispatcher.process", "scheduler_shard.process")
SETTINGS = ("stretto.config.binder", "stretto.config.dispatcher", "stretto.config.shard")
LATER = ("encodings.idna", "grpc._utilities")
"""What each role would load with the first address that it looks up, and the first stream."""
MESSAGE_MAX = 128 * 1024
"""Bytes of one message, above what a command line of a role can need."""
PR_SET_NAME = 15
END_S = 9.0
"""For forks that are asked to end because our parent has gone; a role needs at most 8 s."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)


class Start(msgspec.Struct):
    """A role to start."""

    name: str
    """The name that the process shows."""
    arguments: list[str]
    """After ``stretto``."""


class Report(msgspec.Struct, omit_defaults=True):
    """What happened: the answer to a :class:`Start`, or the end of a process."""

    pid: int = 0
    """The process; 0: it could not be started."""
    code: int | None = None
    """How it ended, negative for a signal's number; None: it has started."""
    error: str = ""
    """Why it could not be started."""


class Forked(Exception):  # noqa: N818 (it is no defect, but the way out of the server's stack)
    """Raised in a fork: this is the role now."""

    def __init__(self, arguments: list[str]) -> None:
        super().__init__()
        self.arguments = arguments


class ForkServer:
    """Serves one socket; see the module docstring."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._forks: set[int] = set()
        self._decode = msgspec.json.Decoder(Start).decode

    def serve(self) -> None:
        """Until the other end is closed. Raises :class:`Forked` in each fork."""
        woken, waker = socket.socketpair()
        for end in (woken, waker):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker.fileno())
        with selectors.DefaultSelector() as ready, woken, waker:
            ready.register(self._control, selectors.EVENT_READ)
            ready.register(woken, selectors.EVENT_READ)
            while self._step(ready, woken):
                pass
            self._end_forks()

    def _step(self, ready: selectors.BaseSelector, woken: socket.socket) -> bool:
        """Whatever is to be done next; False when the other end is closed."""
        for key, _ in ready.select():
            if key.fileobj is woken:
                with contextlib.suppress(BlockingIOError):
                    woken.recv(4096)
                self._reap()
            elif not self._answer():
                return False
        return True

    def _answer(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self._control, MESSAGE_MAX, maxfds=1)
        if not data:
            return False
        try:
            self._tell(Report(pid=self._fork(self._decode(data), outputs=descriptors)))
        except OSError as error:
            self._tell(Report(error=error.strerror or str(error)))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return True

    def _fork(self, start: Start, *, outputs: list[int]) -> int:
        threads = len(os.listdir("/proc/self/task"))
        assert threads == 1, f"a fork of {threads} threads would have locks that nobody opens"
        server = os.getpid()
        # A signal for the fork waits until it has a fork's handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            pid = os.fork()
        except OSError:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            raise
        if pid == 0:
            become(start.name, outputs=outputs, parent=server)
            raise Forked(start.arguments)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        self._forks.add(pid)
        return pid

    def _reap(self) -> None:
        while self._forks:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._forks.discard(pid)
            self._tell(Report(pid=pid, code=os.waitstatus_to_exitcode(status)))

    def _tell(self, report: Report) -> None:
        # Its reader is gone only when it ends, and then nobody has to know.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._control.send(msgspec.json.encode(report))

    def _end_forks(self) -> None:
        for pid in self._forks:
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + END_S
        while self._forks and time.monotonic() < deadline:
            time.sleep(0.02)
            self._reap()


def become(name: str, *, outputs: list[int], parent: int) -> None:
    """In a fork: what a process that had been started afresh would be."""
    gc.enable()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it died before the kernel knew that we would have to
    name_process(name)
    for output in outputs:
        os.dup2(output, 1)
        os.dup2(output, 2)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def name_process(name: str) -> None:
    """The name that ``ps`` and ``top`` show; the command line stays the fork server's."""
    prctl(PR_SET_NAME, name.encode()[:15])


def serve_ahead(control: socket.socket, *, parent: int) -> int:
    """In a fork of a command: what :func:`main` is in a process that was started afresh."""
    os.setsid()
    die_with_parent()
    if os.getppid() != parent:
        return 1
    with pathlib.Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return main(control.detach())


def main(descriptor: int) -> int:
    """Load, serve, and in a fork be the role."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    name_process("fork-server")
    os.environ.setdefault(*NO_THREADS)
    gc.disable()  # code makes no garbage; looking for it takes 4 % of the loading
    for module in (*ROLES, *SETTINGS, *LATER):
        importlib.import_module(module)
    gc.freeze()  # else the first collection of each fork would copy every page of it
    control = socket.socket(fileno=descriptor)
    try:
        with control:
            ForkServer(control).serve()
    except Forked as fork:
        arguments = fork.arguments
    else:
        return 0
    if UNTIL_STOPPED.intersection(arguments[:1]):
        stop_at_once()
    return run_command(arguments)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
