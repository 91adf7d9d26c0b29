"""Requests in a row: one connection, answers in order, and what is left when it breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from stretto.kube.connections import ConnectionPool
from stretto.kube.http_answers import Reply
from stretto.kube.ways import NotOpenedError

ROW = [b"POST /%d HTTP/1.1\r\nContent-Length: 0\r\n\r\n" % number for number in range(5)]


def sized(number: int) -> bytes:
    body = b"answer %d" % number
    return b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def chunked(number: int) -> bytes:
    body = b"answer %d" % number
    head = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n"
    return b"%b%x\r\n%b\r\n0\r\n\r\n" % (head, len(body), body)


class Server:
    """Reads a row of five, then writes its pieces; an empty one hangs up."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                for _ in ROW:
                    await reader.readuntil(b"\r\n\r\n")
                for piece in self.pieces:
                    if not piece:
                        return
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.001)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def pool_on(*pieces: bytes) -> AsyncIterator[tuple[Server, ConnectionPool]]:
    server = Server(*pieces)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    pool = ConnectionPool("127.0.0.1", port, limit=1, tls=None)
    try:
        yield server, pool
    finally:
        pool.close()
        listening.close()


def texts(replies: Sequence[Reply]) -> list[bytes]:
    return [reply.body for reply in replies]


@pytest.mark.parametrize("size", [1, 7, 60, 10_000])
async def test_answers_come_in_order_however_they_are_cut(size: int) -> None:
    data = b"".join(chunked(n) if n % 2 else sized(n) for n in range(5))
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    async with pool_on(*pieces) as (server, pool):
        for _ in range(2):
            replies = await pool.request_row(ROW, timeout_s=30)
            assert texts(replies) == [b"answer %d" % number for number in range(5)]
        assert server.connections == 1, "the second row goes over the first one's connection"


async def test_a_connection_that_breaks_leaves_the_rest_without_an_answer() -> None:
    async with pool_on(sized(0) + sized(1) + sized(2)[:-2], b"") as (server, pool):
        for row in (1, 2):
            replies = await pool.request_row(ROW, timeout_s=30)
            assert texts(replies) == [b"answer 0", b"answer 1"]
            assert server.connections == row, "a broken connection is not used again"


async def test_a_server_that_closes_after_an_answer_has_answered_that_one() -> None:
    last = sized(0).replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)
    async with pool_on(last) as (_, pool):
        assert texts(await pool.request_row(ROW, timeout_s=30)) == [b"answer 0"]


async def test_who_is_not_known_on_a_connection_asks_on_another() -> None:
    refused = b"".join(map(sized, range(4))) + sized(4).replace(b"201 Created", b"401 Unauthorized")
    async with pool_on(refused) as (server, pool):
        for _ in range(2):
            replies = await pool.request_row(ROW, timeout_s=5)
            assert [reply.status for reply in replies] == [201] * 4 + [401]
        assert server.connections == 2


@pytest.mark.parametrize("more", [sized(5), b"H"])
async def test_what_comes_beyond_the_answers_never_meets_the_next_row(more: bytes) -> None:
    data = b"".join(map(sized, range(5))) + more
    async with pool_on(data) as (server, pool):
        for row in (1, 2):
            replies = await pool.request_row(ROW, timeout_s=30)
            assert texts(replies) == [b"answer %d" % number for number in range(5)]
            assert server.connections == row


async def test_silence_ends_in_time_with_what_has_come() -> None:
    async with pool_on(sized(0)) as (_, pool):
        assert texts(await pool.request_row(ROW, timeout_s=0.2)) == [b"answer 0"]


async def test_a_cancelled_row_closes_its_connection() -> None:
    async with pool_on(sized(0)) as (server, pool):
        sending = asyncio.create_task(pool.request_row(ROW, timeout_s=30))
        while not server.connections:
            await asyncio.sleep(0.001)
        sending.cancel()
        assert isinstance((await asyncio.gather(sending, return_exceptions=True))[0], BaseException)
        assert not pool._rows


async def test_no_server_means_that_nothing_was_sent() -> None:
    async with pool_on() as (_, pool):
        pool._port = 1
        with pytest.raises(NotOpenedError):
            await pool.request_row(ROW, timeout_s=5)
