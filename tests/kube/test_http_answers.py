"""The reader of HTTP answers: the same whatever way the bytes are cut, and strict about the
rest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stretto.kube.http_answers import HEAD_LIMIT, AnswerReader, NotUnderstoodError, Reply

SIZED = b"HTTP/1.1 201 Created\r\nDate: x\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n"
)
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
THROTTLED = (
    b"HTTP/1.1 429 Too Many\r\nRetry-After: 7\r\nconnection: Close\r\ncontent-length: 0\r\n\r\n"
)
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
ANSWERS = [
    (SIZED, Reply(201, b"hello", None, False)),
    (CHUNKED, Reply(200, b"abc0123456789", None, False)),
    (EMPTY, Reply(204, b"", None, False)),
    (THROTTLED, Reply(429, b"", 7.0, True)),
    (INTERIM + SIZED, Reply(201, b"hello", None, False)),
]


@given(
    which=st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=4),
    cuts=st.lists(st.integers(1, 60)),
)
def test_answers_in_a_row_read_the_same_however_they_are_cut(
    which: list[tuple[bytes, Reply]], cuts: list[int]
) -> None:
    reader = AnswerReader()
    for data, expected in which:
        replies = []
        at = 0
        for size in [*cuts, len(data)]:
            reply = reader.feed(data[at : at + size])
            at += size
            if reply is not None:
                replies.append(reply)
        assert replies == [expected]
        assert reader.empty


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",  # ends with the connection
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 999999999999\r\n\r\n",
        b"\x15\x03\x01" + b"\x00" * 80 + b"\r\n\r\n",  # TLS
        b"x" * (HEAD_LIMIT + 1),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nTrailer: x\r\n\r\n",
    ],
)
def test_what_goes_beyond_it_is_refused(data: bytes) -> None:
    with pytest.raises(NotUnderstoodError):
        AnswerReader().feed(data)


def test_bytes_after_an_answer_are_noticed() -> None:
    reader = AnswerReader()
    assert reader.feed(EMPTY + b"H") is not None
    assert not reader.empty
