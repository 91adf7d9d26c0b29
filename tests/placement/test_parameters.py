"""Pods that differ in parameters only (the one node of a DaemonSet's pod, the names of claims) are
decided exactly as if nothing were shared between them."""

from __future__ import annotations

import random

import msgspec
import pytest

from stretto.model.devices import CLAIM as DEVICE_CLAIM
from stretto.model.devices import CLASS as DEVICE_CLASS
from stretto.model.devices import (
    SLICE,
    Allocation,
    ClassRow,
    Constraint,
    DeviceRow,
    NodeChoice,
    Request,
    Result,
    SliceRow,
    SubRequest,
    encode_row,
)
from stretto.model.devices import ClaimRow as DeviceClaim
from stretto.model.shape import ClaimRef, NodeTerm, Requirement, Shape
from stretto.placement.kernel import Kernel
from stretto.placement.profiles import Profiles
from stretto.snapshot.delta import Delta, ObjectRow
from tests.placement import worlds
from tests.placement.storage import claim, cluster, pod, put
from tests.placement.test_volumes import Changing

UNNARROWED = {
    "schedulerName": "stretto",
    "plugins": {"preFilter": {"disabled": [{"name": "NodeAffinity"}]}},
}
"""NodeAffinity filters and narrows nothing beforehand."""


def kernel_on(snapshot, *, profile=None):
    if profile is None:
        return Kernel(snapshot, Profiles.default())
    return Kernel(snapshot, Profiles.from_configuration({"profiles": [profile]}))


def daemons(rng, nodes, *, tied):
    """Pods of a DaemonSet, one for each name: alike but for that."""
    shape = worlds.tied_shape(rng) if tied else worlds.shape(rng)
    terms = rng.choice(
        (None, None, tuple(NodeTerm((worlds.requirement(rng),)) for _ in range(rng.randint(1, 2))))
    )
    shape = msgspec.structs.replace(shape, required_node_terms=terms, priority=rng.randint(0, 2))
    return [msgspec.structs.replace(shape, only_node=name) for name in nodes]


def in_full(kernel, shape, seed):
    """Everything a shard and the Binder ask about a pod, rows by name."""
    snapshot = kernel._snapshot
    checks = [kernel.check_one(shape, row) for row in range(snapshot.rows)]
    mask = kernel.filter(shape).tolist()
    diagnosis = kernel.diagnose(shape)
    result = kernel.post_filter(shape, seed=seed, by_name=True)
    rows = kernel.place(shape, 1, seed=seed).rows
    return checks, mask, diagnosis, result, rows


@pytest.mark.parametrize("seed", range(30))
def test_daemon_pods_are_decided_as_with_their_node_written_out(seed):
    rng = random.Random(seed)
    one, many = (worlds.cluster(random.Random(seed), 10) for _ in range(2))
    profile = UNNARROWED if seed % 5 == 4 else None
    kept = kernel_on(many, profile=profile)
    known = []
    names = [*(f"node-{n}" for n in range(10)), "gone"]
    sets = [daemons(rng, names, tied=seed % 3 == 1) for _ in range(2)]
    for step in range(6):
        delta = worlds.step(rng, many, known)
        one.apply(delta)
        many.apply(delta)
        for shape in (rng.choice(rng.choice(sets)) for _ in range(6)):
            fresh = kernel_on(one, profile=profile)
            many.assumer = kept
            expected = in_full(fresh, shape.spelled_out, seed + step)
            assert in_full(kept, shape, seed + step) == expected
            for row in expected[-1]:
                if rng.random() < 0.5:
                    one.remove_pod(shape.spelled_out, row)
                    many.remove_pod(shape, row)
    one.validate()
    many.validate()


