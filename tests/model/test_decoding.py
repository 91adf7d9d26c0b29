"""What is no pod or node is one kind of error, however it is broken."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from stretto.model.objects import decode_node, decode_pod

DEPTH = 100_000


@pytest.mark.parametrize("decoder", [decode_pod, decode_node])
@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b'{"metadata":3}',
        b'{"unknown":' + b"[" * DEPTH + b"]" * DEPTH + b"}",
        b'{"metadata":' + b'{"a":' * DEPTH + b"1" + b"}" * DEPTH + b"}",
    ],
    ids=["empty", "half", "list", "type", "deep lists", "deep objects"],
)
def test_it_is_a_decode_error(decoder: Callable[[bytes], object], text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError) as caught:
        decoder(text)
    assert "\n" not in str(caught.value)
