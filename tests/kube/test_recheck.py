"""What a watch has lost is found, and what it has not lost is never called so."""

from __future__ import annotations

import asyncio

from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from stretto.kube.readers import BareObject
from stretto.kube.recheck import Recheck
from stretto.kube.reflections import Event
from stretto.kube.reflector import Reflector
from stretto.kube.sightings import Sightings
from tests.kube.api_server import bookmark, client_of, line, page, pod, serving, stream
from tests.kube.test_reflector import Told, told_by
from tests.kube.test_sightings import History, Line, Mirror, writes

Steps = list[tuple[str, str, bool]]


@given(
    before=st.lists(writes, max_size=20),
    unheard=st.lists(writes, max_size=10),
    after=st.lists(writes, max_size=10),
    lost=st.none() | st.integers(0, 40),
)
def test_each_difference_is_explained_by_a_line_or_lost(
    before: Steps, unheard: Steps, after: Steps, lost: int | None
) -> None:
    """Lines come before the read, while its pages are read, and after it."""
    history, mirror = History(), Mirror()
    sightings: Sightings[str] = Sightings()
    sightings.begin_list()
    sightings.end_list(history.version)
    told_to = 0

    def write(steps: Steps) -> None:
        for _, name, delete in steps:
            history.write(name, delete=delete)

    def tell() -> None:
        nonlocal told_to
        for number in range(told_to, len(history.lines)):
            if number != lost:
                mirror.take(_passed_on(sightings, history.lines[number]))
        told_to = len(history.lines)

    write(before)
    tell()
    check = Recheck(sightings)
    write(unheard)
    listed, version = dict(history.objects), history.version
    for name, (_, object_version) in listed.items():
        check.listed(("", name), object_version)
        tell()
    check.end(version)
    tell()
    assert bool(check.left()) == (mirror.objects != history.objects)
    if mirror.objects == history.objects:
        write(after)
        assert check.left() == [], "what the read did not show is no concern of it"
    elif lost is not None and lost < told_to:
        write(after)
        sightings.begin_list()
        out: list[Event[str]] = []
        for name, (uid, object_version) in history.objects.items():
            sightings.listed(out, ("", name), uid, object_version, name)
        mirror.take([*out, *sightings.end_list(history.version)])
        assert mirror.objects == history.objects, "a list mends it"


def _passed_on(sightings: Sightings[str], told: Line) -> list[Event[str]]:
    kind, name, uid, version = told
    out: list[Event[str]] = []
    take = sightings.deleted if kind == "DELETED" else sightings.changed
    take(out, ("", name), uid, version, name)
    return out


async def _told_with_a_recheck(*lines: bytes, count: int) -> tuple[list[Told], int, int]:
    """What a consumer is told, losses and lists, where the watch shows these lines only of what
    became of a and b: a was deleted, c was added."""
    listed = 0

    async def serve(request: web.Request) -> web.StreamResponse:
        nonlocal listed
        if "watch" in request.query:
            await asyncio.sleep(0.02)
            return await stream(*lines, bookmark(20), then="end")(request)
        listed += 1
        if listed == 1:
            return await page(10, pod("a", 1), pod("b", 2))(request)
        return await page(20, pod("b", 2), pod("c", 15))(request)

    async with serving(serve) as server, client_of(server) as client:
        reflector = Reflector(client, "/api/v1/pods", kind=BareObject)
        checking = asyncio.create_task(reflector.recheck(every_s=0.05))
        try:
            told = await told_by(reflector, count)
            async with asyncio.timeout(10):
                while listed < 3:
                    await asyncio.sleep(0.01)
        finally:
            checking.cancel()
            await asyncio.gather(checking, return_exceptions=True)
        return told, reflector.losses, reflector.relists


async def test_what_a_watch_lost_is_listed_anew_and_counted() -> None:
    told, losses, relists = await _told_with_a_recheck(count=6)
    assert told == [
        ("ADDED", "a", "uid-a", 1),
        ("ADDED", "b", "uid-b", 2),
        ("SYNCED", "", "", 10),
        ("ADDED", "c", "uid-c", 15),
        ("DELETED", "a", "uid-a", 0),
        ("SYNCED", "", "", 20),
    ]
    assert (losses, relists) == (1, 2)


async def test_a_watch_that_lost_nothing_is_left_alone() -> None:
    lines = (line("DELETED", pod("a", 14)), line("ADDED", pod("c", 15)))
    told, losses, relists = await _told_with_a_recheck(*lines, count=5)
    assert told[3:] == [("DELETED", "a", "uid-a", 14), ("ADDED", "c", "uid-c", 15)]
    assert (losses, relists) == (0, 1)
