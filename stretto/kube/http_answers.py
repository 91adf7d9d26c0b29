"""Reads HTTP/1.1 answers off a connection, as much of the protocol as an API server uses. No I/O.

Whatever goes beyond it (an answer that ends with the connection, a head without end) is refused:
the connection is then closed and the request counts as one that got no answer.
"""

from __future__ import annotations

import re
from typing import NamedTuple

HEAD_LIMIT = 64 * 1024
"""Bytes of status line and headers."""
BODY_LIMIT = 512 * 1024 * 1024
"""Bytes; far above a list page, below what would end the process."""
_HEAD_END = b"\r\n\r\n"
_STATUS_LINE = re.compile(rb"http/1\.1 ([1-9]\d\d)[ \r]")
_LENGTH = b"\r\ncontent-length:"
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked[ \t]*\r\n")
_CLOSE = re.compile(rb"\r\nconnection:[ \t]*close[ \t]*\r\n")
_RETRY_AFTER = re.compile(rb"\r\nretry-after:[ \t]*(\d{1,6})[ \t]*\r\n")
_CHUNK_HEAD = re.compile(rb"([0-9a-f]{1,8})[ \t]*(?:;[^\r\n]*)?\Z", re.IGNORECASE)


class NotUnderstoodError(OSError):
    """The answer is not the HTTP that is spoken here."""


class Reply(NamedTuple):
    """A whole answer."""

    status: int
    body: bytes
    retry_after: float | None
    """Seconds, if the answer names them."""
    last: bool
    """The server closes the connection after it."""


class _Head(NamedTuple):
    status: int
    length: int
    """Of the body; -1: it comes in chunks."""
    retry_after: float | None
    last: bool


class AnswerReader:
    """One answer after another, from bytes cut anywhere."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: _Head | None = None
        self._chunks: list[bytes] = []
        self._size = 0
        self._chunk_left: int | None = None

    @property
    def empty(self) -> bool:
        """Whether no byte of a further answer has arrived."""
        return not self._buffer and self._head is None

    def feed(self, data: bytes) -> Reply | None:
        """The answer that these bytes complete, or None. Raises :class:`NotUnderstoodError`."""
        if not self._buffer and self._head is None:
            whole = _whole_answer(data)
            if whole is not None:
                return whole
        self._buffer += data
        while self._head is None:
            if not self._read_head():
                return None
        head = self._head
        body = self._chunked_body() if head.length < 0 else self._sized_body(head.length)
        if body is None:
            return None
        self._head = None
        return Reply(head.status, body, head.retry_after, head.last)

    def _read_head(self) -> bool:
        end = self._buffer.find(_HEAD_END)
        if end < 0:
            if len(self._buffer) > HEAD_LIMIT:
                raise NotUnderstoodError("the answer's head does not end")
            return False
        head = _head_of(bytes(self._buffer[: end + 2]))
        del self._buffer[: end + 4]
        if head.status < 200:
            return bool(self._buffer)  # an interim answer; the real one follows
        self._head = head
        return True

    def _sized_body(self, length: int) -> bytes | None:
        if len(self._buffer) < length:
            return None
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        return body

    def _chunked_body(self) -> bytes | None:
        while True:
            if self._chunk_left is None:
                end = self._buffer.find(b"\r\n")
                if end < 0:
                    if len(self._buffer) > HEAD_LIMIT:
                        raise NotUnderstoodError("a chunk's head does not end")
                    return None
                self._chunk_left = _chunk_size(bytes(self._buffer[:end]))
                del self._buffer[: end + 2]
            if len(self._buffer) < self._chunk_left + 2:
                return None
            if self._buffer[self._chunk_left : self._chunk_left + 2] != b"\r\n":
                raise NotUnderstoodError("a chunk does not end where it should (or has trailers)")
            chunk = bytes(self._buffer[: self._chunk_left])
            del self._buffer[: self._chunk_left + 2]
            self._chunk_left = None
            if not chunk:
                body = b"".join(self._chunks)
                self._chunks, self._size = [], 0
                return body
            self._size += len(chunk)
            if self._size > BODY_LIMIT:
                raise NotUnderstoodError(f"the answer is longer than {BODY_LIMIT} bytes")
            self._chunks.append(chunk)


def _whole_answer(data: bytes) -> Reply | None:
    """The answer that these bytes are, as nearly all pieces are one; None: look more closely."""
    end = data.find(_HEAD_END)
    if end < 0:
        return None
    head = _head_of(data[: end + 2])
    if head.status < 200 or head.length != len(data) - end - 4:
        return None
    return Reply(head.status, data[end + 4 :], head.retry_after, head.last)


def _head_of(text: bytes) -> _Head:
    """A head up to the end of its last line."""
    text = text.lower()
    status_line = _STATUS_LINE.match(text)
    if status_line is None:
        raise NotUnderstoodError(f"not HTTP/1.1: {text[:60]!r}")
    status = int(status_line[1])
    # A plain search first: few answers have these headers, and a pattern costs ten times it.
    retry_after = _RETRY_AFTER.search(text) if b"\r\nretry-after" in text else None
    return _Head(
        status,
        _body_length(text, status),
        float(retry_after[1]) if retry_after else None,
        b"\r\nconnection:" in text and _CLOSE.search(text) is not None,
    )


def _body_length(text: bytes, status: int) -> int:
    if status in (204, 304) or status < 200:
        return 0
    if b"\r\ntransfer-encoding:" in text and _CHUNKED.search(text):
        return -1
    at = text.find(_LENGTH)
    digits = text[at + len(_LENGTH) : text.find(b"\r", at + 2)].strip(b" \t")
    if at < 0 or not digits.isdigit():
        raise NotUnderstoodError("the answer has no length")
    if len(digits) > len(str(BODY_LIMIT)) or int(digits) > BODY_LIMIT:
        raise NotUnderstoodError(f"the answer is longer than {BODY_LIMIT} bytes")
    return int(digits)


def _chunk_size(text: bytes) -> int:
    match = _CHUNK_HEAD.match(text)
    if match is None:
        raise NotUnderstoodError(f"not a chunk's head: {text[:40]!r}")
    return int(match[1], 16)
