"""Races over places that depend on other pods: anti-affinity, maxSkew; and over the last CPU and
host port."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stretto.model.shape import HostPort, PodTerm, Requirement, Shape, SpreadConstraint
from tests.binder.world import node_of, shape_of
from tests.races.arena import Arena

SLOTS = 6
"""Nodes; two to a zone, so three zones."""
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
WEB = (Requirement("app", "In", ("web",)),)
Placed = Sequence[str]
"""Names of the nodes that took a pod."""


def arena(seed: int, *, cordoned: bool) -> Arena:
    """Six nodes in three zones; with ``cordoned`` every other one takes no pods."""
    rows = []
    for slot in range(SLOTS):
        labels = {HOST: f"n{slot}", ZONE: f"z{slot // 2}", "pair": str(slot // 2)}
        rows.append(
            node_of(
                f"n{slot}", labels=tuple(sorted(labels.items())),
                unschedulable=cordoned and slot % 2 == 1,
            )
        )  # fmt: skip
    where = Arena(seed=seed, nodes=rows)
    where.machine.cluster.read_labels(["app"])
    return where


def web(cpu: int = 100, **fields: object) -> Shape:
    """A pod that the terms below are about."""
    return shape_of(cpu, labels=(("app", "web"),), label_keys=("app",), **fields)


def apart(key: str) -> tuple[PodTerm, ...]:
    """Required anti-affinity to pods of this kind."""
    return (PodTerm(key, ("default",), None, WEB),)


def even(key: str) -> tuple[SpreadConstraint, ...]:
    """A hard spread of pods of this kind with maxSkew 1."""
    return (SpreadConstraint(1, key, hard=True, selector=WEB),)


@dataclass(frozen=True)
class Race:
    """A kind of race."""

    contenders: Callable[[random.Random], list[Shape]]
    winners: Callable[[int], int]
    """How many of so many contenders are placed in the end."""
    holds: Callable[[Placed], bool]
    """What must be true of those who were placed."""
    cordoned: bool = False


def _on(slot: int) -> tuple[tuple[str, str], ...]:
    return ((HOST, f"n{slot}"),)


def _pair_on_a_host(rng: random.Random) -> list[Shape]:
    where = _on(rng.randrange(SLOTS))
    return [
        web(100 + n, node_selector=where, anti_affinity=apart(HOST))
        for n in range(rng.randint(2, 4))
    ]


def _one_sided_pair(rng: random.Random) -> list[Shape]:
    """One keeps others away, the other has no terms."""
    where = _on(rng.randrange(SLOTS))
    return [
        web(node_selector=where, anti_affinity=apart(ZONE)),
        web(node_selector=where),
    ]


def _more_than_zones(rng: random.Random) -> list[Shape]:
    return [web(100 + n, anti_affinity=apart(ZONE)) for n in range(rng.randint(2, 4))]


def _skew_of_a_pair(rng: random.Random) -> list[Shape]:
    """The other node of the pair counts and takes none, so the first takes one."""
    where = (("pair", str(rng.randrange(SLOTS // 2))),)
    return [web(100 + n, node_selector=where, spread=even(HOST)) for n in range(rng.randint(2, 4))]


def _skew_of_zones(rng: random.Random) -> list[Shape]:
    return [web(100 + n, spread=even(ZONE)) for n in range(4)]


def _last_cpu(rng: random.Random) -> list[Shape]:
    where = _on(rng.randrange(SLOTS))
    return [shape_of(3000 + n, node_selector=where, label_keys=("app",))
            for n in range(rng.randint(2, 4))]  # fmt: skip


def _last_port(rng: random.Random) -> list[Shape]:
    where, port = _on(rng.randrange(SLOTS)), (HostPort("TCP", "0.0.0.0", 80),)
    return [
        shape_of(100 + n, node_selector=where, host_ports=port, label_keys=("app",))
        for n in range(rng.randint(2, 4))
    ]


def _different(of: Callable[[str], str]) -> Callable[[Placed], bool]:
    def holds(placed: Placed) -> bool:
        places = [of(node) for node in placed]
        return len(set(places)) == len(places)

    return holds


def _zone(node: str) -> str:
    return str(int(node[1:]) // 2)


def _within_skew(placed: Placed) -> bool:
    counts = Counter(map(_zone, placed))
    return max(counts.values()) - min(counts.get(str(z), 0) for z in range(SLOTS // 2)) <= 1


def _one(_contenders: int) -> int:
    return 1


RACES: dict[str, Race] = {
    "anti-affinity pair": Race(_pair_on_a_host, _one, _different(str)),
    "anti-affinity, one side": Race(_one_sided_pair, _one, _different(_zone)),
    "anti-affinity over zones": Race(
        _more_than_zones, lambda n: min(n, SLOTS // 2), _different(_zone)
    ),
    "maxSkew edge": Race(_skew_of_a_pair, _one, _different(str), cordoned=True),
    "maxSkew over zones": Race(_skew_of_zones, lambda n: n, _within_skew),
    "last cpu": Race(_last_cpu, _one, _different(str)),
    "last host port": Race(_last_port, _one, _different(str)),
}


def run(name: str, *, rounds: int, seed: int) -> Counter[str]:
    """Rounds of one race; conflicts by number."""
    race = RACES[name]
    where = arena(seed, cordoned=race.cordoned)

    def play(number: int) -> None:
        shapes = race.contenders(where.rng)
        contenders = where.race(shapes, tag=f"r{number}")
        placed = where.won(contenders)
        assert len(placed) == race.winners(len(shapes)), f"round {number}: {placed}"
        assert race.holds(placed), f"round {number}: {placed}"
        where.leave(contenders)

    return where.rounds(play, count=rounds)
