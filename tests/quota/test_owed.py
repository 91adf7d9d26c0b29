"""What members without a pod are promised counts as far as they could use it, and no further."""

from __future__ import annotations

import random

import pytest

from stretto.model.shape import Shape
from stretto.quota.accounts import Sums
from stretto.quota.rows import QueueRow, UsageRow
from stretto.quota.tree import QueueNode
from stretto.quota.view import QuotaView

Asked = dict[str, int]


def shape(queue: str, **requests: int) -> Shape:
    return Shape(
        profile="stretto",
        namespace="default",
        queue=queue,
        requests=tuple(sorted(requests.items())),
    )


def view_of(**rows: QueueRow) -> QuotaView:
    view = QuotaView()
    view.served(True)
    for name, row in rows.items():
        view.queue(name, row)
    return view


def test_a_sibling_does_not_wait_for_room_that_nobody_can_use() -> None:
    view = view_of(
        org=QueueRow(limit=(("cpu", 10),)),
        a=QueueRow(parent="org", limit=(("gpu", 2),)),
        b=QueueRow(parent="org"),
    )
    view.promise(shape("a", cpu=1, gpu=1), 9)
    assert view.room(shape("b", cpu=1), 99) == 8, "2 of the 9 have room, and take one cpu each"
    view.queue("a", QueueRow(parent="org", limit=(("gpu", 3),)))
    assert view.room(shape("b", cpu=1), 99) == 7
    view.usage("a", UsageRow(used=(("cpu", 3), ("gpu", 3))))
    view.usage("org", UsageRow(used=(("cpu", 3), ("gpu", 3))))
    assert view.room(shape("b", cpu=1), 99) == 7, "what is used leaves no room to be promised"


def test_room_that_borrowers_leave_is_for_who_was_promised_it_all_the_way_up() -> None:
    view = view_of(
        root=QueueRow(limit=(("cpu", 12),)),
        org=QueueRow(parent="root", limit=(("cpu", 4),)),
        a=QueueRow(parent="org"),
        other=QueueRow(parent="root"),
    )
    for name in ("org", "root"):
        view.usage(name, UsageRow(used=(("cpu", 4),)))
    view.promise(shape("a", cpu=1), 4)
    assert view.room(shape("other", cpu=1), 99) == 8
    for name in ("org", "root"):
        view.usage(name, UsageRow(used=(("cpu", 1),)))
    assert view.room(shape("other", cpu=1), 99) == 8
    assert view.room(shape("org", cpu=1), 99) == 0


