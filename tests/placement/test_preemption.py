"""Preemption: the table over all nodes says what trying node by node says; nominated pods keep
their room; and the cases that upstream's rules single out."""

from __future__ import annotations

import random
import uuid

import msgspec
import numpy as np
import pytest

from stretto.model.groups import LEGACY_GROUPS, POD_GROUP, GroupRow, encode_group
from stretto.model.shape import HostPort, NodeTerm, PodTerm, Requirement, Shape
from stretto.model.unit import Cause
from stretto.placement.framework import Code, Status
from stretto.placement.kernel import Kernel
from stretto.placement.lots import Lots
from stretto.placement.preemption import NEVER, TERMINATING, Preemption
from stretto.placement.profiles import Profiles
from stretto.placement.victim_table import POSSIBLE, VictimTable, only_fit
from stretto.placement.victims import Victims
from stretto.snapshot.budgets import BUDGET, BudgetRow, encode_budget
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import Delta, NodeChange, NodeRow, ObjectRow
from stretto.snapshot.nominations import NOMINATION, NominationRow, encode_nomination
from stretto.snapshot.pod_records import LEAVING, PREEMPTED

APPS = ("a", "b", "c")
GROUPS = ("default/one", "default/two", f"default/three{LEGACY_GROUPS}")


def pod(cpu: int, *, priority: int = 0, app: str = "a", memory: int = 0, **fields) -> Shape:
    """A shape that asks for cpu (milli) and memory."""
    asked = {"cpu": cpu, "memory": memory}
    return Shape(
        profile="stretto",
        namespace="default",
        priority=priority,
        requests=tuple((name, amount) for name, amount in asked.items() if amount),
        nonzero_cpu_milli=cpu,
        nonzero_memory=memory,
        labels=(("app", app),),
        label_keys=("app",),
        **fields,
    )


class World:
    """A snapshot that is advanced by deltas, and a kernel on it."""

    def __init__(
        self, *, nodes: int = 0, cpu: int = 4000, slots: int = 10, strict: bool = False
    ) -> None:
        self.snapshot = Snapshot()
        gates = {"StrictDisruptionBudgets": strict}
        self.kernel = Kernel(self.snapshot, Profiles.default(gates=gates))
        self.sequence = 0
        self.shapes: dict[bytes, int] = {}
        self.delta = self._open()
        for _ in range(nodes):
            self.node(cpu=cpu, slots=slots)
        self.flush()

    def _open(self) -> Delta:
        self.sequence += 1
        return Delta(epoch=1, sequence=self.sequence)

    def flush(self) -> None:
        self.snapshot.apply(self.delta)
        self.delta = self._open()

    def node(self, *, cpu: int, slots: int, memory: int = 1000, **fields) -> None:
        number = self.snapshot.rows + len(self.delta.nodes)
        room = (("cpu", cpu), ("memory", memory), ("pods", slots))
        row = NodeRow(f"n{number}", f"u{number}", allocatable=room, **fields)
        self.delta.nodes.append(NodeChange(number + 1, row))

    def number(self, shape: Shape) -> int:
        known = self.shapes.get(shape.digest)
        if known is None:
            known = self.shapes[shape.digest] = len(self.shapes) + 1
            self.delta.shapes.append((known, shape))
        return known

    def bind(self, uid: str, shape: Shape, node: int, *, start: int = 0, flags: int = 0) -> None:
        self.delta.add_pod(
            shape_id=self.number(shape), node_id=node + 1, uid=uid, start_s=start, flags=flags
        )

    def leave(self, uid: str, shape: Shape, node: int) -> None:
        self.delta.add_pod(shape_id=self.number(shape), node_id=node + 1, uid=uid, sign=-1)

    def budget(
        self, app: str, allowed: int, *, disrupted: tuple[str, ...] = (), name: str = ""
    ) -> None:
        row = BudgetRow("default", (Requirement("app", "In", (app,)),), allowed, disrupted)
        key = f"default/{name or app}"
        self.delta.objects.append(ObjectRow(BUDGET, key, payload=encode_budget(row)))

    def nominate(self, uid: str, shape: Shape, node: str) -> None:
        payload = encode_nomination(NominationRow(node, self.number(shape)))
        self.delta.objects.append(ObjectRow(NOMINATION, uid, payload=payload))

    def denominate(self, uid: str) -> None:
        self.delta.objects.append(ObjectRow(NOMINATION, uid, removed=True))

    def victims(self, shape: Shape, row: int = 0) -> list[str]:
        found = self.kernel.victims_on(shape, row)
        assert isinstance(found, Victims), found
        return [victim.record.uid for victim in found.pods]

    def post_filter(self, shape: Shape):
        return self.kernel.post_filter(shape, seed=1, by_name=True)


