"""Small questions about units."""

from __future__ import annotations

import hashlib

import msgspec

from stretto.model.unit import Unit


def bare(unit: Unit) -> Unit:
    """The unit without the pods' objects, which the Binder has no use for."""
    members = tuple(msgspec.structs.replace(member, document=b"") for member in unit.members)
    return msgspec.structs.replace(unit, members=members)


def uids_of(unit: Unit) -> list[str]:
    """The pods of a unit."""
    return [member.uid for member in unit.members]


def seed_of(unit: Unit) -> int:
    """Order of equals for a batch that begins with this unit: another one for each attempt."""
    text = f"{unit.unit_id}/{unit.attempt[0]}/{unit.attempt[1]}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
