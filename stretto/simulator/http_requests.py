"""Reading HTTP/1.1 requests from bytes cut anywhere: as much of HTTP as API clients use.

A general HTTP server spends about 150 µs of CPU on a request, twice what the simulator may spend on
a bind altogether.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

from stretto.simulator.request import MAX_BODY, Request

HEAD_LIMIT = 64 * 1024
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,12})[ \t]*\r", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked", re.IGNORECASE)
_TYPE = re.compile(rb"\r\ncontent-type:[ \t]*([^\r]*?)[ \t]*\r", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection:[ \t]*close", re.IGNORECASE)
_EXPECT = re.compile(rb"\r\nexpect:[ \t]*100-continue", re.IGNORECASE)


class UnreadableRequest(Exception):  # noqa: N818 - it is answered, and the connection closed
    """Not a request that is understood; ``code`` is the HTTP status to answer."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


class RequestReader:
    """One request after another."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._request: Request | None = None
        self._length = 0
        """Of the body; -1: it comes in chunks."""
        self._chunks: list[bytes] = []
        self.last = False
        """Whether the client closes the connection after the request just read."""
        self.expects_continue = False
        """Whether the client waits for leave to send its body; reset by who gives it."""

    def feed(self, data: bytes) -> None:
        """Take bytes as they arrive."""
        self._buffer += data

    def next(self) -> Request | None:
        """The next whole request. Raises :class:`UnreadableRequest`."""
        if self._request is None and not self._read_head():
            return None
        request = self._request
        assert request is not None, "a head was read"
        if self._length < 0:
            body = self._chunked_body()
            if body is None:
                return None
            request.body = body
        elif self._length:
            if len(self._buffer) < self._length:
                return None
            request.body = bytes(self._buffer[: self._length])
            del self._buffer[: self._length]
        self._request = None
        return request

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > HEAD_LIMIT:
                raise UnreadableRequest(431, "the request's head does not end")
            return False
        head = bytes(self._buffer[: end + 2])
        del self._buffer[: end + 4]
        line = head[: head.index(b"\r\n")].decode("latin-1").split(" ")
        if len(line) != 3 or not line[2].startswith("HTTP/1.") or not line[1].startswith("/"):
            raise UnreadableRequest(400, "not an HTTP/1.1 request")
        method, target, _ = line
        self._length = 0
        if match := _LENGTH.search(head):
            self._length = int(match[1])
            if self._length > MAX_BODY:
                raise UnreadableRequest(413, f"the body is longer than {MAX_BODY} bytes")
        elif _CHUNKED.search(head):
            self._length, self._chunks = -1, []
        self.last = _CLOSE.search(head) is not None
        if self._length:
            self.expects_continue = _EXPECT.search(head) is not None
        path, mark, query = target.partition("?")
        self._request = Request(method, path)
        if mark:
            self._request.params = dict(parse_qsl(query, keep_blank_values=True))
        if method in ("PATCH", "PUT") and (kind := _TYPE.search(head)):
            self._request.content_type = kind[1].decode("latin-1")
        return True

    def _chunked_body(self) -> bytes | None:
        while (end := self._buffer.find(b"\r\n")) >= 0:
            try:
                size = int(self._buffer[:end].partition(b";")[0], 16)
            except ValueError:
                raise UnreadableRequest(400, "not a chunk's head") from None
            if not 0 <= size <= MAX_BODY - sum(map(len, self._chunks)):
                raise UnreadableRequest(413, f"the body is longer than {MAX_BODY} bytes")
            if len(self._buffer) < end + 4 + size:
                return None
            self._chunks.append(bytes(self._buffer[end + 2 : end + 2 + size]))
            del self._buffer[: end + 4 + size]
            if not size:
                return b"".join(self._chunks)
        return None
