"""The links of the fault matrix do what their scenarios rely on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.e2e.stack import until
from tests.matrix.http_link import Act, HttpLink
from tests.matrix.link import Link

BIND = b"POST /api/v1/namespaces/default/pods/p/binding HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"
READ = b"GET /api/v1/pods HTTP/1.1\r\n\r\n"
WATCH = b"GET /api/v1/pods?watch=1 HTTP/1.1\r\n\r\n"
CREATED = b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"


class Server:
    """Answers requests in order and keeps them."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(2) if head.startswith(b"POST") else b""
                self.requests.append(head + body)
                writer.write(CREATED)
        writer.close()


@contextlib.asynccontextmanager
async def link_to(server: Server) -> AsyncIterator[HttpLink]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        async with HttpLink("binder>api", f"127.0.0.1:{port}", token="secret") as link:
            yield link


@contextlib.asynccontextmanager
async def client_of(
    link: Link,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = link.address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()


async def answer(reader: asyncio.StreamReader) -> bytes:
    """The next answer's head, b"" if the connection ends instead."""
    try:
        async with asyncio.timeout(5):
            return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


async def test_requests_pass_whole_and_with_credentials() -> None:
    server = Server()
    async with link_to(server) as link, client_of(link) as (reader, writer):
        for request in (BIND, READ):
            writer.write(request)
            assert await answer(reader) == CREATED
    assert [request.split()[0] for request in server.requests] == [b"POST", b"GET"]
    assert all(b"Authorization: Bearer secret\r\n" in request for request in server.requests)


async def test_a_held_request_arrives_after_its_sender_has_gone() -> None:
    server = Server()
    async with link_to(server) as link:
        link.on(Act.HOLD)
        async with client_of(link) as (_, writer):
            writer.write(BIND)
            await until(lambda: link.held == 1, timeout_s=5, what="held")
        assert server.requests == []
        link.hold_no_more()
        async with client_of(link) as (reader, writer):
            writer.write(BIND)
            assert await answer(reader) == CREATED
        link.release()
        await until(lambda: link.late == [201], timeout_s=5, what="delivered late")
    assert len(server.requests) == 2


@pytest.mark.parametrize(("act", "arrive"), [(Act.LOSE, 0), (Act.SWALLOW, 1), (Act.REPEAT, 2)])
async def test_a_bind_is_lost_unanswered_or_repeated_and_others_are_not(
    act: Act, arrive: int
) -> None:
    server = Server()
    async with link_to(server) as link:
        link.on(act)
        async with client_of(link) as (reader, writer):
            writer.write(READ)
            assert await answer(reader) == CREATED
            writer.write(BIND)
            assert await answer(reader) == (CREATED if act is Act.REPEAT else b"")
        await until(lambda: len(server.requests) == 1 + arrive, timeout_s=5, what="arrived")
        assert link.counts[act] == 1


async def test_the_link_itself_refuses_so_many_times() -> None:
    server = Server()
    async with link_to(server) as link, client_of(link) as (reader, writer):
        link.on(Act.REFUSE, times=1)
        writer.write(BIND)
        head = await answer(reader)
        assert head.startswith(b"HTTP/1.1 429 ")
        assert b"Retry-After: 1\r\n" in head
        await reader.readexactly(int(head.rpartition(b"Content-Length: ")[2]))
        writer.write(BIND)
        assert await answer(reader) == CREATED
    assert len(server.requests) == 1


async def test_an_open_watch_falls_silent_and_a_new_one_speaks() -> None:
    server = Server()
    async with link_to(server) as link, client_of(link) as (old, writer):
        writer.write(WATCH)
        assert await answer(old) == CREATED
        link.silence()
        writer.write(WATCH)
        await until(lambda: link.counts["event withheld"] == 1, timeout_s=5, what="withheld")
        async with client_of(link) as (new, other):
            other.write(WATCH)
            assert await answer(new) == CREATED


async def test_a_black_hole_keeps_what_was_sent_until_it_is_healed() -> None:
    server = Server()
    async with link_to(server) as link, client_of(link) as (reader, writer):
        link.black("up")
        writer.write(READ)
        await until(lambda: link.counts["black-holed"] == 1, timeout_s=5, what="black-holed")
        assert server.requests == []
        link.heal()
        assert await answer(reader) == CREATED


async def test_delayed_pieces_keep_their_order() -> None:
    server = Server()
    async with link_to(server) as link, client_of(link) as (reader, writer):
        link.delay_s = (0.0, 0.05)
        for _ in range(20):
            writer.write(READ)
            writer.write(BIND)
        for _ in range(40):
            assert await answer(reader) == CREATED
    assert [r.split()[0] for r in server.requests] == [b"GET", b"POST"] * 20
    assert link.counts["delayed"]


async def test_a_reply_is_dropped_with_its_connection_and_a_cut_ends_all() -> None:
    server = Server()
    async with link_to(server) as http, Link("binder>ledger", http.target) as link:
        link.drop_replies = 1
        async with client_of(link) as (reader, writer):
            writer.write(READ)
            assert await answer(reader) == b""
        assert len(server.requests) == 1
        async with client_of(link) as (reader, writer):
            writer.write(READ)
            assert await answer(reader) == CREATED
            link.cut()
            assert await answer(reader) == b""
        assert link.counts == {"reply dropped": 1, "reset": 1}
