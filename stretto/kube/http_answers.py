"""Reads HTTP/1.1 answers off a connection, as much of the protocol as an API server uses. No I/O.

Whatever goes beyond it (an answer that ends with the connection, a head without end) is refused:
the connection is then closed and the request counts as one that got no answer.
"""

from __future__ import annotations

import enum
import re

import msgspec

HEAD_LIMIT = 64 * 1024
"""Bytes of status line and headers."""
BODY_LIMIT = 512 * 1024 * 1024
"""Bytes; far above a list page, below what would end the process."""
_LENGTH_DIGITS = len(str(BODY_LIMIT))
_HEAD_END = b"\r\n\r\n"
_STATUS = re.compile(rb"http/1\.1 ([1-9]\d\d)[ \r]")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)[ \t]*\r\n")
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked[ \t]*\r\n")
_CLOSE = re.compile(rb"\r\nconnection:[ \t]*close[ \t]*\r\n")
_RETRY_AFTER = re.compile(rb"\r\nretry-after:[ \t]*(\d{1,6})[ \t]*\r\n")
_PLAIN_CHUNK_HEAD = re.compile(rb"([0-9a-f]{1,8})\r\n")
_CHUNK_HEAD = re.compile(rb"([0-9a-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n", re.IGNORECASE)


class NotUnderstoodError(OSError):
    """The answer is not the HTTP that is spoken here."""


class Reply(msgspec.Struct, frozen=True, gc=False):
    """A whole answer."""

    status: int
    body: bytes
    retry_after: float | None
    """Seconds, if the answer names them."""
    last: bool
    """The server closes the connection after it."""


def closes(reply: Reply) -> bool:
    """Whether the connection that it came on is not to be used again: the server closes it, or
    does not know us on it."""
    return reply.last or reply.status == 401


class Head(msgspec.Struct, frozen=True, gc=False):
    """What comes before the body."""

    status: int
    length: int
    """Of the body; -1: it comes in chunks."""
    retry_after: float | None
    """Seconds, if the answer names them."""
    last: bool
    """The server closes the connection after it."""


class _Chunk(enum.Enum):
    """What is to come when nothing of a chunk itself is."""

    SIZE = enum.auto()
    END = enum.auto()
    """The end of the line that the chunk is on."""
    LAST_END = enum.auto()
    """The same after the chunk of no bytes that ends the body."""


class BodyReader:
    """One answer whose body is passed on as it comes, from bytes cut anywhere: a watch."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.head: Head | None = None
        """None: it has not come whole yet."""
        self.ended = False
        """The body is whole."""
        self._left = 0
        """Bytes of the body, or of the chunk, that are to come."""
        self._chunk = _Chunk.SIZE

    @property
    def rest(self) -> bytes:
        """What came after the end of the body."""
        return bytes(self._buffer)

    def feed(self, data: bytes) -> bytes:
        """What these bytes bring of the body. Raises :class:`NotUnderstoodError`."""
        if self._plain and not self._buffer:
            pieces, at = _whole_chunks(data)
            self._buffer += data[at:]
            return b"".join((*pieces, self._chunks())) if self._buffer else b"".join(pieces)
        self._buffer += data
        while self.head is None:
            head = _take_head(self._buffer)
            if head is None:
                return b""
            if head.status >= 200:  # else an interim answer; the real one follows
                self.head = head
                self._left = max(head.length, 0)
                self.ended = head.length == 0
        if self.ended:
            return b""
        if self.head.length < 0:
            return self._chunks()
        piece = self._piece()
        self.ended = self._left == 0
        return piece

    @property
    def _plain(self) -> bool:
        """What comes next is a chunk's head."""
        chunked = self.head is not None and self.head.length < 0 and not self.ended
        return chunked and not self._left and self._chunk is _Chunk.SIZE

    def _piece(self) -> bytes:
        piece = bytes(self._buffer[: self._left])
        del self._buffer[: self._left]
        self._left -= len(piece)
        return piece

    def _chunks(self) -> bytes:
        """Several chunks come in one go: the buffer is read with an index and cut once."""
        buffer, at, pieces = self._buffer, 0, []
        while not self.ended:
            if self._left:
                piece = buffer[at : at + self._left]
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if self._left:
                    break
                self._chunk = _Chunk.END
            if self._chunk is not _Chunk.SIZE:
                if len(buffer) < at + 2:
                    break
                _check_chunk_end(buffer, at)
                at += 2
                self.ended = self._chunk is _Chunk.LAST_END
                self._chunk = _Chunk.SIZE
                continue
            head = _chunk_head(buffer, at)
            if head is None:
                break
            self._left, at = head
            if not self._left:
                self._chunk = _Chunk.LAST_END
        del buffer[:at]
        return b"".join(pieces)


