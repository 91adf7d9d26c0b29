"""The connection pool: what it reuses, what it closes, and who waits for whom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from stretto.kube import connections
from stretto.kube.connections import ConnectionPool
from stretto.kube.ways import NotOpenedError

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REQUEST = b"GET / HTTP/1.1\r\n\r\n"


class Server:
    """Answers each request when the test says so; a request is any piece of data."""

    def __init__(self) -> None:
        self.connections = 0
        self.open = 0
        self.requests = 0
        self.answer: bytes | None = OK
        self.asked = asyncio.Event()
        self.release = asyncio.Event()
        self.release.set()
        self.hang_up_after = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            while await reader.read(65536):
                self.requests += 1
                self.asked.set()
                await self.release.wait()
                if self.answer is not None:
                    writer.write(self.answer)
                if self.hang_up_after:
                    break
        except ConnectionError:
            pass
        finally:
            self.open -= 1
            writer.close()


@asynccontextmanager
async def pool_of(limit: int = 2) -> AsyncIterator[tuple[Server, ConnectionPool]]:
    server = Server()
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    pool = ConnectionPool("127.0.0.1", port, limit=limit, tls=None)
    try:
        yield server, pool
    finally:
        server.release.set()
        pool.close()
        listener.close()
        await asyncio.sleep(0.02)


async def test_one_connection_serves_requests_in_a_row() -> None:
    async with pool_of() as (server, pool):
        for _ in range(5):
            reply = await pool.request(REQUEST, timeout_s=5)
            assert (reply.status, reply.body) == (200, b"ok")
        assert (server.connections, server.requests) == (1, 5)


async def test_who_is_not_known_on_a_connection_asks_on_another() -> None:
    """It keeps the certificate that it was opened with, when that has expired and its file holds
    the next one too."""
    async with pool_of() as (server, pool):
        server.answer = OK.replace(b"200 OK", b"401 Unauthorized")
        assert (await pool.request(REQUEST, timeout_s=5)).status == 401
        server.answer = OK
        assert (await pool.request(REQUEST, timeout_s=5)).status == 200
        assert server.connections == 2


async def test_no_more_connections_than_the_limit_and_all_are_served() -> None:
    async with pool_of(limit=3) as (server, pool):
        replies = await asyncio.gather(*(pool.request(REQUEST, timeout_s=5) for _ in range(50)))
        assert len(replies) == 50
        assert server.connections <= 3
        assert server.requests == 50


async def test_a_timed_out_request_closes_its_connection_and_frees_its_place() -> None:
    async with pool_of(limit=1) as (server, pool):
        server.release.clear()
        with pytest.raises(TimeoutError):
            await pool.request(REQUEST, timeout_s=0.05)
        server.release.set()
        assert (await pool.request(REQUEST, timeout_s=5)).status == 200
        assert server.connections == 2


async def test_a_cancelled_request_closes_its_connection_and_frees_its_place() -> None:
    async with pool_of(limit=1) as (server, pool):
        server.release.clear()
        task = asyncio.create_task(pool.request(REQUEST, timeout_s=5))
        waiting = asyncio.create_task(pool.request(REQUEST, timeout_s=5))
        gives_up = asyncio.create_task(pool.request(REQUEST, timeout_s=5))
        await server.asked.wait()
        gives_up.cancel()
        task.cancel()
        await asyncio.gather(task, gives_up, return_exceptions=True)
        server.release.set()
        assert (await waiting).status == 200
        assert server.connections == 2
        assert pool._free == 1


async def test_waiting_too_long_for_a_place_means_that_nothing_was_sent() -> None:
    async with pool_of(limit=1) as (server, pool):
        server.release.clear()
        first = asyncio.create_task(pool.request(REQUEST, timeout_s=5))
        await asyncio.sleep(0)
        with pytest.raises(NotOpenedError):
            await pool.request(REQUEST, timeout_s=0.05)
        server.release.set()
        assert (await first).status == 200
        assert server.requests == 1


async def test_a_server_that_closes_an_idle_connection_costs_nothing() -> None:
    async with pool_of() as (server, pool):
        server.hang_up_after = True
        for _ in range(3):
            assert (await pool.request(REQUEST, timeout_s=5)).status == 200
            await asyncio.sleep(0.02)
        assert server.connections == 3


async def test_a_connection_that_breaks_before_the_answer_is_an_error() -> None:
    async with pool_of() as (server, pool):
        server.answer, server.hang_up_after = None, True
        with pytest.raises(ConnectionResetError):
            await pool.request(REQUEST, timeout_s=5)
        server.answer, server.hang_up_after = (
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok",
            True,
        )
        with pytest.raises(ConnectionResetError):
            await pool.request(REQUEST, timeout_s=5)


async def test_an_old_idle_connection_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pool_of() as (server, pool):
        await pool.request(REQUEST, timeout_s=5)
        monkeypatch.setattr(connections, "IDLE_S", 0.0)
        await asyncio.sleep(0.01)
        await pool.request(REQUEST, timeout_s=5)
        assert server.connections == 2


@pytest.mark.parametrize("more", [b"stray", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno"])
async def test_bytes_beyond_the_answer_never_reach_the_next_request(more: bytes) -> None:
    async with pool_of() as (server, pool):
        server.answer = OK + more
        assert (await pool.request(REQUEST, timeout_s=5)).body == b"ok"
        server.answer = OK
        assert (await pool.request(REQUEST, timeout_s=5)).body == b"ok"
        assert server.connections == 2


async def test_no_server_means_that_nothing_was_sent() -> None:
    async with pool_of() as (_, pool):
        pool._port = 1
        with pytest.raises(NotOpenedError):
            await pool.request(REQUEST, timeout_s=5)
        assert pool._free == 2