def random_pod(rng: random.Random) -> Shape:
    return pod(
        rng.choice((0, 100, 500, 1000)),
        priority=rng.choice((-5, 0, 10, 20)),
        app=rng.choice(APPS),
        memory=rng.choice((0, 0, 100, 300)),
        group=rng.choice(("", "", "", *GROUPS)),
    )


def stir(world: World, rng: random.Random, bound: dict[str, tuple[Shape, int]]) -> None:
    """Some random changes as one step of the log."""
    rows = world.snapshot.rows
    for _ in range(rng.randint(1, 6)):
        uid = str(uuid.UUID(int=rng.getrandbits(128)))
        bound[uid] = random_pod(rng), rng.randrange(rows)
        world.bind(uid, *bound[uid], start=rng.choice((0, rng.randint(1, 9))))
    for uid in rng.sample(sorted(bound), min(len(bound), rng.randint(0, 2))):
        world.leave(uid, *bound.pop(uid))
    for uid in rng.sample(sorted(bound), min(len(bound), rng.randint(0, 2))):
        shape, node = bound[uid]
        world.delta.add_pod(
            shape_id=world.number(shape),
            node_id=node + 1,
            uid=uid,
            sign=0,
            start_s=rng.randint(1, 99),
        )
    if rng.random() < 0.4:
        disrupted = tuple(rng.sample(sorted(bound), min(len(bound), rng.randint(0, 2))))
        world.budget(rng.choice(APPS), rng.randint(-1, 3), disrupted=disrupted)
    if rng.random() < 0.3:
        row = GroupRow(2, whole=rng.random() < 0.6, priority=rng.choice((None, None, 5, 15)))
        payload = encode_group(row)
        world.delta.objects.append(ObjectRow(POD_GROUP, rng.choice(GROUPS), payload=payload))
    if rng.random() < 0.4:
        world.nominate(f"nominee-{rng.randint(0, 3)}", random_pod(rng), f"n{rng.randrange(rows)}")
    elif rng.random() < 0.3:
        world.denominate(f"nominee-{rng.randint(0, 3)}")
    world.flush()


@pytest.mark.parametrize("seed", range(30))
def test_the_table_says_of_every_node_what_the_exact_form_says(seed):
    rng = random.Random(seed)
    world = World()
    for _ in range(6):
        world.node(
            cpu=rng.choice((500, 2000)), slots=rng.choice((3, 8)), memory=rng.choice((90, 500))
        )
    world.flush()
    bound: dict[str, tuple[Shape, int]] = {}
    shapes = [random_pod(rng) for _ in range(3)]
    tables = {}
    for _ in range(12):
        stir(world, rng, bound)
        before = world.snapshot.stamp
        for shape in shapes:
            compiled = world.kernel._compiled(shape)
            fit = only_fit(compiled)
            assert fit is not None
            table = tables.setdefault(
                shape.digest, VictimTable(compiled, fit, world.snapshot, Lots(world.snapshot))
            )
            preemption = Preemption(world.snapshot)
            table.refresh(preemption.budgets())
            run = preemption.dry_run(compiled)
            assert set(np.flatnonzero(table.state).tolist()) == run.works.keys() | run.fails.keys()
            assert set(np.flatnonzero(table.state == POSSIBLE).tolist()) == run.works.keys()
            for row, victims in run.works.items():
                assert tuple(table.keys[:, row].tolist()) == victims.rank
            world.kernel.post_filter(shape, seed=seed)  # asserts that both agree on the choice
        assert world.snapshot.stamp == before, "a question leaves no trace"
        world.snapshot.validate()


@pytest.mark.parametrize("seed", range(20))
def test_kept_totals_know_of_nominated_pods_as_a_fresh_check_does(seed):
    rng = random.Random(seed)
    world = World()
    for _ in range(6):
        world.node(cpu=rng.choice((500, 2000)), slots=rng.choice((3, 8)))
    world.flush()
    bound: dict[str, tuple[Shape, int]] = {}
    shapes = [random_pod(rng) for _ in range(4)]
    shapes.append(msgspec.structs.replace(shapes[0], nominated_node="n1"))
    for _ in range(15):
        stir(world, rng, bound)
        for shape in shapes:
            totals = world.kernel.totals(shape)
            checks = [world.kernel.check_one(shape, row) is Cause.NONE for row in range(6)]
            assert [total >= 0 for total in totals] == checks
            assert world.kernel.filter(shape).tolist() == checks
            evaluation = world.kernel.evaluate(shape)
            assert evaluation.feasible == [row for row, fits in enumerate(checks) if fits]
            assert world.kernel.diagnose(shape).message.count("available:") == 1