class World:
    """A random tree with usage and promises, and a count of them that is plain to see."""

    def __init__(self, seed: int, *, resources: tuple[str, ...]) -> None:
        self.rng = random.Random(seed)
        self.resources = resources
        self.rows = {"q0": self.row("")}
        for number in range(1, self.rng.randint(2, 9)):
            self.rows[f"q{number}"] = self.row(f"q{self.rng.randrange(number)}")
        self.used: dict[str, Asked] = {name: {} for name in self.rows}
        """In the queue itself."""
        self.promised: list[Shape] = []
        self.view = view_of(**self.rows)

    def row(self, parent: str) -> QueueRow:
        limit = [(n, self.rng.randint(0, 12)) for n in self.resources if self.rng.random() < 0.6]
        return QueueRow(parent=parent, limit=tuple(limit))

    def step(self) -> None:
        action, name = self.rng.random(), self.rng.choice(sorted(self.rows))
        if action < 0.5:
            asked = {each: self.rng.randint(0, 3) for each in self.resources}
            self.promised.append(shape(name, **asked))
            self.view.promise(self.promised[-1], 1)
        elif action < 0.7 and self.promised:
            gone = self.promised.pop(self.rng.randrange(len(self.promised)))
            self.view.promise(gone, -1)
        elif action < 0.9:
            self.used[name] = {each: self.rng.randint(0, 6) for each in self.resources}
            for each in self.above(name):
                self.view.usage(each, UsageRow(used=tuple(sorted(self.used_in(each).items()))))
        else:
            self.rows[name] = self.row(self.rows[name].parent)
            self.view.queue(name, self.rows[name])

    def above(self, name: str) -> list[str]:
        """A queue, and those above it."""
        found = []
        while name:
            found.append(name)
            name = self.rows[name].parent
        return found

    def used_in(self, name: str) -> Asked:
        """In a queue and all below it."""
        sums = dict.fromkeys(self.resources, 0)
        for each, used in self.used.items():
            if name in self.above(each):
                for resource, amount in used.items():
                    sums[resource] += amount
        return {resource: amount for resource, amount in sums.items() if amount}

    def owed(self, name: str) -> Sums:
        return {n: a for n, a in self.view.owed(self.node(name)).items() if n != "pods"}

    def node(self, name: str) -> QueueNode:
        return self.view.tree.nodes[name]

    def plainly(self, name: str) -> tuple[list[tuple[Asked, int]], Asked]:
        """(members that have room in a queue by kind, what they count for), from below."""
        here = [(dict(each.requests), 1) for each in self.promised if each.queue == name]
        handed = {n: sum(a[n] for a, _ in here) for n in self.resources}
        for child, row in self.rows.items():
            if row.parent == name:
                members, sums = self.plainly(child)
                here += members
                handed = {n: handed[n] + sums[n] for n in self.resources}
        limit, used = dict(self.rows[name].limit), self.used_in(name)
        free = {n: max(0, most - used.get(n, 0)) for n, most in limit.items()}
        fitting = []
        for asked in {tuple(sorted(asked.items())) for asked, _ in here}:
            count = sum(n for other, n in here if tuple(sorted(other.items())) == asked)
            for n, amount in asked:
                count = min(count, free[n] // amount) if amount and n in free else count
            fitting.append((dict(asked), count))
        sums = {}
        for n in self.resources:
            total = sum(asked[n] * count for asked, count in fitting)
            sums[n] = min(total, handed[n], free.get(n, total))
        return fitting, sums

    def taken(self) -> dict[str, Asked]:
        """What all promised members take if they come in a random order and nobody else does."""
        sums = {name: dict.fromkeys(self.resources, 0) for name in self.rows}
        for member in self.rng.sample(self.promised, len(self.promised)):
            asked, way = dict(member.requests), self.above(member.queue)
            if all(
                self.used_in(each).get(n, 0) + sums[each][n] + asked[n] <= most
                for each in way
                for n, most in self.rows[each].limit
                if asked[n]
            ):
                for each in way:
                    for n, amount in asked.items():
                        sums[each][n] += amount
        return sums


@pytest.mark.parametrize("seed", range(12))
def test_sums_kept_step_by_step_are_those_of_a_plain_count(seed: int) -> None:
    world = World(seed, resources=("cpu", "gpu"))
    cut = 0
    for _ in range(60):
        world.step()
        for name in world.rows:
            _, plainly = world.plainly(name)
            assert world.owed(name) == {n: a for n, a in plainly.items() if a}, name
            whole = sum(name in world.above(each.queue) for each in world.promised)
            cut += world.view.owed(world.node(name)).get("pods", 0) < whole
            used = world.view.accounts.of(world.node(name)).used
            both = {n: world.used_in(name).get(n, 0) + plainly[n] for n in world.resources}
            assert {n: used.get(n, 0) for n in world.resources} == both
    assert cut, "something was cut off"


@pytest.mark.parametrize("seed", range(12))
def test_promised_members_never_take_more_than_what_counts_for_them(seed: int) -> None:
    """Whatever their order: so nobody else is let in to what they may use."""
    world = World(seed, resources=("cpu", "gpu"))
    for _ in range(60):
        world.step()
        taken = world.taken()
        for name in world.rows:
            owed = world.owed(name)
            assert all(taken[name][n] <= owed.get(n, 0) for n in world.resources), name


@pytest.mark.parametrize("seed", range(12))
def test_members_of_one_size_take_all_that_counts_for_them(seed: int) -> None:
    """At the root: so nobody waits for room that promised members cannot use."""
    world = World(seed, resources=("cpu",))
    for _ in range(60):
        world.step()
        ones = [each for each in world.promised if dict(each.requests) != {"cpu": 1}]
        for each in ones:
            world.promised.remove(each)
            world.view.promise(each, -1)
        assert world.taken()["q0"]["cpu"] == world.owed("q0").get("cpu", 0)
