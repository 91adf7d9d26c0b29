"""A decoded object as JSON again: what Stretto reads of it, for programs beside it (extenders)."""

from __future__ import annotations

import msgspec

_encode = msgspec.json.Encoder().encode


def document_of(obj: msgspec.Struct) -> bytes:
    """JSON with the API's names; fields that are unset are left out."""
    return _encode(_plain(obj))


def _plain(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(type(value))
        named = ((field.encode_name, getattr(value, field.name)) for field in fields)
        return {name: _plain(each) for name, each in named if not _unset(each)}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def _unset(value: object) -> bool:
    return value is None or value == "" or (isinstance(value, msgspec.Raw) and not bytes(value))
