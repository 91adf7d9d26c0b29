"""A watch's connection: what comes in pieces is passed on, and a slow reader is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stretto.kube import streams
from stretto.kube.connections import ConnectionPool
from stretto.kube.http_answers import BodyReader
from stretto.kube.streams import Stream
from stretto.kube.ways import NotOpenedError

REQUEST = b"GET / HTTP/1.1\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
Serve = Callable[[asyncio.StreamWriter], Awaitable[None]]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@given(
    pieces=st.lists(st.binary(min_size=1, max_size=40), max_size=6),
    cuts=st.lists(st.integers(1, 30)),
    rest=st.binary(max_size=3),
)
def test_a_body_is_the_same_however_it_is_cut(
    pieces: list[bytes], cuts: list[int], rest: bytes
) -> None:
    body = b"".join(pieces)
    sized = b"HTTP/1.1 410 Gone\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    for data in (sized, CHUNKED + b"".join(map(chunk, pieces)) + END):
        reader, got, at = BodyReader(), b"", 0
        for size in [*cuts, len(data)]:
            assert not reader.ended or at >= len(data)
            got += reader.feed(data[at : at + size])
            at += size
        assert reader.ended
        assert got == body
        assert reader.feed(rest) == b""
        assert reader.rest == rest


@asynccontextmanager
async def stream_of(serve: Serve, *, silence_s: float = 10) -> AsyncIterator[Stream]:
    """A stream from a server that does this after a request."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            assert await reader.readuntil(b"\r\n\r\n") == REQUEST
            await serve(writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    listener = await asyncio.start_server(connected, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    pool = ConnectionPool("127.0.0.1", port, limit=1, tls=None)
    try:
        async with pool.stream(REQUEST, connect_s=10, silence_s=silence_s) as stream:
            yield stream
    finally:
        pool.close()
        listener.close()
        await asyncio.sleep(0.02)


async def read_into(got: list[bytes], stream: Stream) -> None:
    async for piece in stream.pieces():
        got.append(piece)  # noqa: PERF401 (what came before an error has to be kept)


async def test_the_head_and_then_the_pieces_until_the_end() -> None:
    async def serve(writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED + chunk(b"one") + chunk(b"two"))
        await asyncio.sleep(0.01)
        writer.write(chunk(b"three") + END)
        await asyncio.sleep(5)  # the body has ended all the same

    async with stream_of(serve) as stream:
        head = await stream.head()
        assert head.status == 200
        assert b"".join([piece async for piece in stream.pieces()]) == b"onetwothree"


async def test_what_came_before_a_break_is_passed_on_before_the_error() -> None:
    async def serve(writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED + chunk(b"one") + b"5\r\ntw")

    async with stream_of(serve) as stream:
        await stream.head()
        got: list[bytes] = []
        with pytest.raises(ConnectionResetError):
            await read_into(got, stream)
        assert b"".join(got) == b"onetw"


async def test_silence_is_an_error() -> None:
    async def serve(writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED + chunk(b"one"))
        await asyncio.sleep(5)

    async with stream_of(serve, silence_s=0.05) as stream:
        with pytest.raises(TimeoutError):
            await read_into([], stream)


async def test_a_server_that_says_nothing_at_all_is_an_error() -> None:
    async with stream_of(lambda _: asyncio.sleep(5), silence_s=0.05) as stream:
        with pytest.raises(TimeoutError):
            await stream.head()


async def test_a_slow_reader_holds_the_server_up_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its pause counts as no silence of the server either."""
    monkeypatch.setattr(streams, "HELD_MAX", 10_000)
    monkeypatch.setattr(streams, "PIECE_MAX", 4_000)
    total, sent = 20_000_000, 0

    async def serve(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(CHUNKED)
        while sent < total:
            writer.write(chunk(b"x" * 10_000))
            await writer.drain()
            sent += 10_000
        writer.write(END)
        await writer.drain()

    async with stream_of(serve, silence_s=1) as stream:
        await stream.head()
        await asyncio.sleep(1.5)
        assert sent < total  # the sockets' buffers are full
        assert stream._held_size < 1_000_000
        sizes = [len(piece) async for piece in stream.pieces()]
    assert sum(sizes) == total
    assert max(sizes) <= 4_000


async def test_a_server_that_is_not_there_was_sent_nothing() -> None:
    listener = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    listener.close()
    await listener.wait_closed()
    pool = ConnectionPool("127.0.0.1", port, limit=1, tls=None)
    with pytest.raises(NotOpenedError):
        async with pool.stream(REQUEST, connect_s=5, silence_s=5):
            pass
