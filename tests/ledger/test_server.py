"""Finding, starting and ending the server; servers that must not hold a ledger."""

from __future__ import annotations

import asyncio
import errno
import os
import pathlib
import signal
import sys

import pytest
import redis.asyncio

from stretto.ledger.client import Ledger
from stretto.ledger.server import EmbeddedServer, find_binary
from stretto.ledger.server_check import server_problem
from stretto.ledger.types import LedgerRefused, LedgerUnavailable
from tests.ledger.records import node, unit


async def saved(server: EmbeddedServer) -> None:
    """Wait until all that was answered is in the file: a server whose last fsync is still under way
    puts off the next write for up to two seconds, and then even SIGKILL loses what it answered."""
    async with redis.asyncio.Redis.from_url(server.url) as hand:
        await hand.execute_command("WAITAOF", 1, 0, 5000)


async def test_a_killed_server_comes_back_with_its_entries(tmp_path: pathlib.Path) -> None:
    async with EmbeddedServer(folder=tmp_path) as server:
        ledger = await Ledger.open(server.url, owner="o")
        await ledger.install(1)
        await ledger.set_accounts([node("n1")])
        await ledger.reserve([unit("u1", "n1")])
        await saved(server)
        await server.kill()
        await server.start()
        assert [entry.pod_uid for entry in await ledger.entries()] == ["u1"]
        assert (await ledger.reserve([unit("u2", "n1")]))[0].kind.name == "GRANTED"
        await ledger.close()


async def spoilt(folder: pathlib.Path) -> None:
    """Write an entry, end the server, and damage the middle of its file."""
    async with EmbeddedServer(folder=folder) as server:
        ledger = await Ledger.open(server.url, owner="o")
        await ledger.install(1)
        await ledger.set_accounts([node("n1")])
        await ledger.close()
    damage(folder)


def files_of(folder: pathlib.Path, name: str) -> list[pathlib.Path]:
    """The append-only files below a data folder."""
    return list(folder.glob(f"{name}/*.incr.aof"))


def damage(folder: pathlib.Path) -> None:
    """Make the append-only file one that no server reads."""
    (file,) = files_of(folder, "appendonlydir")
    data = bytearray(file.read_bytes())
    data[30:50] = b"x" * 20
    file.write_bytes(data)


async def test_data_that_cannot_be_read_is_set_aside(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):  # the second time there is something set aside already
        await spoilt(tmp_path)
        async with EmbeddedServer(folder=tmp_path) as server:
            ledger = await Ledger.open(server.url, owner="o")
            assert not (await ledger.install(1)).intact
            await ledger.close()
        (line,) = caplog.messages
        assert "Bad file format" in line
        assert f"set aside as {tmp_path / 'appendonlydir.unreadable'}" in line
        caplog.clear()
    assert files_of(tmp_path, "appendonlydir.unreadable")


