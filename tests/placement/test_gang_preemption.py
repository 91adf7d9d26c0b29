"""Whom a gang may preempt, and how gangs are victims: the rules of KEP-5710 one by one, and what
must hold of every answer on random clusters."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence

import msgspec
import pytest

from stretto.model.groups import LEGACY_GROUPS, POD_GROUP, GroupRow, encode_group
from stretto.model.shape import PodTerm, Requirement, Shape
from stretto.placement.gang import GangPlacer
from stretto.placement.gang_preemption import GUARDED, NOBODY_LOWER, ONGOING, GangDecision
from stretto.placement.preemption import NEVER
from stretto.quota.rows import QUEUE, QUOTA_API, USAGE, QueueRow, UsageRow, encode_quota
from stretto.snapshot.delta import API_SERVED, ObjectRow
from stretto.snapshot.pod_records import LEAVING, PREEMPTED
from tests.placement.test_preemption import World, pod

ROOMY = 4000


def member(cpu: int, *, group: str = "default/g", priority: int = 0, **fields) -> Shape:
    return pod(cpu, priority=priority, group=group, **fields)


def gang(count: int, cpu: int, *, priority: int = 10, **fields) -> list[Shape]:
    return [member(cpu, group="default/new", priority=priority, **fields)] * count


class GangWorld(World):
    """A world with pod groups."""

    def group(self, name: str, **fields) -> None:
        row = GroupRow(**{"min_count": 2, **fields})
        self.delta.objects.append(ObjectRow(POD_GROUP, name, payload=encode_group(row)))

    def decide(self, shapes: Sequence[Shape], uids: Sequence[str] = ()) -> GangDecision:
        """What is decided for a gang that does not fit; it leaves no trace."""
        self.flush()
        placer = GangPlacer(self.kernel, self.snapshot)
        assert not placer.place(shapes, uids=uids, seed=1, avoid=()), "it fits without preemption"
        used = self.used()
        found = placer.preempt(shapes, uids=uids, seed=1, avoid=())
        assert found is not None
        assert self.used() == used
        self.snapshot.validate()
        return found

    def used(self) -> list[int]:
        column = self.snapshot.resources.column("cpu")
        return column.used[: self.snapshot.rows].tolist()


# ---------------------------------------------------------------------------- gangs as victims


def test_a_group_that_goes_as_a_whole_is_a_victim_with_all_its_pods_wherever_they_are() -> None:
    world = GangWorld(nodes=3, cpu=1000)
    world.group("default/g", whole=True)
    for node in range(2):
        world.bind(f"g{node}", member(1000), node)
    world.bind("busy", pod(1000, priority=50), 2)
    world.flush()
    assert set(world.victims(pod(500, priority=10), 1)) == {"g0", "g1"}


def test_members_of_another_group_go_one_by_one() -> None:
    world = GangWorld(nodes=2, cpu=1000)
    world.group("default/g")
    for node in range(2):
        world.bind(f"g{node}", member(1000), node)
    world.flush()
    assert world.victims(pod(500, priority=10), 1) == ["g1"]


def test_on_a_node_the_pod_of_no_group_goes_before_a_member_of_one() -> None:
    """Although it runs for longer."""
    world = GangWorld(nodes=1, cpu=2000)
    world.group("default/g")
    world.bind("alone", pod(1000), 0, start=1)
    world.bind("member", member(1000), 0, start=9)
    world.flush()
    assert world.victims(pod(500, priority=10)) == ["alone"]


@pytest.mark.parametrize("whole", [True, False])
def test_a_small_pod_breaks_no_gang_if_single_victims_suffice(whole: bool) -> None:
    """Although more of them have to go than members of the gang."""
    world = GangWorld(nodes=2, cpu=1000)
    world.group("default/g", whole=whole)
    world.bind("member", member(1000), 0, start=99)
    world.bind("a", pod(500), 1, start=1)
    world.bind("b", pod(500), 1, start=1)
    world.flush()
    found = world.kernel.post_filter(pod(1000, priority=10), seed=1)
    assert (found.nominate, set(found.victims)) == ("n1", {"a", "b"})


def test_a_label_of_a_group_that_is_not_there_makes_no_member() -> None:
    world = GangWorld(nodes=1, cpu=2000)
    world.bind("alone", pod(1000), 0, start=1)
    world.bind("labelled", member(1000, group=f"default/g{LEGACY_GROUPS}"), 0, start=9)
    world.flush()
    assert world.victims(pod(500, priority=10)) == ["labelled"]


@pytest.mark.parametrize(("priority", "goes"), [(5, True), (20, False)])
def test_the_priority_of_the_group_counts(priority: int, goes: bool) -> None:
    world = GangWorld(nodes=1, cpu=1000)
    world.group("default/g", whole=True, priority=priority)
    world.bind("g0", member(1000, priority=priority), 0)
    world.flush()
    found = world.kernel.post_filter(pod(500, priority=10), seed=1)
    assert bool(found.victims) == goes


def test_a_group_with_one_pod_under_a_spent_budget_violates_it_as_a_whole() -> None:
    world = GangWorld(nodes=2, cpu=1000)
    world.group("default/g", whole=True)
    world.bind("g0", member(1000), 0)
    world.bind("g1", member(1000, app="b"), 1)
    world.budget("b", 0)
    world.flush()
    found = world.kernel.victims_on(pod(500, priority=10), 0)
    assert (len(found.pods), found.violating) == (2, {"g1"})


# -------------------------------------------------------------------------- gangs that preempt


def test_who_may_come_back_is_counted_once_in_its_queue() -> None:
    """The queue has room for the gang beside all that run, so two of them stay."""
    world = GangWorld(nodes=2, cpu=1000)
    limit = (("pods", 6),)
    world.delta.objects += [
        ObjectRow(API_SERVED, QUOTA_API),
        ObjectRow(QUEUE, "q", payload=encode_quota(QueueRow(limit=limit))),
        ObjectRow(USAGE, "q", payload=encode_quota(UsageRow(used=(("pods", 4),)))),
    ]
    for n in range(4):
        world.bind(f"p{n}", pod(500, queue="q"), n // 2)
    world.flush()
    before = dict(world.snapshot.quota.accounts.by_name["q"].used)
    found = world.decide(gang(2, 500, queue="q"))
    assert len(found.victims) == 2
    assert world.snapshot.quota.accounts.by_name["q"].used == before


def test_nobody_leaves_for_a_gang_that_would_not_fit_then_either() -> None:
    world = GangWorld(nodes=2, cpu=1000)
    world.bind("low", pod(1000), 0)
    world.bind("high", pod(1000, priority=50), 1)
    found = world.decide(gang(2, 1000))
    assert (found.rows, found.victims, found.clears) == ((), (), True)
    assert "1 scheduled, 0 remaining" in found.message


def test_all_members_get_a_node_and_as_few_leave_as_suffice() -> None:
    world = GangWorld(nodes=3, cpu=2000)
    for node in range(3):
        world.bind(f"keeps{node}", pod(1000, priority=5), node)
        world.bind(f"goes{node}", pod(1000, priority=0), node)
    found = world.decide(gang(3, 1000))
    assert sorted(found.rows) == [0, 1, 2]
    assert set(found.victims) == {"goes0", "goes1", "goes2"}
    assert found.message == "found a placement for podgroup, preempting 3 victims"


def test_the_least_priority_that_suffices_is_preempted_wherever_it_is() -> None:
    """Upstream places the gang on the emptied cluster first, where all nodes look alike."""
    world = GangWorld(nodes=4, cpu=1000)
    for node in range(4):
        world.bind(f"p{node}", pod(1000, priority=node), node)
    assert set(world.decide(gang(2, 1000)).victims) == {"p0", "p1"}


@pytest.mark.parametrize("whole", [True, False])
def test_a_gang_breaks_another_only_if_pods_of_no_group_do_not_suffice(whole: bool) -> None:
    """Although theirs are the nodes that score best when all are gone."""
    world = GangWorld()
    for cpu in (1500, 1500, 1000, 1000):
        world.node(cpu=cpu, slots=10)
    world.group("default/g", whole=whole)
    for node in range(2):
        world.bind(f"g{node}", member(1000), node)
        world.bind(f"alone{node}", pod(1000), node + 2)
    assert set(world.decide(gang(2, 1000)).victims) == {"alone0", "alone1"}
    found = set(world.decide(gang(3, 1000)).victims)
    assert len(found) == 3
    assert not whole or {"g0", "g1"} <= found


def test_a_part_of_a_group_that_goes_as_a_whole_stays_nowhere() -> None:
    world = GangWorld(nodes=3, cpu=1000)
    world.group("default/g", whole=True)
    for node in range(3):
        world.bind(f"g{node}", member(1000), node)
    assert set(world.decide(gang(2, 1000)).victims) == {"g0", "g1", "g2"}


def test_pods_under_a_spent_budget_go_last() -> None:
    world = GangWorld(nodes=3, cpu=1000)
    for node, app in enumerate("abc"):
        world.bind(app, pod(1000, app=app, priority=5 * (app == "c")), node)
    world.budget("a", 0)
    assert set(world.decide(gang(2, 1000)).victims) == {"b", "c"}
    assert set(world.decide(gang(3, 1000)).victims) == {"a", "b", "c"}


def test_with_strict_budgets_nobody_goes_beyond_them() -> None:
    world = GangWorld(nodes=3, cpu=1000, strict=True)
    for node in range(3):
        world.bind(f"p{node}", pod(1000), node)
    world.budget("a", 2)
    assert len(world.decide(gang(2, 1000)).victims) == 2
    found = world.decide(gang(3, 1000))
    assert (found.rows, found.message) == ((), GUARDED)
    world.budget("a", 0)
    assert world.decide(gang(2, 1000)).message == NOBODY_LOWER


def test_a_gang_stays_in_one_domain_and_preempts_there_only() -> None:
    world = GangWorld()
    for zone in "aabb":
        world.node(cpu=1000, slots=10, labels=(("zone", zone),))
    world.group("default/new", topology_key="zone", topology_required=True)
    for node, priority in enumerate((0, 5, 3, 3)):
        world.bind(f"p{node}", pod(1000, priority=priority), node)
    found = world.decide(gang(2, 1000))
    assert set(found.victims) == {"p2", "p3"}, "the domain of the least highest priority"


def test_members_that_repel_each_other_are_not_put_on_one_node() -> None:
    """A filter that looks at other nodes: everybody may matter."""
    world = GangWorld()
    for zone in "ab":
        world.node(cpu=ROOMY, slots=10, labels=(("zone", zone),))
    terms = (PodTerm("zone", ("default",), None, (Requirement("app", "In", ("b", "c")),)),)
    shape = member(1000, group="default/new", priority=10, app="b", anti_affinity=terms)
    for node in range(2):
        world.bind(f"c{node}", pod(100, app="c"), node)
        world.bind(f"other{node}", pod(100, app="a"), node)
    found = world.decide([shape, shape])
    assert sorted(found.rows) == [0, 1]
    assert set(found.victims) == {"c0", "c1"}


def test_members_nominated_to_one_node_are_not_in_each_others_way() -> None:
    world = GangWorld(nodes=1, cpu=2000)
    shapes = gang(2, 1000)
    for i, shape in enumerate(shapes):
        world.nominate(f"m{i}", shape, "n0")
    world.flush()
    waiting = [msgspec.structs.replace(shape, nominated_node="n0") for shape in shapes]
    placer = GangPlacer(world.kernel, world.snapshot)
    assert placer.place(waiting, uids=["m0", "m1"], seed=1, avoid=()) == [0, 0]
    for shape in waiting:
        world.snapshot.remove_pod(shape, 0)
    assert len(world.snapshot.nominations.on("n0")) == 2
    world.snapshot.validate()


def test_while_victims_are_on_their_way_nobody_else_is_asked() -> None:
    world = GangWorld(nodes=2, cpu=1000)
    world.bind("leaving", pod(1000), 0, flags=LEAVING | PREEMPTED)
    world.bind("other", pod(1000), 1)
    shapes = [msgspec.structs.replace(s, nominated_node="n0") for s in gang(2, 1000)]
    found = world.decide(shapes)
    assert (found.message, found.rows) == (ONGOING, ())
    assert (found.clears, found.waits) == (False, True)


def test_a_gang_that_may_not_preempt_does_not() -> None:
    world = GangWorld(nodes=1, cpu=1000)
    world.bind("low", pod(1000), 0)
    shapes = [*gang(1, 500), *gang(1, 500, preemption_policy="Never")]
    assert world.decide(shapes).message == NEVER


def test_nobody_of_less_priority_is_there() -> None:
    world = GangWorld(nodes=1, cpu=1000)
    world.bind("equal", pod(1000, priority=10), 0)
    assert world.decide(gang(2, 500)).message == NOBODY_LOWER


def random_world(rng: random.Random) -> tuple[GangWorld, dict[str, tuple[Shape, int]]]:
    """Nodes in three zones with pods of three groups and of none."""
    world = GangWorld()
    for node in range(8):
        world.node(cpu=rng.choice((1000, 2000, 3000)), slots=6, labels=(("zone", str(node % 3)),))
    if rng.random() < 0.5:
        world.group("default/new", topology_key="zone", topology_required=True)
    world.flush()
    priorities = {"default/a": 0, "default/b": 5, "default/c": 20}
    bound: dict[str, tuple[Shape, int]] = {}
    for _ in range(rng.randint(8, 30)):
        uid = str(uuid.UUID(int=rng.getrandbits(128)))
        key = rng.choice(("", "", *priorities))
        priority = priorities.get(key, rng.choice((0, 5, 20)))
        shape = pod(
            rng.choice((100, 500, 1000)), priority=priority, app=rng.choice("ab"), group=key
        )
        bound[uid] = shape, rng.randrange(8)
        world.bind(uid, *bound[uid], start=rng.randint(1, 9))
    if rng.random() < 0.5:
        world.budget("b", rng.randint(0, 2))
    return world, bound


@pytest.mark.parametrize("seed", range(60))
def test_what_is_decided_suffices_is_minimal_and_breaks_no_group(seed: int) -> None:
    rng = random.Random(seed)
    world, bound = random_world(rng)
    whole = {f"default/{name}": rng.random() < 0.6 for name in "abc"}
    for key, as_a_whole in whole.items():
        world.group(key, whole=as_a_whole)
    world.flush()
    shapes = gang(rng.randint(2, 6), rng.choice((500, 1000)))
    placer = GangPlacer(world.kernel, world.snapshot)
    if rows := placer.place(shapes, seed=seed, avoid=()):
        for row in rows:
            world.snapshot.remove_pod(shapes[0], row)
        return
    found = placer.preempt(shapes, uids=(), seed=seed, avoid=())
    assert found is not None
    world.snapshot.validate()
    victims = set(found.victims)
    assert all(bound[uid][0].priority < 10 for uid in victims)
    for key, as_a_whole in whole.items():
        of = {uid for uid, (shape, _) in bound.items() if shape.group == key}
        assert not as_a_whole or not victims & of or of <= victims, f"a part of {key} goes"
    if not found.rows:
        assert not victims
        without(world, bound, {uid for uid, (shape, _) in bound.items() if shape.priority < 10})
        assert not placer.place(shapes, seed=seed, avoid=()), "it would fit"
        return
    without(world, bound, victims)
    assert world.kernel.seats(shapes, found.rows).hold()
    for back in lots_of(victims, bound, whole):
        for uid in back:
            world.bind(uid, *bound[uid])
        world.flush()
        assert not world.kernel.seats(shapes, found.rows).hold(), f"{back} go in vain"
        without(world, bound, back)


def lots_of(
    victims: set[str], bound: dict[str, tuple[Shape, int]], whole: dict[str, bool]
) -> list[set[str]]:
    """The victims by what goes together."""
    lots: dict[str, set[str]] = {}
    for uid in victims:
        group = bound[uid][0].group
        lots.setdefault(group if whole.get(group) else uid, set()).add(uid)
    return list(lots.values())


def without(world: GangWorld, bound: dict[str, tuple[Shape, int]], uids: set[str]) -> None:
    for uid in uids:
        world.leave(uid, *bound[uid])
    world.flush()
