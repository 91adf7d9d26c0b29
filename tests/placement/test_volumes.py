"""The volume plugins: which volume a claim gets, what is assumed of it, and what that changes."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest

from stretto.model.shape import Disk, Requirement
from stretto.model.unit import Cause
from stretto.placement.framework import View
from stretto.placement.kernel import Kernel
from stretto.placement.profiles import Profiles
from stretto.placement.volume_plan import Outlook, VolumePlan, plan
from stretto.placement.volume_pool import NOTHING, VolumeIndex, is_free, suits, wish_of
from stretto.snapshot.delta import Delta, NodeChange
from stretto.snapshot.volume_rows import (
    CapacityRow,
    CsiDriverRow,
    CsiNodeRow,
    decode_storage,
    encode_storage,
)
from tests.placement.storage import (
    DRIVER,
    GIB,
    HOST,
    claim,
    cluster,
    hosts,
    key_of,
    pod,
    put,
    volume,
    zone,
)

MAKERS = (
    lambda rng: None,
    lambda rng: hosts(f"n{rng.randrange(8)}"),
    lambda rng: hosts(f"n{rng.randrange(8)}", f"n{rng.randrange(8)}"),
    lambda rng: zone(f"z{rng.randrange(3)}"),
    lambda rng: (*zone("z0"), *hosts("n1")),
)


def kernel_on(snapshot):
    return Kernel(snapshot, Profiles.default())


def placed(kernel, shape, count=1, seed=1):
    return [kernel._snapshot.name[row] for row in kernel.place(shape, count, seed=seed).rows]


def naive(snapshot, row, wish, cls):
    """The smallest volume for a wish on a row, by looking at all of them."""
    book, labels = snapshot.volumes, dict(snapshot.node(row).labels)
    found = [
        v
        for v in book.volumes.values()
        if v.storage_class == cls and is_free(v, book) and suits(v, wish)
        and (
            v.terms is None
            or any(labels.get(r.key) in r.values for t in v.terms for r in t.expressions)
        )
    ]  # fmt: skip
    return min(found, key=lambda v: (v.capacity, v.name), default=None)


@pytest.mark.parametrize("seed", range(12))
def test_the_best_volumes_are_the_naive_ones_whatever_changes(seed):
    rng = random.Random(seed)
    snapshot = cluster(8, zones=3)
    wishes = [wish_of(claim("c", size)) for size in (1, 2, 4)]
    pool = VolumeIndex.of(snapshot).pool("local")
    for step in range(40):
        name = f"v{rng.randrange(10)}"
        dice = rng.random()
        if dice < 0.15:
            put(snapshot, removed=[volume(name)])
        elif dice < 0.3 and name in snapshot.volumes.volumes:
            if name in snapshot.volumes.taken:
                snapshot.volumes.forget(snapshot.volumes.taken[name])
            else:
                snapshot.volumes.assume(f"default/c-{name}", volume=name)
        elif dice < 0.4:
            row = rng.randrange(8)
            node = snapshot.node(row)
            labels = ((HOST, node.name), ("zone", f"z{rng.randrange(3)}"))
            change = NodeChange(row + 1, msgspec.structs.replace(node, labels=labels))
            sequence = snapshot.version.sequence + 1
            snapshot.apply(Delta(epoch=1, sequence=sequence, nodes=[change]))
        else:
            terms = rng.choice(MAKERS)(rng)
            put(snapshot, volume(name, rng.randint(1, 5), terms=terms))
        if step % 3:
            continue
        for wish in wishes:
            best = pool.best(wish)
            for row in range(snapshot.rows):
                expected = naive(snapshot, row, wish, "local")
                assert best.volume(row) == expected
                size = NOTHING if expected is None else expected.capacity
                assert best.capacity[row] == size
                fitting = pool.on_row(row, wish)
                assert (fitting[0] if fitting else None) == expected
    snapshot.validate()


@pytest.mark.parametrize("seed", range(6))
def test_all_rows_at_once_say_what_each_row_says(seed):
    rng = random.Random(seed)
    snapshot = cluster(8, zones=3)
    put(snapshot, CsiDriverRow(DRIVER, storage_capacity=True))
    for n in range(8):
        put(snapshot, volume(f"v{n}", rng.randint(1, 3), terms=rng.choice(MAKERS)(rng)))
    for z in range(2):
        topology = (Requirement("zone", "In", (f"z{z}",)),)
        put(snapshot, CapacityRow("fast", (z + 1) * GIB, topology=topology))
    put(snapshot, claim("a", 1), claim("b", 2), claim("c", 2, cls="fast"), claim("d", 1))
    put(snapshot, volume("bound", 9, claim="e", terms=zone("z0", "z1")))
    put(snapshot, claim("e", 9, volume="bound"))
    kernel = kernel_on(snapshot)
    for names in (("a",), ("a", "b"), ("a", "b", "d"), ("c",), ("e", "c"), ("e", "a")):
        shape = pod(*names)
        whole = Outlook(shape, snapshot, View(snapshot))
        for row in range(snapshot.rows):
            one = Outlook(shape, snapshot, View(snapshot, np.array([row], dtype=np.int64)))
            assert whole.passes[row] == one.passes[0]
            assert (kernel.check_one(shape, row) is Cause.NONE) == whole.passes[row]
            if whole.passes[row]:
                made = plan(shape, row, snapshot)
                chosen = {key: snapshot.volumes.volumes[v].capacity for key, v in made.static}
                served = {s.claim.key: s for s in whole.served}
                for key, capacity in chosen.items():
                    assert served[key].static[row]
                    assert served[key].capacity[row] == capacity
                assert len(set(chosen)) == len(made.static)


def test_a_claim_that_a_pod_is_placed_for_draws_the_next_pod_to_its_volume():
    snapshot = cluster()
    kernel = kernel_on(snapshot)
    put(snapshot, claim("data"), *(volume(f"v{i}", terms=hosts(f"n{i}")) for i in range(4)))
    first = placed(kernel, pod("data"), 3)
    assert len(first) == 3
    assert len(set(first)) == 1
    other = pod("other")
    put(snapshot, claim("other"))
    assert placed(kernel, other)[0] != first[0], "its volume is taken"
    row = snapshot.row_of_name(first[0])
    for _ in range(3):
        assert snapshot.volumes.taken
        snapshot.remove_pod(pod("data"), row)
    assert [a.volume for a in snapshot.volumes.assumed.values()] != []
    assert len(snapshot.volumes.taken) == 1


def test_a_claim_to_provision_is_provisioned_on_one_node():
    snapshot = cluster()
    kernel = kernel_on(snapshot)
    put(snapshot, claim("data", cls="fast"))
    rows = kernel.place(pod("data"), 4, seed=3).rows
    assert len(set(rows)) == 1
    assert plan(pod("data"), rows[0], snapshot) == VolumePlan((), ("default/data",))
    for row in rows:
        snapshot.remove_pod(pod("data"), row)
    assert not snapshot.volumes.assumed
    snapshot.validate()


def test_what_is_assumed_goes_with_the_node_that_the_pods_were_on():
    snapshot = cluster()
    kernel = kernel_on(snapshot)
    put(snapshot, claim("data"), volume("v", terms=hosts("n2")))
    assert placed(kernel, pod("data")) == ["n2"]
    row = snapshot.row_of_name("n2")
    node_id = int(snapshot.node_id[row])
    snapshot.apply(Delta(epoch=1, sequence=99, removed_nodes=[node_id]))
    assert not snapshot.volumes.assumed
    assert not snapshot.volumes.taken
    snapshot.validate()


def test_one_pod_at_a_time_uses_an_exclusive_claim():
    snapshot = cluster()
    kernel = kernel_on(snapshot)
    put(snapshot, claim("data", volume="v", modes=("ReadWriteOncePod",)))
    put(snapshot, volume("v", claim="data"))
    rows = kernel.place(pod("data"), 2, seed=1).rows
    assert len(rows) == 1
    assert "ReadWriteOncePod" in kernel.diagnose(pod("data")).message
    snapshot.remove_pod(pod("data"), rows[0])
    assert len(kernel.place(pod("data"), 2, seed=1).rows) == 1


def test_attachments_are_limited_per_node_and_shared_volumes_count_once():
    snapshot = cluster(2)
    kernel = kernel_on(snapshot)
    put(snapshot, CsiNodeRow("n0", ((DRIVER, 2),)), CsiNodeRow("n1", ((DRIVER, 1),)))
    for name in "abcd":
        put(snapshot, volume(f"v{name}", claim=name, driver=DRIVER, handle=name))
        put(snapshot, claim(name, volume=f"v{name}"))
    nodes = [placed(kernel, pod(name))[:1] for name in "abcd"]
    assert sorted(nodes) == [[], ["n0"], ["n0"], ["n1"]]
    assert nodes[3] == [], "the fourth volume has no place"
    assert placed(kernel, pod("a"), 5) == nodes[0] * 5, "a volume that is there already is free"
    assert "exceed max volume count" in kernel.diagnose(pod("d")).message
    put(snapshot, CsiNodeRow("n1", ((DRIVER, 2),)))
    assert placed(kernel, pod("d")) == ["n1"]


def test_a_read_write_disk_is_one_pods_on_a_node():
    snapshot = cluster(2)
    kernel = kernel_on(snapshot)
    writes = pod(disks=(Disk("gcePersistentDisk", ("pd",)),))
    reads = pod(disks=(Disk("gcePersistentDisk", ("pd",), True),))
    assert len(placed(kernel, writes, 3)) == 2
    assert placed(kernel, reads) == []
    for row in (0, 1):
        snapshot.remove_pod(writes, row)
    assert len(placed(kernel, reads, 3)) == 3


def test_a_claim_that_is_bound_meanwhile_moves_the_pods_of_a_known_shape():
    snapshot = cluster()
    kernel = kernel_on(snapshot)
    put(snapshot, claim("data"), volume("v1", terms=hosts("n1")), volume("v2", terms=hosts("n2")))
    for _ in range(3):
        assert kernel.filter(pod("data")).sum() == 2
        kernel.totals(pod("data"))
    put(snapshot, volume("v2", terms=hosts("n2"), claim="data"), claim("data", volume="v2"))
    assert [row for row, total in enumerate(kernel.totals(pod("data"))) if total >= 0] == [2]
    put(snapshot, removed=[claim("data")])
    assert set(kernel.totals(pod("data"))) == {-1}
    text = kernel.diagnose(pod("data")).message
    assert text == '0/4 nodes are available: persistentvolumeclaim "data" not found.'


def test_rows_survive_their_encoding():
    rows = [
        volume("v", terms=zone("a"), claim="c", zones=(("zone", ("a",)),)),
        claim("c", selector=(Requirement("k", "Exists"),), selected_node=""),
        CsiNodeRow("n", ((DRIVER, -1),), ("kubernetes.io/gce-pd",)),
    ]
    for row in rows:
        assert decode_storage(key_of(row)[0], encode_storage(row)) == row


class Changing:
    """A cluster in which storage and pods change at random."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.snapshot = cluster(6, zones=3)
        self.placed = []
        for name in "abcdef":
            self.claim(name)
        for _ in range(10):
            self.change()

    def claim(self, name):
        rng = self.rng
        cls = rng.choice(("local", "fast", "fast"))
        mode = rng.choice((("ReadWriteOnce",), ("ReadWriteOnce",), ("ReadWriteOncePod",)))
        node = rng.choice((None, None, None, "n1", "gone"))
        put(self.snapshot, claim(name, rng.randint(1, 3), cls=cls, modes=mode, selected_node=node))

    def volume(self):
        rng = self.rng
        name, terms = f"v{rng.randrange(6)}", rng.choice(MAKERS)(rng)
        cls = rng.choice(("local", "fast"))
        labels = rng.choice(((), (("zone", ("z0", "z1")),)))
        holder = rng.choice(("", "", "a", "b"))
        source = {"driver": DRIVER, "handle": f"h{rng.randrange(4)}"} if rng.random() < 0.6 else {}
        row = volume(
            name, rng.randint(1, 4), cls=cls, terms=terms, claim=holder,
            zones=tuple(("topology.kubernetes.io/zone", zones) for _, zones in labels), **source,
        )  # fmt: skip
        put(self.snapshot, row)
        if holder and rng.random() < 0.7:
            put(self.snapshot, claim(holder, cls=cls, volume=name))

    def change(self):
        rng, snapshot = self.rng, self.snapshot
        match rng.randrange(9):
            case 0 | 1:
                self.volume()
            case 2:
                self.claim(rng.choice("abcdef"))
            case 3:
                put(snapshot, removed=[rng.choice((volume("v1"), claim("c"), volume("v2")))])
            case 4:
                node = f"n{rng.randrange(6)}"
                put(snapshot, CsiNodeRow(node, ((DRIVER, rng.choice((-1, 0, 1, 2))),)))
            case 5:
                topology = rng.choice(((), (Requirement("zone", "In", ("z1",)),)))
                put(snapshot, CapacityRow("fast", rng.randint(0, 4) * GIB, topology=topology))
            case 6:
                flags = rng.random() < 0.5, rng.random() < 0.3
                put(snapshot, CsiDriverRow(DRIVER, *flags))
            case 7:
                sequence = snapshot.version.sequence + 1
                row = rng.randrange(6)
                labels = ((HOST, f"n{row}"), ("zone", f"z{rng.randrange(3)}"))
                node = msgspec.structs.replace(snapshot.node(row), labels=labels)
                change = NodeChange(row + 1, node)
                snapshot.apply(Delta(epoch=1, sequence=sequence, nodes=[change]))
            case _:
                self.move()

    def move(self):
        """A tentative pod comes or goes."""
        if self.placed and self.rng.random() < 0.5:
            shape, row = self.placed.pop(self.rng.randrange(len(self.placed)))
            self.snapshot.remove_pod(shape, row)
            return
        shape = pod(*self.rng.sample("abcdef", self.rng.randint(1, 2)))
        kernel = self.snapshot.assumer
        rows = [] if kernel is None else kernel.place(shape, 1, seed=self.rng.getrandbits(32)).rows
        self.placed += [(shape, row) for row in rows]


