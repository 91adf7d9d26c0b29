"""Races for the last volume, the last attachment and a claim that one pod may use.

``python -m tests.races.volumes --rounds 10000`` (``make races``); a few rounds run with the tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from stretto.model.shape import Claim, Shape
from stretto.snapshot.delta import NodeRow
from stretto.snapshot.volume_rows import ClaimRow, CsiNodeRow, encode_storage
from tests.placement.storage import (
    DRIVER,
    FAST,
    GIB,
    HOST,
    LOCAL,
    claim,
    hosts,
    key_of,
    volume,
)
from tests.races.arena import SHARDS, Arena

NODES = 6


def arena(seed: int) -> Arena:
    """Six nodes with room for everybody, and four claims to come."""
    rows = [
        NodeRow(
            f"n{i}", f"uid-n{i}", labels=((HOST, f"n{i}"),),
            allocatable=(("cpu", 64_000), ("memory", 64 * GIB), ("pods", 110)),
        )
        for i in range(NODES)
    ]  # fmt: skip
    found = Arena(seed=seed, nodes=rows)
    show(found, LOCAL, FAST)
    return found


def show(where: Arena, *rows: object) -> None:
    """The watches show these storage objects."""
    for row in rows:
        kind, key = key_of(row)
        where.machine.cluster.object_seen(kind, key, encode_storage(row))


def hide(where: Arena, *rows: object) -> None:
    """The watches show that they are gone."""
    for row in rows:
        where.machine.cluster.object_seen(*key_of(row), None)


def pods(*names: str) -> list[Shape]:
    """A pod for each claim."""
    requests = (("cpu", 100),)
    return [Shape("stretto", "default", requests=requests, claims=(Claim(name),)) for name in names]


def last_volume(where: Arena, number: int) -> None:
    """Four claims, one volume that any node (or one of them) reaches."""
    claims = [claim(f"c{i}") for i in range(SHARDS)]
    terms = None if number % 2 else hosts(f"n{number % NODES}")
    last = volume("last", 2, terms=terms)
    show(where, *claims, last)
    contenders = where.race(pods(*(c.name for c in claims)), tag=f"v{number}")
    assert len(where.won(contenders)) == 1, [c.node for c in contenders]
    for loser in contenders:
        if not loser.node:
            assert "didn't find available persistent volumes to bind" in loser.message
    where.leave(contenders)
    hide(where, last)


def last_attachment(where: Arena, number: int) -> None:
    """Four bound volumes of a driver that one node takes one more of, the others none."""
    rows: list[object] = []
    for i in range(SHARDS):
        rows.append(volume(f"a{i}", claim=f"d{i}", driver=DRIVER, handle=f"a{i}"))
        rows.append(claim(f"d{i}", volume=f"a{i}"))
    room = number % NODES
    limits = [CsiNodeRow(f"n{i}", ((DRIVER, int(i == room)),)) for i in range(NODES)]
    show(where, *rows, *limits)
    contenders = where.race(pods(*(f"d{i}" for i in range(SHARDS))), tag=f"a{number}")
    assert where.won(contenders) == [f"n{room}"]
    for loser in contenders:
        assert loser.node or "exceed max volume count" in loser.message
    where.leave(contenders)
    hide(where, *limits)


def one_pod(where: Arena, number: int) -> None:
    """Four pods of a ReadWriteOncePod claim."""
    row = claim("one", volume="ov", modes=("ReadWriteOncePod",))
    show(where, volume("ov", claim="one"), row)
    contenders = where.race(pods(*["one"] * SHARDS), tag=f"o{number}")
    assert len(where.won(contenders)) == 1
    for loser in contenders:
        assert loser.node or "ReadWriteOncePod" in loser.message
    where.leave(contenders)


def two_volumes_elsewhere(where: Arena, number: int) -> None:
    """Four claims, two local volumes: two pods end on the two nodes, each with its volume."""
    claims: list[ClaimRow] = [claim(f"t{i}") for i in range(SHARDS)]
    places = [number % NODES, (number + 1) % NODES]
    volumes = [volume(f"t{place}", terms=hosts(f"n{place}")) for place in places]
    show(where, *claims, *volumes)
    contenders = where.race(pods(*(c.name for c in claims)), tag=f"t{number}")
    won = sorted(where.won(contenders))
    assert won == sorted(f"n{place}" for place in places), won
    where.leave(contenders)
    hide(where, *volumes)


RACES: dict[str, Callable[[Arena, int], None]] = {
    "last volume": last_volume,
    "last attachment": last_attachment,
    "ReadWriteOncePod claim": one_pod,
    "two local volumes": two_volumes_elsewhere,
}


def run(name: str, *, rounds: int, seed: int) -> Counter[str]:
    """Rounds of one race; conflicts by number."""
    where = arena(seed)
    return where.rounds(partial(RACES[name], where), count=rounds)