async def test_data_that_cannot_be_set_aside_is_one_line(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await spoilt(tmp_path)

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(pathlib.Path, "rename", refuse)
    with pytest.raises(LedgerRefused, match="cannot be set aside: Permission denied") as caught:
        await EmbeddedServer(folder=tmp_path).start()
    assert "Bad file format" in str(caught.value)


async def test_data_stays_when_it_is_not_at_fault(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await spoilt(tmp_path / "data")
    program = tmp_path / "valkey-server"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(LedgerRefused, match="ended with code 3"):
        await EmbeddedServer(folder=tmp_path / "data").start()
    assert files_of(tmp_path / "data", "appendonlydir")


async def test_a_successor_is_told_that_the_server_was_started_again(
    tmp_path: pathlib.Path,
) -> None:
    async with EmbeddedServer(folder=tmp_path) as server:
        ledger = await Ledger.open(server.url, owner="o")
        for epoch, restart in ((1, False), (2, False), (3, True), (4, False)):
            if restart:
                await saved(server)
                await server.kill()
                await server.start()
            reply = await ledger.install(epoch)
            await ledger.opened()
            assert (reply.intact, reply.restarted) == (epoch > 1, restart)
        await ledger.close()


async def test_a_server_that_is_gone_is_one_line(tmp_path: pathlib.Path) -> None:
    async with EmbeddedServer(folder=tmp_path) as server:
        ledger = await Ledger.open(server.url, owner="o", timeout_s=0.2, first_pause_s=0.001)
        await ledger.install(1)
        await server.stop()
        with pytest.raises(LedgerUnavailable, match="does not answer"):
            await ledger.set_accounts([node("n1")])
        with pytest.raises(LedgerUnavailable, match="does not answer"):
            await ledger.entries()
        await ledger.close()
    with pytest.raises(LedgerUnavailable, match="check the address and that the server runs"):
        await Ledger.open("redis://127.0.0.1:1", owner="o")


async def test_one_server_a_folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stretto.ledger.server.LOCK_TIMEOUT_S", 0.1)
    async with EmbeddedServer(folder=tmp_path) as server:
        with pytest.raises(LedgerRefused, match="in use by another process"):
            await EmbeddedServer(folder=tmp_path).start()
        await server.kill()
        await server.start()


async def test_a_deep_folder_gets_its_socket_elsewhere(tmp_path: pathlib.Path) -> None:
    async with EmbeddedServer(folder=tmp_path / ("d" * 120)) as server:
        socket = pathlib.Path(server.url.removeprefix("unix://"))
        assert os.path.exists(socket)  # noqa: ASYNC240
    assert not os.path.exists(socket.parent)  # noqa: ASYNC240


async def test_a_program_that_does_not_run_is_one_line(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "valkey-server"
    program.write_text("not a program")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_binary() == program
    with pytest.raises(LedgerRefused, match="cannot be run"):
        await EmbeddedServer(folder=tmp_path / "data").start()
    program.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(LedgerRefused, match="ended with code 3"):
        await EmbeddedServer(folder=tmp_path / "data").start()


async def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: pathlib.Path) -> None:
    with pytest.raises(LedgerRefused, match="cannot be used: "):
        await EmbeddedServer(folder=pathlib.Path("/proc/none/ledger")).start()


def test_no_program_at_all_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(LedgerRefused, match="set --redis-url"):
        find_binary()


PARENT = """
import asyncio, pathlib, sys
from stretto.ledger.server import EmbeddedServer
async def main():
    server = EmbeddedServer(folder=pathlib.Path(sys.argv[1]))
    await server.start()
    print(server.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


async def test_the_server_dies_with_its_parent(tmp_path: pathlib.Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    os.kill(parent.pid, signal.SIGKILL)
    await parent.wait()
    async with EmbeddedServer(folder=tmp_path) as successor:
        assert successor.pid != pid


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("maxmemory_policy", "allkeys-lru", "evicts keys"),
        ("redis_version", "6.2.14", "is version 6.2.14; Redis 7.0 or any Valkey"),
        ("role", "slave", "is a replica"),
    ],
)
def test_servers_that_must_not_hold_a_ledger(key: str, value: str, words: str) -> None:
    good = {"maxmemory_policy": "noeviction", "redis_version": "7.2.4", "role": "master"}
    assert server_problem(good) == ""
    assert words in server_problem(good | {key: value})


async def test_a_server_that_evicts_is_refused(tmp_path: pathlib.Path) -> None:
    async with EmbeddedServer(folder=tmp_path) as server:
        async with redis.asyncio.Redis.from_url(server.url) as other:
            await other.config_set("maxmemory-policy", "allkeys-lru")
        with pytest.raises(LedgerRefused, match="set maxmemory-policy noeviction"):
            await Ledger.open(server.url, owner="o")


async def test_a_wrong_login_is_refused_without_showing_it(tmp_path: pathlib.Path) -> None:
    async with EmbeddedServer(folder=tmp_path) as server:
        async with redis.asyncio.Redis.from_url(server.url) as other:
            await other.config_set("requirepass", "secret")
        with pytest.raises(LedgerRefused, match="refuses our login"):
            await Ledger.open(server.url, owner="o")
        wrong = server.url.replace("unix://", "unix://:hunter2@")
        with pytest.raises(LedgerRefused, match="refuses our login") as caught:
            await Ledger.open(wrong, owner="o")
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://localhost", "localhost:6379", "redis://h:port", "foo"])
async def test_a_malformed_url_is_one_line(url: str) -> None:
    with pytest.raises(LedgerRefused, match="use redis://host:port/db or unix://path") as caught:
        await Ledger.open(url, owner="o")
    assert f"--redis-url {url.removesuffix(':port')}: " in str(caught.value)


async def test_a_malformed_url_is_told_without_its_password() -> None:
    with pytest.raises(LedgerRefused, match="--redis-url host:6379: ") as caught:
        await Ledger.open("user:hunter2@host:6379", owner="o")
    assert "hunter2" not in str(caught.value)


async def test_a_full_server_refuses_and_goes_on_when_it_has_room(tmp_path: pathlib.Path) -> None:
    async with EmbeddedServer(folder=tmp_path) as server:
        ledger = await Ledger.open(server.url, owner="o", first_pause_s=0.001)
        await ledger.install(1)
        await ledger.set_accounts([node("n1")])
        async with redis.asyncio.Redis.from_url(server.url) as other:
            await other.config_set("maxmemory", "1")
            with pytest.raises(LedgerUnavailable, match=r"refuses a call: .*maxmemory"):
                await ledger.reserve([unit("u1", "n1")])
            await other.config_set("maxmemory", "0")
        assert (await ledger.reserve([unit("u1", "n1")]))[0].kind.name == "GRANTED"
        await ledger.close()