def test_room_of_a_nominated_pod_is_taken_for_less_priority_but_not_for_itself_or_more():
    world = World(nodes=1, cpu=1000)
    nominee = pod(1000, priority=5)
    world.nominate("nominee", nominee, "n0")
    world.flush()
    check = world.kernel.check_one
    assert check(pod(500, priority=5), 0) is Cause.CAPACITY
    assert check(pod(500, priority=6), 0) is Cause.NONE
    assert check(msgspec.structs.replace(nominee, nominated_node="n0"), 0) is Cause.NONE
    assert check(nominee, 0) is Cause.CAPACITY, "another pod of its shape"
    assert world.kernel.place(pod(500, priority=5), 1, seed=1).rows == []
    message = world.kernel.diagnose(pod(500)).message
    assert message == "0/1 nodes are available: 1 Insufficient cpu."
    world.denominate("nominee")
    world.flush()
    assert check(pod(500, priority=5), 0) is Cause.NONE


def test_anti_affinity_of_a_nominated_pod_counts_only_while_some_placed_pod_has_such():
    """InterPodAffinity's PreFilter skips the plugin otherwise, and with it what is nominated."""
    world = World()
    for name in ("n0", "n1"):
        world.node(cpu=4000, slots=9, labels=(("host", name),))
    term = PodTerm("host", ("default",), None, (Requirement("app", "In", ("a",)),))
    lonely = pod(100, priority=5, app="b", anti_affinity=(term,))
    world.nominate("nominee", lonely, "n0")
    world.flush()
    shape = pod(100, app="a")

    def fits() -> list[bool]:
        found = [world.kernel.check_one(shape, row) is Cause.NONE for row in (0, 1)]
        assert world.kernel.filter(shape).tolist() == found
        assert world.kernel.evaluate(shape).feasible == np.flatnonzero(found).tolist()
        assert [total >= 0 for total in world.kernel.totals(shape)] == found
        return found

    assert fits() == [True, True]
    world.bind("placed", lonely, 1)
    world.flush()
    assert fits() == [False, False]
    world.leave("placed", lonely, 1)
    world.flush()
    assert fits() == [True, True]


def test_the_node_that_a_pod_is_nominated_to_is_reported_as_its_filters_see_it():
    world = World(nodes=3)
    only = (NodeTerm(fields=(Requirement("metadata.name", "In", ("n1",)),)),)
    shape = pod(5000, priority=1, required_node_terms=only)
    outside = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
    assert world.kernel.diagnose(shape).message == (
        f"0/3 nodes are available: 1 Insufficient cpu, 2 {outside}."
    )
    waiting = msgspec.structs.replace(shape, nominated_node="n0")
    assert world.kernel.diagnose(waiting).message == (
        "0/3 nodes are available: 1 Insufficient cpu, "
        f"1 node(s) didn't match Pod's node affinity/selector, 1 {outside}."
    )


def test_a_nomination_to_a_node_that_comes_later_counts_from_then_on():
    world = World(nodes=1, cpu=100)
    world.nominate("nominee", pod(4000, priority=5), "n1")
    world.flush()
    world.node(cpu=4000, slots=10)
    world.flush()
    assert world.kernel.check_one(pod(500), 1) is Cause.CAPACITY


def test_the_least_important_go_and_those_that_can_come_back_stay():
    world = World(nodes=1, cpu=4000)
    for uid, cpu, priority, start in (
        ("old", 1000, 0, 10), ("young", 1000, 0, 90), ("mid", 1000, 5, 50), ("top", 1000, 100, 1),
    ):  # fmt: skip
        world.bind(uid, pod(cpu, priority=priority), 0, start=start)
    world.flush()
    assert world.victims(pod(1000, priority=50)) == ["young"]
    assert world.victims(pod(2000, priority=50)) == ["old", "young"]
    assert world.victims(pod(3000, priority=50)) == ["mid", "old", "young"]
    status = world.kernel.victims_on(pod(3500, priority=50), 0)
    assert status == Status(Code.UNSCHEDULABLE, "NodeResourcesFit", ("Insufficient cpu",))
    nobody = world.kernel.victims_on(pod(1000, priority=-1), 0)
    assert isinstance(nobody, Status)
    assert nobody.code is Code.UNRESOLVABLE


def test_budgets_decide_who_comes_back_first_and_which_node_is_taken():
    world = World(nodes=2, cpu=2000)
    world.bind("guarded", pod(1000, app="a"), 0, start=9)
    world.bind("plain", pod(1000, app="b"), 0, start=1)
    world.bind("g1", pod(1000, app="a"), 1, start=1)
    world.bind("g2", pod(1000, app="a"), 1, start=2)
    world.budget("a", 0)
    world.flush()
    high = pod(1000, priority=9)
    assert world.victims(high, 0) == ["plain"], "although it runs for longer"
    found = world.post_filter(high)
    assert (found.nominate, found.victims) == ("n0", ("plain",))
    assert [(c.row, c.pdb_violations) for c in found.candidates] == [(0, 0), (1, 1)]
    world.budget("a", 0, disrupted=("g1", "g2", "guarded"))
    world.flush()
    assert world.victims(high, 0) == ["guarded"], "evicted already: it violates nothing"