def test_daemon_pods_are_compiled_once_and_look_at_their_node_alone():
    rng = random.Random(3)
    snapshot = worlds.cluster(rng, 40)
    kernel = kernel_on(snapshot)
    shapes = daemons(rng, [f"node-{n}" for n in range(40)], tied=False)
    for shape in shapes:
        kernel.place(shape, 1, seed=1)
    statistics = kernel.statistics()
    assert statistics["shapes"] == 1
    assert statistics["builds"] == 0


def test_terms_that_name_different_nodes_are_no_parameter():
    one = NodeTerm((), (Requirement("metadata.name", "In", ("n1",)),))
    shape = worlds.shape(random.Random(1))
    spelled = msgspec.structs.replace(shape, required_node_terms=None, only_node="n1").spelled_out
    assert spelled.required_node_terms == (one,)
    assert spelled.only_node == ""


@pytest.mark.parametrize("seed", range(12))
def test_pods_with_claims_of_their_own_go_where_pods_that_share_nothing_go(seed):
    one, many = Changing(seed), Changing(seed)
    kept = kernel_on(many.snapshot)
    rng = random.Random(seed)
    running = []
    for step in range(25):
        fresh = kernel_on(one.snapshot)
        one.change()
        many.snapshot.assumer = kept
        many.change()
        cls, size = rng.choice((("fast", 1), ("fast", 2), ("local", 1))), rng.randint(1, 2)
        for number in range(3):
            name = f"data-{step}-{number}"
            shape = pod(name)
            for world in (one, many):
                put(world.snapshot, claim(name, cls[1] * size, cls=cls[0]))
            fresh = kernel_on(one.snapshot)
            expected = fresh.place(shape, 1, seed=step, spares=2)
            many.snapshot.assumer = kept
            found = kept.place(shape, 1, seed=step, spares=2)
            assert (found.rows, found.spares) == (expected.rows, expected.spares)
            assert kept.diagnose(shape) == fresh.diagnose(shape)
            running += [(shape, row) for row in found.rows]
            if running and rng.random() < 0.4:
                gone = running.pop(rng.randrange(len(running)))
                one.snapshot.remove_pod(*gone)
                many.snapshot.remove_pod(*gone)
    one.snapshot.validate()
    many.snapshot.validate()


GPU = "gpu.example.com"


def gpu(name, count=1, *, forms=(), constraints=(), owner=""):
    """A claim to so many devices, or to one of the numbers in ``forms``, all of one kind."""
    if forms:
        alternatives = tuple(SubRequest(f"s{n}", "gpu", count=n) for n in forms)
        request = Request("r", alternatives=alternatives)
    else:
        request = Request("r", SubRequest("r", "gpu", count=count))
    return DeviceClaim("default", name, f"uid-{name}", (request,), constraints, owner_uid=owner)


class Gpus:
    """Nodes with devices of two models, in two clusters that hear the same."""

    def __init__(self, seed, nodes=6):
        self.rng = random.Random(seed)
        self.pair = [worlds.cluster(random.Random(seed), nodes) for _ in range(2)]
        self.put(DEVICE_CLASS, "gpu", ClassRow("gpu", (f'device.driver == "{GPU}"',)))
        for number in range(nodes):
            self.offer(f"node-{number}", generation=1)
        self.claims = {}

    def put(self, kind, key, row):
        for snapshot in self.pair:
            payload = b"" if row is None else encode_row(row)
            found = ObjectRow(kind, key, payload=payload, removed=row is None)
            sequence = snapshot.version.sequence + 1
            snapshot.apply(Delta(epoch=1, sequence=sequence, objects=[found]))

    def offer(self, node, *, generation):
        """A node has these devices now."""
        devices = tuple(
            DeviceRow(f"gpu-{i}", (("model", self.rng.choice("ab")),))
            for i in range(self.rng.randint(1, 4))
        )
        where = NodeChoice(all_nodes=True) if node == "node-0" else NodeChoice(node)
        self.put(SLICE, node, SliceRow(node, GPU, node, generation, 1, where, devices=devices))

    def claim(self, row):
        self.claims[row.key] = row
        self.put(DEVICE_CLAIM, row.key, row)

    def change(self, step):
        """A claim is allocated, given back or deleted; devices or a node change."""
        key = self.rng.choice([*self.claims, ""])
        roll = self.rng.random()
        if key and roll < 0.5:
            row = self.claims[key]
            results = (Result("r", GPU, f"node-{self.rng.randrange(6)}", "gpu-0"),)
            allocation = None if row.allocation is not None else Allocation(results)
            self.claim(msgspec.structs.replace(row, allocation=allocation))
        elif key and roll < 0.6:
            del self.claims[key]
            self.put(DEVICE_CLAIM, key, None)
        elif roll < 0.8:
            self.offer(f"node-{self.rng.randrange(6)}", generation=step + 2)
        else:
            delta = worlds.step(self.rng, self.pair[1], [])
            for snapshot in self.pair:
                snapshot.apply(delta)


