"""A command that is told to stop before it has begun ends as one that was stopped later does."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from stretto.cli.main import UNTIL_STOPPED
from tests.e2e.commands import environment, running
from tests.e2e.stack import plain_kubeconfig

PIPE = 4096
"""Bytes of output that a process can be ahead of its reader: it lists its imports, some 40 kB, and
so stands in the midst of them while nobody reads on."""
WORDS = {
    "run": (),
    "dispatcher": (),
    "shard": (),
    "binder": ("--redis-url=redis://127.0.0.1:1",),
    "simulator": ("--port=0",),
    "record": (),
}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("command", sorted(UNTIL_STOPPED))
def test_a_stop_while_code_is_loaded_is_obeyed(
    command: str, number: signal.Signals, tmp_path: pathlib.Path
) -> None:
    kubeconfig = plain_kubeconfig(tmp_path, url="http://127.0.0.1:1", name="nobody")
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "stretto.cli.main", command, *WORDS[command]],
        env=environment(tmp_path) | {"KUBECONFIG": str(kubeconfig)},
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, PIPE)
        said = b""
        while b" argparse\n" not in said:
            piece = os.read(process.stderr.fileno(), 256)
            assert piece, said
            said += piece
        process.send_signal(number)
        rest = process.stderr.read()
    assert process.returncode == 0, rest
    assert b"Traceback" not in rest
    assert b" stretto.kube.client\n" not in rest, "it was loaded before the signal"


async def test_a_stop_while_the_api_server_says_nothing_is_obeyed(tmp_path: pathlib.Path) -> None:
    asked = asyncio.Event()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        asked.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    kubeconfig = plain_kubeconfig(tmp_path, url=f"http://127.0.0.1:{port}", name="mute")
    async with server, running(tmp_path, "run", "--kubeconfig", str(kubeconfig)) as process:
        await asked.wait()
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert await process.stdout.read() == b""
        assert await process.wait() == 0