def test_a_pod_that_violates_one_budget_is_not_counted_against_the_next():
    world = World(nodes=1, cpu=3000)
    for uid, app, tier in (("both", "a", "x"), ("second", "b", "x"), ("third", "b", "x")):
        shape = pod(1000, app=app)
        labels = (("app", app), ("tier", tier))
        world.bind(uid, msgspec.structs.replace(shape, labels=labels), 0, start=len(uid))
    for name, key, value, allowed in (("1", "app", "a", 0), ("2", "tier", "x", 1)):
        row = BudgetRow("default", (Requirement(key, "In", (value,)),), allowed)
        world.delta.objects.append(ObjectRow(BUDGET, f"default/{name}", payload=encode_budget(row)))
    world.flush()
    (candidate,) = world.post_filter(pod(3000, priority=9)).candidates
    assert candidate.pdb_violations == 2


def test_strict_budgets_are_never_violated_and_the_message_says_so():
    for strict in (False, True):
        world = World(nodes=2, cpu=2000, strict=strict)
        world.bind("guarded", pod(2000, app="a"), 0)
        world.bind("plain", pod(2000, priority=5, app="b"), 1)
        world.budget("a", 0)
        world.flush()
        high = pod(2000, priority=9)
        assert world.post_filter(high).victims == ("plain",)
        world.leave("plain", pod(2000, priority=5, app="b"), 1)
        world.bind("top", pod(2000, priority=9, app="b"), 1)
        world.flush()
        found = world.post_filter(high)
        assert found.victims == (() if strict else ("guarded",))
    assert found.message == (
        "preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, "
        "1 node(s) whose pods are protected by a disruption budget."
    )


def test_strict_budgets_protect_who_is_under_several():
    for strict in (False, True):
        world = World(nodes=1, cpu=2000, strict=strict)
        world.bind("guarded", pod(2000, app="a"), 0)
        world.budget("a", 1)
        world.budget("a", 1, name="other")
        world.flush()
        found = world.post_filter(pod(2000, priority=9))
        assert found.victims == (() if strict else ("guarded",))


def test_who_may_not_preempt_is_told_so():
    world = World(nodes=1, cpu=1000)
    world.bind("v", pod(1000), 0, flags=LEAVING | PREEMPTED)
    world.flush()
    never = pod(500, priority=9, preemption_policy="Never")
    assert world.post_filter(never).message == f"preemption: {NEVER}"
    waiting = pod(500, priority=9, nominated_node="n0")
    found = world.post_filter(waiting)
    assert (found.message, found.nominate) == (f"preemption: {TERMINATING}", None)
    low = pod(500, priority=0, nominated_node="n0")
    assert world.post_filter(low).nominate == "", "nobody of less priority: the nomination ends"


def test_a_second_preemptor_does_not_count_on_the_victim_of_the_first():
    world = World(nodes=1, cpu=2000)
    world.bind("v1", pod(1000), 0, start=1)
    world.bind("v2", pod(1000), 0, start=2)
    world.flush()
    first = pod(1000, priority=9)
    assert world.victims(first) == ["v2"]
    world.nominate("p1", first, "n0")
    world.flush()
    assert world.victims(first) == ["v1", "v2"], "one for each of the two preemptors"
    world.nominate("p2", first, "n0")
    world.flush()
    assert world.post_filter(first).message.endswith("1 Insufficient cpu.")


def test_ports_are_freed_by_victims_too():
    world = World(nodes=1, cpu=9000)
    holder = pod(100, host_ports=(HostPort("TCP", "0.0.0.0", 80),))
    world.bind("other", pod(100), 0)
    world.bind("holder", holder, 0)
    world.flush()
    wants = pod(100, priority=1, host_ports=(HostPort("TCP", "10.0.0.1", 80),))
    found = world.post_filter(wants)
    assert found.victims == ("holder",)
    assert found.message == (
        "preemption: found a potential placement for pod on node n0, preempting 1 victims"
    )
    assert world.kernel.check_one(wants, 0) is Cause.NODE_CHANGED


def test_equal_nodes_are_taken_by_chance_and_the_same_seed_takes_the_same():
    world = World(nodes=8, cpu=1000)
    for node in range(8):
        world.bind(f"v{node}", pod(1000), node, start=5)
    world.flush()
    taken = {world.kernel.post_filter(pod(500, priority=1), seed=s).nominate for s in range(40)}
    assert len(taken) > 3
    again = {world.kernel.post_filter(pod(500, priority=1), seed=7).nominate for _ in range(3)}
    assert len(again) == 1