class AnswerReader:
    """One whole answer after another, from bytes cut anywhere."""

    def __init__(self) -> None:
        self._body: BodyReader | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._rest = b""
        """What came after the end of the last answer."""

    @property
    def empty(self) -> bool:
        """Whether no byte of a further answer has arrived."""
        return self._body is None and not self._rest

    def feed_all(self, data: bytes) -> list[Reply]:
        """All answers that these bytes complete. Raises :class:`NotUnderstoodError`."""
        replies = []
        while (reply := self.feed(data)) is not None:
            replies.append(reply)
            data, self._rest = self._rest, b""
            if not data:
                break
        return replies

    def feed(self, data: bytes) -> Reply | None:
        """The answer that these bytes complete, or None. Raises :class:`NotUnderstoodError`."""
        if self._body is None:
            whole = _whole_answer(data)
            if whole is not None:
                reply, self._rest = whole
                return reply
            if not data:
                return None
            self._body = BodyReader()
        piece = self._body.feed(data)
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > BODY_LIMIT:
            raise NotUnderstoodError(f"the answer is longer than {BODY_LIMIT} bytes")
        if not self._body.ended:
            return None
        head, body = self._body.head, b"".join(self._pieces)
        assert head is not None, "a body without a head"
        self._pieces, self._size = [], 0
        self._rest = self._body.rest
        self._body = None
        return Reply(head.status, body, head.retry_after, head.last)


def _take_head(buffer: bytearray) -> Head | None:
    """The head that a buffer begins with, cut off it; None: it has not come whole yet."""
    end = buffer.find(_HEAD_END)
    if end < 0:
        if len(buffer) > HEAD_LIMIT:
            raise NotUnderstoodError("the answer's head does not end")
        return None
    head = _head_of(bytes(buffer[: end + 2]))
    del buffer[: end + 4]
    return head


def _whole_chunks(data: bytes) -> tuple[list[bytes], int]:
    """The chunks that these bytes begin with, and where the first begins that has to be looked at
    more closely. Every watch event is a chunk of its own, and nearly all come whole."""
    pieces, at, size = [], 0, len(data)
    while (head := _PLAIN_CHUNK_HEAD.match(data, at)) is not None:
        begin = head.end()
        end = begin + int(head[1], 16)
        if end == begin or end + 2 > size or data[end : end + 2] != b"\r\n":
            break
        pieces.append(data[begin:end])
        at = end + 2
    return pieces, at


def _chunk_head(buffer: bytearray, at: int) -> tuple[int, int] | None:
    """(size of the chunk that begins there, where its bytes begin); None: its head has not come
    whole yet."""
    head = _CHUNK_HEAD.match(buffer, at)
    if head is not None:
        return int(head[1], 16), head.end()
    if buffer.find(b"\r\n", at) >= 0:
        raise NotUnderstoodError(f"not a chunk's head: {bytes(buffer[at : at + 40])!r}")
    if len(buffer) - at > HEAD_LIMIT:
        raise NotUnderstoodError("a chunk's head does not end")
    return None


def _check_chunk_end(buffer: bytearray, at: int) -> None:
    if buffer[at : at + 2] != b"\r\n":
        raise NotUnderstoodError("a chunk does not end where it should (or has trailers)")


def _whole_answer(data: bytes) -> tuple[Reply, bytes] | None:
    """The answer that these bytes begin with, as nearly all pieces are one, and what follows it;
    None: look more closely."""
    end = data.find(_HEAD_END)
    if end < 0:
        return None
    head = _head_of(data[: end + 2])
    stop = end + 4 + head.length
    if head.status < 200 or head.length < 0 or stop > len(data):
        return None
    return Reply(head.status, data[end + 4 : stop], head.retry_after, head.last), data[stop:]


def _head_of(text: bytes) -> Head:
    """A head up to the end of its last line."""
    text = text.lower()
    status_line = _STATUS.match(text)
    if status_line is None:
        raise NotUnderstoodError(f"not HTTP/1.1: {text[:60]!r}")
    status = int(status_line[1])
    # A plain search first: few answers have these headers, and a pattern costs ten times it.
    retry_after = _RETRY_AFTER.search(text) if b"\r\nretry-after" in text else None
    return Head(
        status,
        _body_length(text, status),
        float(retry_after[1]) if retry_after else None,
        b"\r\nconnection:" in text and _CLOSE.search(text) is not None,
    )


def _body_length(text: bytes, status: int) -> int:
    if status < 200 or status == 204 or status == 304:
        return 0
    if b"\r\ntransfer-encoding:" in text and _CHUNKED.search(text):
        return -1
    length = _LENGTH.match(text, max(0, text.find(b"\r\ncontent-length:")))
    if length is None:
        raise NotUnderstoodError("the answer has no length")
    digits = length[1]
    if len(digits) > _LENGTH_DIGITS or int(digits) > BODY_LIMIT:
        raise NotUnderstoodError(f"the answer is longer than {BODY_LIMIT} bytes")
    return int(digits)