@pytest.mark.parametrize("seed", range(10))
def test_kept_scores_are_those_of_a_kernel_that_knows_nothing_yet(seed):
    world = Changing(seed)
    kept = kernel_on(world.snapshot)
    shapes = [pod("a"), pod("b", "c"), pod("d"), pod("e", "f", "a"), pod()]
    for _ in range(40):
        world.change()
        fresh = Kernel(world.snapshot, Profiles.default())
        world.snapshot.assumer = kept
        for shape in shapes:
            found = fresh.evaluate(shape)
            totals = dict(zip(found.feasible, found.total, strict=True))
            expected = [totals.get(row, -1) for row in range(world.snapshot.rows)]
            assert kept.totals(shape) == expected
            checks = [kept.check_one(shape, row) for row in range(world.snapshot.rows)]
            assert [cause is Cause.NONE for cause in checks] == [t >= 0 for t in expected]
    world.snapshot.validate()


def test_a_known_shape_follows_its_bound_volume_and_its_driver():
    snapshot = cluster(4)
    others = [{"name": name} for name in ("NodeVolumeLimits", "VolumeZone")]
    alone = {"schedulerName": "stretto", "plugins": {"multiPoint": {"disabled": others}}}
    kernel = Kernel(snapshot, Profiles.from_configuration({"profiles": [alone]}))
    put(snapshot, claim("a", volume="v"), volume("v", claim="a", terms=hosts("n0")))
    put(snapshot, claim("b", 2, cls="fast"))

    def fits(name):
        return [row for row, total in enumerate(kernel.totals(pod(name))) if total >= 0]

    for _ in range(3):
        assert fits("a") == [0]
        assert fits("b") == [0, 1, 2, 3]
    put(snapshot, volume("v", claim="a", terms=hosts("n1")))
    assert fits("a") == [1]
    put(snapshot, CsiDriverRow(DRIVER, storage_capacity=True))
    assert fits("b") == []
    put(snapshot, CapacityRow("fast", GIB, 3 * GIB, (Requirement("zone", "In", ("z1",)),)))
    assert fits("b") == [1, 3], "the largest volume counts where it is known"
    put(snapshot, CsiDriverRow(DRIVER))
    assert fits("b") == [0, 1, 2, 3]