@pytest.mark.parametrize("seed", range(12))
def test_pods_with_device_claims_go_where_pods_that_share_nothing_go(seed):
    world, rng, running = Gpus(seed), random.Random(seed), []
    one, many = world.pair
    kept = kernel_on(many)
    same = (Constraint(("r",), f"{GPU}/model"),)
    kinds = [{}, {"count": 2}, {"count": 2, "constraints": same}, {"forms": (3, 2, 1)}]
    for step in range(20):
        one.assumer, many.assumer = kernel_on(one), kept
        world.change(step)
        kind, owned = rng.choice(kinds), rng.random() < 0.5
        for number in range(3):
            name = f"p-{step}-{number}"
            world.claim(gpu(name, **kind, owner=name if owned and rng.random() < 0.9 else ""))
            names = [name] if rng.random() < 0.8 else [name, *list(world.claims)[:1]]
            shape = Shape(
                "stretto", "default", requests=(("cpu", 100),),
                device_claims=tuple(
                    ClaimRef(n.removeprefix("default/"), owned=owned and n == name) for n in names
                ),
                owner=(name, name) if owned else ("", ""),
            )  # fmt: skip
            fresh = kernel_on(one)
            expected = in_full(fresh, shape, step)
            many.assumer = kept
            assert in_full(kept, shape, step) == expected
            running += [(shape, row) for row in expected[-1]]
            if running and rng.random() < 0.5:
                gone = running.pop(rng.randrange(len(running)))
                one.remove_pod(*gone)
                many.remove_pod(*gone)
    assert kept.statistics()["hits"], "nothing was shared"


def test_pods_of_one_claim_template_share_what_is_compiled_until_their_claims_differ():
    world = Gpus(1)
    _, many = world.pair
    kernel = kernel_on(many)

    def place(name):
        shape = Shape("stretto", "default", device_claims=(ClaimRef(name),))
        return kernel.place(shape, 1, seed=1).rows

    for number in range(4):
        world.claim(gpu(f"c{number}"))
        assert place(f"c{number}")
    assert kernel.statistics()["shapes"] == 1
    world.claim(gpu("two", count=2))
    place("two")
    assert kernel.statistics()["shapes"] == 2
    assert not place("c0"), "it is being allocated"


def test_stateful_pods_share_what_is_compiled_until_their_claims_differ():
    snapshot = cluster(6)
    kernel = kernel_on(snapshot)
    put(snapshot, *(claim(f"data-{n}", cls="fast") for n in range(4)), claim("big", 5, cls="fast"))
    for number in range(4):
        assert kernel.place(pod(f"data-{number}"), 1, seed=number).rows
    assert kernel.statistics()["shapes"] == 1
    assert kernel.place(pod("big"), 1, seed=1).rows
    assert kernel.statistics()["shapes"] == 2
    # data-0 has been given a node by its pod: another pod of the claim is like no other.
    assert kernel.place(pod("data-0"), 1, seed=1).rows
    assert kernel.statistics()["shapes"] == 3
