"""Whatever a server's history and however the watch is cut, a consumer's mirror stays right."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stretto.kube.reflections import Event, EventKind
from stretto.kube.sightings import Seen, Sightings

NAMES = ("a", "b", "c")
Line = tuple[str, str, str, int]
"""(type, name, uid, version)"""


class History:
    """A server of three names: every write is a line of the watch."""

    def __init__(self) -> None:
        self.version = 10
        self.objects: dict[str, tuple[str, int]] = {}
        self.lines: list[Line] = []

    def write(self, name: str, *, delete: bool) -> None:
        self.version += 1
        old = self.objects.pop(name, None)
        if delete:
            if old is not None:
                self.lines.append(("DELETED", name, old[0], self.version))
            return
        uid = f"{name}-{self.version}" if old is None else old[0]
        self.objects[name] = (uid, self.version)
        self.lines.append(("MODIFIED" if old else "ADDED", name, uid, self.version))


class Mirror:
    """What a consumer makes of the events; checks that each is one it can take."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[str, int]] = {}

    def take(self, events: list[Event[str]]) -> None:
        for event in events:
            known = self.objects.get(event.name)
            if event.kind is EventKind.ADDED:
                assert known is None
                self.objects[event.name] = (event.uid, event.resource_version)
            elif event.kind is EventKind.MODIFIED:
                assert known is not None
                assert known[0] == event.uid
                assert known[1] < event.resource_version
                self.objects[event.name] = (event.uid, event.resource_version)
            elif event.kind is EventKind.DELETED:
                assert known is not None
                assert known[0] == event.uid
                del self.objects[event.name]


writes = st.tuples(st.just("write"), st.sampled_from(NAMES), st.booleans())
others = st.sampled_from([("read", "", False), ("lose", "", False), ("list", "", False)])


@given(steps=st.lists(st.one_of(writes, writes, others), max_size=60), repeat=st.booleans())
def test_the_mirror_is_right_after_each_list_and_each_read(
    steps: list[tuple[str, str, bool]], repeat: bool
) -> None:
    history, mirror = History(), Mirror()
    sightings: Sightings[str] = Sightings()
    read_to = 0

    def relist() -> None:
        nonlocal read_to
        sightings.begin_list()
        out: list[Event[str]] = []
        for name, (uid, version) in history.objects.items():
            sightings.listed(out, ("", name), uid, version, name)
        out += sightings.end_list(history.version)
        assert out[-1].kind is EventKind.SYNCED
        mirror.take(out)
        read_to = len(history.lines)
        assert mirror.objects == history.objects

    def read() -> None:
        nonlocal read_to
        begin = max(0, read_to - 3) if repeat else read_to  # a server may tell things again
        for kind, name, uid, version in history.lines[begin:]:
            out: list[Event[str]] = []
            take = sightings.deleted if kind == "DELETED" else sightings.changed
            take(out, ("", name), uid, version, name)
            mirror.take(out)
        read_to = len(history.lines)

    relist()
    current = True
    for step, name, flag in steps:
        if step == "write":
            history.write(name, delete=flag)
        elif step == "read":
            read()
            assert not current or mirror.objects == history.objects
        elif step == "lose":
            # Lines that never arrive: the watch was too old, a new list has to come.
            read_to, current = len(history.lines), False
        else:
            relist()
            current = True
    relist()
    assert len(sightings) == len(history.objects)


@given(steps=st.lists(writes, max_size=40), cut=st.integers(0, 40))
def test_lines_told_twice_tell_nothing(steps: list[tuple[str, str, bool]], cut: int) -> None:
    """Above all, what was deleted does not come back to life."""
    history, mirror = History(), Mirror()
    sightings: Sightings[str] = Sightings()
    sightings.begin_list()
    sightings.end_list(history.version)

    def tell(lines: list[Line]) -> list[Event[str]]:
        out: list[Event[str]] = []
        for kind, name, uid, version in lines:
            take = sightings.deleted if kind == "DELETED" else sightings.changed
            take(out, ("", name), uid, version, name)
        return out

    for _, name, delete in steps:
        history.write(name, delete=delete)
    mirror.take(tell(history.lines))
    assert mirror.objects == history.objects
    assert tell(history.lines[cut:]) == []


@given(script=st.lists(writes, min_size=1, max_size=30), cut=st.integers(0, 30))
def test_a_watch_has_caught_up_when_its_mirror_is_the_list_and_not_before(
    script: list[tuple[str, str, bool]], cut: int
) -> None:
    """What was told up to ``cut`` lines, against a list read at the end."""
    history, sightings, mirror = History(), Sightings[str](), Mirror()
    sightings.begin_list()
    mirror.take([e for e in sightings.end_list(10) if e.kind is not EventKind.SYNCED])
    for _, name, delete in script:
        history.write(name, delete=delete)
    position = 10
    for type_, name, uid, version in history.lines[:cut]:
        out: list[Event[str]] = []
        take = sightings.deleted if type_ == "DELETED" else sightings.changed
        take(out, ("", name), uid, version, "")
        mirror.take(out)
        position = version
    listed = {("", name): Seen(*there) for name, there in history.objects.items()}
    caught_up = sightings.caught_up(listed, list_version=history.version, position=position)
    assert caught_up == (mirror.objects == history.objects)
