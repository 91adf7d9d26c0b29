"""Races for the last device: of a node, of a pool that every node sees, and of a shared one.

``make races`` runs ten thousand rounds; a few run with the tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from stretto.model.device_rows import key_of
from stretto.model.devices import (
    CLAIM,
    CLASS,
    SLICE,
    CapacityRow,
    ClaimRow,
    ClassRow,
    DeviceObjectRow,
    DeviceRow,
    NodeChoice,
    Request,
    SliceRow,
    SubRequest,
    encode_row,
)
from stretto.model.shape import ClaimRef, Shape
from stretto.snapshot.delta import NodeRow
from tests.races.arena import SHARDS, Arena

NODES = 6
DRIVER = "gpu.example.com"
KINDS = {SliceRow: SLICE, ClassRow: CLASS, ClaimRow: CLAIM}


def arena(seed: int) -> Arena:
    """Six nodes with room for everybody, a class, and a claim for each contender."""
    rows = [
        NodeRow(f"n{i}", f"uid-n{i}", allocatable=(("cpu", 64_000), ("pods", 110)))
        for i in range(NODES)
    ]
    found = Arena(seed=seed, nodes=rows)
    show(found, ClassRow("gpu", (f'device.driver == "{DRIVER}"',)))
    return found


def show(where: Arena, *rows: DeviceObjectRow) -> None:
    """The watches show these objects."""
    for row in rows:
        where.machine.cluster.object_seen(KINDS[type(row)], key_of(row), encode_row(row))


def hide(where: Arena, *rows: DeviceObjectRow) -> None:
    """The watches show that they are gone."""
    for row in rows:
        where.machine.cluster.object_seen(KINDS[type(row)], key_of(row), None)


def claims(**fields: object) -> list[ClaimRow]:
    """A claim to one device for each contender."""
    form = SubRequest("r", "gpu", **fields)  # type: ignore[arg-type]
    return [ClaimRow("default", f"c{i}", f"uid-c{i}", (Request("r", form),)) for i in range(SHARDS)]


def pods(*names: str) -> list[Shape]:
    """A pod for each claim."""
    requests = (("cpu", 100),)
    return [
        Shape("stretto", "default", requests=requests, device_claims=(ClaimRef(name),))
        for name in names
    ]


def pool(name: str, where: NodeChoice, *devices: DeviceRow) -> SliceRow:
    """A pool of one slice."""
    return SliceRow(name, DRIVER, name, 1, 1, where, devices=devices)


def one_wins(where: Arena, tag: str, *, offered: SliceRow, wanted: list[ClaimRow]) -> None:
    """Exactly one contender gets a node, the others hear that nothing can be allocated."""
    show(where, offered, *wanted)
    contenders = where.race(pods(*(row.name for row in wanted)), tag=tag)
    assert len(where.won(contenders)) == 1, [c.node for c in contenders]
    for loser in contenders:
        assert loser.node or f"{NODES} cannot allocate all claims" in loser.message, loser.message
    where.leave(contenders)
    hide(where, offered)


def last_of_a_node(where: Arena, number: int) -> None:
    """Four claims, one device on one node."""
    offered = pool("local", NodeChoice(f"n{number % NODES}"), DeviceRow("last"))
    one_wins(where, f"l{number}", offered=offered, wanted=claims())


def last_of_all(where: Arena, number: int) -> None:
    """Four claims, one device that every node reaches: shards choose different nodes."""
    offered = pool("net", NodeChoice(all_nodes=True), DeviceRow("last"))
    one_wins(where, f"n{number}", offered=offered, wanted=claims())


def last_share(where: Arena, number: int) -> None:
    """Four claims for 6 GiB each of a device that has 10 GiB to share."""
    memory = (CapacityRow("memory", "10Gi"),)
    device = DeviceRow("shared", capacity=memory, allow_multiple=True)
    offered = pool("shares", NodeChoice(all_nodes=True), device)
    one_wins(where, f"s{number}", offered=offered, wanted=claims(capacity=(("memory", "6Gi"),)))


def last_part(where: Arena, number: int) -> None:
    """Four claims, four parts of one device that draw 6 of its 10 units of memory each."""
    name = f"parts-{number % NODES}"
    node = NodeChoice(f"n{number % NODES}")
    draws = (("all", (("memory", "6"),)),)
    parts = [DeviceRow(f"part-{i}", consumes=draws) for i in range(SHARDS)]
    counters = SliceRow(
        f"{name}-counters", DRIVER, name, 1, 2, node, counters=(("all", (("memory", "10"),)),)
    )
    show(where, counters)
    one_wins(
        where, f"p{number}", offered=SliceRow(name, DRIVER, name, 1, 2, node, devices=tuple(parts)),
        wanted=claims(),
    )  # fmt: skip
    hide(where, counters)


def two_nodes(where: Arena, number: int) -> None:
    """Four claims, a device on each of two nodes: both are given out, once."""
    places = [number % NODES, (number + 1) % NODES]
    offered = [pool(f"t{p}", NodeChoice(f"n{p}"), DeviceRow("one")) for p in places]
    wanted = claims()
    show(where, *offered, *wanted)
    contenders = where.race(pods(*(row.name for row in wanted)), tag=f"t{number}")
    won = sorted(where.won(contenders))
    assert won == sorted(f"n{place}" for place in places), won
    where.leave(contenders)
    hide(where, *offered)


RACES: dict[str, Callable[[Arena, int], None]] = {
    "last device of a node": last_of_a_node,
    "last device of all nodes": last_of_all,
    "last share of a device": last_share,
    "last part of a device": last_part,
    "devices of two nodes": two_nodes,
}


def run(name: str, *, rounds: int, seed: int) -> Counter[str]:
    """Rounds of one race; conflicts by number."""
    where = arena(seed)
    return where.rounds(partial(RACES[name], where), count=rounds)
