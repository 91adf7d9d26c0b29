"""Bodies of lists and watches, decoded once, straight into the consumer's own type.

A watch piece of many lines is decoded in one call. The typed line admits the three kinds of change
only, so a bookmark, an error or an object that does not fit the type makes that call fail, and just
then the piece is decoded again line by line: once a minute for bookmarks, and for a broken object
without harm to its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from stretto.kube.answers import Status, one_line
from stretto.kube.errors import KubeRefused, WatchGone

LINE_LIMIT = 8 * 1024 * 1024
"""Bytes. Above any object that etcd stores (1.5 MiB); a longer line is not a watch."""


class Metadata(Protocol):
    """What a reflector needs to know of an object."""

    @property
    def namespace(self) -> str:  # noqa: D102
        ...

    @property
    def name(self) -> str:  # noqa: D102
        ...

    @property
    def uid(self) -> str:  # noqa: D102
        ...

    @property
    def resource_version(self) -> str:  # noqa: D102
        ...


class KubeObject(Protocol):
    """An object type that a reflector can carry: a msgspec Struct that decodes from the API's
    JSON."""

    @property
    def metadata(self) -> Metadata:  # noqa: D102
        ...


K = TypeVar("K", bound=KubeObject)


class BareMetadata(msgspec.Struct, rename="camel", gc=False):
    """Identity only; read when the whole object cannot be."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = "0"


class BareObject(msgspec.Struct):
    """An object of which nothing but its identity is read."""

    metadata: BareMetadata = msgspec.field(default_factory=BareMetadata)


class Unreadable(NamedTuple):
    """An object that does not fit the consumer's type."""

    metadata: BareMetadata
    problem: str
    raw: bytes = b""
    """Its JSON."""


class Bookmark(NamedTuple):
    """The watch has shown everything up to this version."""

    version: int


class Line(msgspec.Struct, Generic[K], gc=False):
    """A line of a watch that tells a change."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: K


class _AnyLine(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


class _PageMetadata(msgspec.Struct, gc=False):
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    continue_token: str = msgspec.field(name="continue", default="")


class _PageOf(msgspec.Struct, Generic[K], gc=False):
    metadata: _PageMetadata
    items: list[K] | None = None


class _AnyPage(msgspec.Struct, gc=False):
    metadata: _PageMetadata
    items: list[msgspec.Raw] | None = None


class Page(NamedTuple, Generic[K]):
    """A page of a list."""

    version: int
    continue_token: str
    items: list[K | Unreadable]


class Reader(Generic[K]):
    """Decoders for one kind of object."""

    def __init__(self, kind: type[K]) -> None:
        self._object = msgspec.json.Decoder(kind)
        self._lines: Any = msgspec.json.Decoder(Line[kind])  # type: ignore[valid-type]
        self._page: Any = msgspec.json.Decoder(_PageOf[kind])  # type: ignore[valid-type]

    def page(self, body: bytes) -> Page[K]:
        """A page of a list. Raises :class:`KubeRefused` if the body is no list at all."""
        try:
            page = self._page.decode(body)
            items = page.items or []
        except (msgspec.DecodeError, RecursionError):
            page = _decode_any_page(body)
            items = [self._one(raw) for raw in page.items or []]
        return Page(version_of(page.metadata.resource_version), page.metadata.continue_token, items)

    def lines(self, piece: bytes) -> Iterator[Line[K] | Bookmark | tuple[str, Unreadable]]:
        """Whole lines of a watch. Raises :class:`WatchGone` or :class:`KubeRefused` at an ERROR
        line."""
        try:
            changes: list[Line[K]] = self._lines.decode_lines(piece)
        except (msgspec.DecodeError, RecursionError):
            return self._one_by_one(piece)
        return iter(changes)

    def _one_by_one(self, piece: bytes) -> Iterator[Line[K] | Bookmark | tuple[str, Unreadable]]:
        for text in piece.split(b"\n"):
            if not text.strip():
                continue
            line = _decode_any_line(text)
            if line.type == "BOOKMARK":
                yield Bookmark(version_of(_bare(line.object).resource_version))
            elif line.type in ("ADDED", "MODIFIED", "DELETED"):
                item = self._one(line.object)
                if isinstance(item, Unreadable):
                    yield line.type, item
                else:
                    yield Line(line.type, item)  # type: ignore[arg-type]
            else:
                raise _error_of(line)

    def _one(self, raw: msgspec.Raw) -> K | Unreadable:
        try:
            return self._object.decode(raw)
        except (msgspec.DecodeError, RecursionError) as error:
            return Unreadable(_bare(raw), one_line(str(error)), bytes(raw))


class LineBuffer:
    """Joins the pieces of a stream until they end at a line's end."""

    def __init__(self, *, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._rest: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> bytes:
        """All whole lines so far, or b''. Raises :class:`KubeRefused` if a line is too long to be
        one."""
        cut = piece.rfind(b"\n") + 1
        if not cut:
            self._rest.append(piece)
            self._size += len(piece)
            if self._size > self._limit:
                raise KubeRefused(f"a watch line is longer than {self._limit} bytes", status=200)
            return b""
        whole = b"".join((*self._rest, piece[:cut])) if self._rest else piece[:cut]
        rest = piece[cut:]
        self._rest = [rest] if rest else []
        self._size = len(rest)
        return whole


def version_of(text: str) -> int:
    """A resourceVersion as a number, which Kubernetes guarantees it to be for its own kinds since
    1.35."""
    if not text.isdecimal():
        raise KubeRefused(f"resourceVersion {text[:40]!r} is not a number", status=200)
    return int(text)


def _decode_any_page(body: bytes) -> _AnyPage:
    try:
        return msgspec.json.decode(body, type=_AnyPage)
    except (msgspec.DecodeError, RecursionError) as error:
        raise KubeRefused(f"the reply is no list: {one_line(str(error))}", status=200) from error


def _decode_any_line(text: bytes) -> _AnyLine:
    try:
        return msgspec.json.decode(text, type=_AnyLine)
    except (msgspec.DecodeError, RecursionError) as error:
        raise KubeRefused(f"not a watch line: {one_line(str(error))}", status=200) from error


def _bare(raw: msgspec.Raw) -> BareMetadata:
    try:
        return msgspec.json.decode(raw, type=BareObject).metadata
    except (msgspec.DecodeError, RecursionError) as error:
        raise KubeRefused(
            f"an object without identity: {one_line(str(error))}", status=200
        ) from error


def _error_of(line: _AnyLine) -> WatchGone | KubeRefused:
    try:
        status = msgspec.json.decode(line.object, type=Status)
    except (msgspec.DecodeError, RecursionError):
        status = Status()
    if line.type == "ERROR" and (status.code == 410 or status.reason in ("Expired", "Gone")):
        return WatchGone(one_line(status.message))
    return KubeRefused(
        f"the watch ended with {line.type[:40]}: {status.code} {one_line(status.message)}",
        status=status.code,
    )
