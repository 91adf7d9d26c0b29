"""The reflector against a server that does every odd thing an API server or a network may do."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from binder.watches import MAX_SILENCE_S
from stretto.kube.client import KubeClient
from stretto.kube.errors import KubeRefused, WatchStaleError
from stretto.kube.readers import BareObject, LineBuffer
from stretto.kube.reflector import SILENCE_S, WATCH_S, Reflector
from tests.kube.api_server import (
    Handler,
    answer,
    bookmark,
    client_of,
    hang_up,
    line,
    page,
    pod,
    refusal,
    serving,
    stream,
)


class Typed(BareObject):
    spec: dict[str, int] = msgspec.field(default_factory=dict)


GONE_LINE = line("ERROR", {"kind": "Status", "metadata": {}, "code": 410, "reason": "Expired"})
Told = tuple[str, str, str, int]


def reflector_of(client: KubeClient, **settings: Any) -> Reflector[BareObject]:
    settings = {"silence_s": 5.0, "rng": random.Random(1), **settings}
    return Reflector(client, "/api/v1/pods", kind=BareObject, **settings)


async def told_by(reflector: Reflector[BareObject], count: int) -> list[Told]:
    """The first ``count`` events, as (kind, name, uid, version)."""
    out: list[Told] = []
    async with asyncio.timeout(10), aclosing(reflector.run()) as batches:
        async for batch in batches:
            assert batch, "an empty batch"
            out += [(e.kind.name, e.name, e.uid, e.resource_version) for e in batch]
            if len(out) >= count:
                break
    return out


async def told(*script: Handler, count: int, **settings: Any) -> list[Told]:
    async with serving(*script) as server, client_of(server) as client:
        return await told_by(reflector_of(client, **settings), count)


async def test_lists_in_pages_then_watches_from_the_lists_version() -> None:
    script = [
        page(10, pod("a", 1), more="t1"),
        page(10, pod("b", 2)),
        stream(line("ADDED", pod("c", 11)) + line("DELETED", pod("a", 12))),
    ]
    async with serving(*script) as server, client_of(server) as client:
        reflector = reflector_of(client, page=1, params={"fieldSelector": "spec.nodeName="})
        assert not reflector.synced
        assert await told_by(reflector, 5) == [
            ("ADDED", "a", "uid-a", 1),
            ("ADDED", "b", "uid-b", 2),
            ("SYNCED", "", "", 10),
            ("ADDED", "c", "uid-c", 11),
            ("DELETED", "a", "uid-a", 12),
        ]
        assert reflector.synced
        assert reflector.known == 2
        first, second = server.queries(watch=False)
        assert first == {"limit": "1", "fieldSelector": "spec.nodeName="}
        assert second["continue"] == "t1"
        (watch,) = server.queries(watch=True)
        assert watch["resourceVersion"] == "10"
        assert watch["allowWatchBookmarks"] == "true"
        assert 20 <= int(watch["timeoutSeconds"]) <= 25


async def test_lines_cut_anywhere_are_joined() -> None:
    text = line("ADDED", pod("a", 11, note="ä" * 50)) + line("MODIFIED", pod("a", 12))
    pieces = [text[at : at + 7] for at in range(0, len(text), 7)]
    assert (await told(page(10), stream(*pieces), count=3))[1:] == [
        ("ADDED", "a", "uid-a", 11),
        ("MODIFIED", "a", "uid-a", 12),
    ]


async def test_a_gone_page_starts_the_list_again_without_repeating_what_was_told() -> None:
    script = [
        page(10, pod("a", 1), pod("b", 2), more="t1"),
        refusal(410, "the provided continue parameter is too old", "Expired"),
        page(20, pod("a", 1), pod("c", 15)),
        stream(),
    ]
    assert await told(*script, count=5) == [
        ("ADDED", "a", "uid-a", 1),
        ("ADDED", "b", "uid-b", 2),
        ("ADDED", "c", "uid-c", 15),
        ("DELETED", "b", "uid-b", 0),
        ("SYNCED", "", "", 20),
    ]


@pytest.mark.parametrize("gone", [stream(GONE_LINE), refusal(410, "too old", "Expired")])
async def test_a_watch_that_is_too_old_leads_to_a_new_list_with_the_deletions_found_out(
    gone: Handler,
) -> None:
    script = [
        page(10, pod("a", 1), pod("b", 2), pod("c", 3)),
        gone,
        page(30, pod("b", 2), pod("c", 25), pod("d", 26)),
        stream(line("MODIFIED", pod("d", 31))),
    ]
    assert (await told(*script, count=9))[4:] == [
        ("MODIFIED", "c", "uid-c", 25),
        ("ADDED", "d", "uid-d", 26),
        ("DELETED", "a", "uid-a", 0),
        ("SYNCED", "", "", 30),
        ("MODIFIED", "d", "uid-d", 31),
    ]


async def test_what_came_in_one_piece_with_an_error_is_told() -> None:
    """It was seen, so that the list that follows says nothing of it."""
    lines = line("ADDED", pod("b", 11)) + line("DELETED", pod("a", 12))
    script = [
        page(10, pod("a", 1)),
        stream(lines + GONE_LINE),
        page(30, pod("b", 11)),
        stream(line("ADDED", pod("c", 31))),
    ]
    assert (await told(*script, count=6))[2:] == [
        ("ADDED", "b", "uid-b", 11),
        ("DELETED", "a", "uid-a", 12),
        ("SYNCED", "", "", 30),
        ("ADDED", "c", "uid-c", 31),
    ]


async def test_a_watch_goes_on_from_the_last_bookmark() -> None:
    script = [
        page(10),
        stream(line("ADDED", pod("a", 12)), bookmark(40), then="break"),
        stream(line("MODIFIED", pod("a", 41))),
    ]
    async with serving(*script) as server, client_of(server) as client:
        assert (await told_by(reflector_of(client), 3))[1:] == [
            ("ADDED", "a", "uid-a", 12),
            ("MODIFIED", "a", "uid-a", 41),
        ]
        assert [q["resourceVersion"] for q in server.queries(watch=True)] == ["10", "40"]


async def test_silence_counts_as_a_broken_connection() -> None:
    script = [page(10), stream(line("ADDED", pod("a", 11))), stream(line("ADDED", pod("b", 12)))]
    async with serving(*script) as server, client_of(server) as client:
        reflector = reflector_of(client, silence_s=0.2)
        assert len(await told_by(reflector, 3)) == 3
        assert [q["resourceVersion"] for q in server.queries(watch=True)] == ["10", "11"]
        assert reflector.relists == 1


def test_a_quiet_watch_is_heard_before_it_counts_as_dead() -> None:
    """By the bookmark before the end that is asked for, 2 s before it (tests/contract)."""
    assert 0 < WATCH_S[0] < WATCH_S[1] < SILENCE_S < MAX_SILENCE_S <= 30.0


async def test_older_and_repeated_lines_are_dropped() -> None:
    lines = (
        line("ADDED", pod("a", 5))  # the list has it already, by its version
        + line("MODIFIED", pod("b", 12))
        + line("MODIFIED", pod("b", 12))
        + line("MODIFIED", pod("b", 11))
        + line("DELETED", pod("b", 11))
        + line("DELETED", pod("z", 13))
        + line("MODIFIED", pod("b", 14))
    )
    async with serving(page(10, pod("b", 7)), stream(lines)) as server, client_of(server) as client:
        reflector = reflector_of(client)
        assert (await told_by(reflector, 4))[2:] == [
            ("MODIFIED", "b", "uid-b", 12),
            ("MODIFIED", "b", "uid-b", 14),
        ]
        assert reflector.dropped == 5


async def test_a_name_that_was_deleted_and_taken_again_is_split_in_two() -> None:
    lines = line("MODIFIED", pod("a", 15, uid="second")) + line(
        "DELETED", pod("a", 16, uid="first")
    )
    got = await told(
        page(10, pod("a", 5, uid="first")),
        stream(lines, GONE_LINE),
        page(20, pod("a", 18, uid="third")),
        stream(),
        count=7,
    )
    assert got[2:] == [
        ("DELETED", "a", "first", 0),
        ("ADDED", "a", "second", 15),
        ("DELETED", "a", "second", 0),
        ("ADDED", "a", "third", 18),
        ("SYNCED", "", "", 20),
    ]


async def test_after_a_restored_backup_the_list_is_believed() -> None:
    """Versions go backwards then; the list is the truth all the same."""
    got = await told(
        page(100, pod("a", 90)), stream(GONE_LINE), page(50, pod("a", 40)), stream(), count=4
    )
    assert got[2:] == [("MODIFIED", "a", "uid-a", 40), ("SYNCED", "", "", 50)]


async def test_a_broken_object_harms_no_other() -> None:
    lines = line("ADDED", pod("a", 11)) + line("ADDED", pod("odd", 12, spec=7)) + bookmark(13)
    lines += line("ADDED", pod("b", 14))

    async with (
        serving(page(10, pod("listed", 3, spec="x")), stream(lines)) as server,
        client_of(server) as client,
    ):
        reflector: Reflector[Typed] = Reflector(client, "/api/v1/pods", kind=Typed)
        got = await told_by(reflector, 5)  # type: ignore[arg-type]
    assert [(kind, name) for kind, name, _, _ in got] == [
        ("UNREADABLE", "listed"),
        ("SYNCED", ""),
        ("ADDED", "a"),
        ("UNREADABLE", "odd"),
        ("ADDED", "b"),
    ]


async def test_a_broken_object_is_there_until_its_deletion_is_told() -> None:
    """A list read anew does not take it for deleted, and its end is told, decodable or not."""
    broken = {"spec": "x"}
    script = [
        page(10, pod("a", 3), pod("b", 4, **broken), pod("c", 5, **broken)),
        stream(line("MODIFIED", pod("a", 11, **broken)), GONE_LINE),
        page(20, pod("a", 11, **broken), pod("b", 4, **broken), pod("c", 5, **broken)),
        stream(line("DELETED", pod("b", 21, **broken)) + line("MODIFIED", pod("c", 22))),
    ]
    async with serving(*script) as server, client_of(server) as client:
        reflector: Reflector[Typed] = Reflector(client, "/api/v1/pods", kind=Typed)
        got = await told_by(reflector, 8)  # type: ignore[arg-type]
    assert [(kind, name) for kind, name, _, _ in got] == [
        ("ADDED", "a"),
        ("UNREADABLE", "b"),
        ("UNREADABLE", "c"),
        ("SYNCED", ""),
        ("UNREADABLE", "a"),
        ("SYNCED", ""),
        ("DELETED", "b"),
        ("MODIFIED", "c"),
    ]


async def test_trouble_is_waited_out_and_named() -> None:
    script = [
        hang_up,
        refusal(403, "pods is forbidden", "Forbidden"),
        answer(200, b"<html>not an API server"),
        refusal(429, "", "", **{"Retry-After": "0"}),
        page(10, pod("a", 1)),
        refusal(503, "starting"),
        page(10, pod("a", 1)),
        stream(line("ADDED", pod("b", 11))),
    ]
    async with serving(*script) as server, client_of(server) as client:
        reflector = reflector_of(client)
        seen = set()
        wait = reflector._backoff.next_s

        def noting(*, at_least_s: float = 0.0) -> float:
            seen.add(reflector.problem.split(":")[0])
            return min(wait(at_least_s=at_least_s), 0.01)

        reflector._backoff.next_s = noting  # type: ignore[method-assign]
        got = await told_by(reflector, 4)
        assert got[-1] == ("ADDED", "b", "uid-b", 11)
        assert reflector.problem == ""
        assert "list /api/v1/pods" in seen
        assert "watch /api/v1/pods" in seen


async def test_a_watch_that_is_open_again_is_no_trouble_though_it_says_nothing() -> None:
    throttled = refusal(429, "", "", **{"Retry-After": "0"})
    script = [page(10, pod("a", 1)), throttled, stream()]
    async with serving(*script) as server, client_of(server) as client:
        reflector = reflector_of(client)
        seen: list[str] = []
        wait = reflector._wait

        async def noting(problem: str, at_least_s: float) -> None:
            await wait(problem, 0.0)
            seen.append(reflector.problem)

        reflector._wait = noting  # type: ignore[method-assign]
        telling = asyncio.create_task(told_by(reflector, 3))  # the third never comes
        async with asyncio.timeout(10):
            while not seen or reflector.problem:
                await asyncio.sleep(0.01)
        assert "watch /api/v1/pods: 429" in seen[0]
        assert len(server.requests) == 3
        assert not telling.done()
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)


async def test_an_endless_line_is_given_up() -> None:
    buffer = LineBuffer(limit=1000)
    assert buffer.feed(b"x" * 900) == b""
    with pytest.raises(KubeRefused, match="longer than 1000 bytes"):
        buffer.feed(b"x" * 200)


async def watching(reflector: Reflector[BareObject]) -> None:
    async for _ in reflector.run():
        pass


@pytest.mark.parametrize("shown", [True, False])
async def test_a_watch_is_confirmed_once_it_shows_what_a_read_shows(shown: bool) -> None:
    """The read is a list of its own; the watch is either up with it or never gets there."""
    late = line("MODIFIED", pod("a", 12)) if shown else b""
    script = [page(10, pod("a", 1)), stream(late), page(12, pod("a", 12))]
    async with serving(*script) as server, client_of(server) as client:
        reflector = reflector_of(client)
        task = asyncio.create_task(watching(reflector))
        async with asyncio.timeout(5):
            while not server.queries(watch=True):
                await asyncio.sleep(0.01)
        if shown:
            await reflector.confirm(timeout_s=5.0)
        else:
            with pytest.raises(WatchStaleError, match="behind the API server"):
                await reflector.confirm(timeout_s=0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
