"""Allocation of devices on one node: order, alternatives, constraints, shares, partitions."""

from __future__ import annotations

import random

import msgspec
import pytest

from stretto.model.devices import (
    CLAIM,
    CLASS,
    SLICE,
    TAINT_RULE,
    Allocation,
    CapacityRow,
    ClaimRow,
    ClassRow,
    Constraint,
    DeviceRow,
    DeviceTaint,
    NodeChoice,
    Request,
    Result,
    SliceRow,
    SubRequest,
    TaintRuleRow,
    Toleration,
    encode_row,
)
from stretto.model.shape import ClaimRef, NodeTerm, Requirement, Shape
from stretto.placement.devices.allocator import MAX_STEPS, Allocator
from stretto.placement.devices.claimed import allocations_of
from stretto.placement.devices.world import world_of
from stretto.placement.framework import Code
from stretto.placement.kernel import Kernel
from stretto.placement.profiles import Profiles
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import Delta, NodeChange, NodeRow, ObjectRow

DRIVER = "gpu.example.com"
GPU = ClassRow("gpu", (f'device.driver == "{DRIVER}"',))


class Cluster:
    """Nodes with devices, and a kernel."""

    def __init__(self, nodes: int = 1) -> None:
        self.snapshot = Snapshot()
        self.kernel = Kernel(self.snapshot, Profiles.default())
        self._sequence = 0
        rows = [
            NodeRow(f"n{i}", f"uid-{i}", allocatable=(("cpu", 8000), ("pods", 9)))
            for i in range(nodes)
        ]
        self.apply(nodes=[NodeChange(i + 1, row) for i, row in enumerate(rows)])
        self.put(CLASS, "gpu", GPU)

    def apply(self, **parts):
        self._sequence += 1
        self.snapshot.apply(Delta(epoch=1, sequence=self._sequence, **parts))

    def put(self, kind, key, row):
        payload = encode_row(row) if row is not None else b""
        self.apply(objects=[ObjectRow(kind, key, payload=payload, removed=row is None)])

    def pool(self, *devices, node="n0", pool="", counters=(), count=1, generation=1, where=None):
        name = pool or f"{node}-pool"
        where = where or NodeChoice(node)
        row = SliceRow(name, DRIVER, name, generation, count + bool(counters), where=where,
                       devices=devices)  # fmt: skip
        self.put(SLICE, name, row)
        if counters:
            more = SliceRow(f"{name}-c", DRIVER, name, generation, 2, where=where,
                            counters=counters)  # fmt: skip
            self.put(SLICE, more.name, more)

    def claim(self, name, *requests, constraints=(), allocation=None):
        row = ClaimRow("ns", name, f"uid-{name}", requests, constraints, allocation=allocation)
        self.put(CLAIM, row.key, row)

    def chosen(self, *claims, row=0):
        """Devices by claim on a row; None if they cannot be met."""
        shape = using(*claims)
        if not self.kernel.filter(shape)[row]:
            return None
        found = allocations_of(world_of(self.snapshot), shape, row)
        return [[f"{r.request}={r.device}" for r in a.results] for _, a in found]


def using(*claims):
    return Shape("stretto", "ns", device_claims=tuple(map(ClaimRef, claims)))


def device(name, *, taints=(), memory=None, multiple=False, consumes=(), **attributes):
    capacity = (memory if isinstance(memory, CapacityRow) else CapacityRow("memory", memory),)
    return DeviceRow(
        name, tuple(sorted(attributes.items())), capacity=capacity if memory else (),
        allow_multiple=multiple, taints=taints, consumes=consumes,
    )  # fmt: skip


def wants(name="r", count=1, **fields):
    return Request(name, SubRequest(name, "gpu", count=count, **fields))


def test_the_first_devices_in_order_are_taken_and_a_taken_one_is_not():
    cluster = Cluster()
    cluster.pool(device("a"), device("b"), device("c"))
    cluster.claim("one", wants(count=2))
    cluster.claim("two", wants(count=2))
    assert cluster.chosen("one") == [["r=a", "r=b"]]
    assert cluster.chosen("one", "two") is None
    held = Allocation((Result("r", DRIVER, "n0-pool", "a"),))
    cluster.claim("one", wants(), allocation=held)
    assert cluster.chosen("two") == [["r=b", "r=c"]]
    cluster.put(CLAIM, "ns/one", None)
    assert cluster.chosen("two") == [["r=a", "r=b"]]


def test_a_tentative_pod_of_a_node_that_was_replaced_holds_no_shared_device():
    cluster = Cluster(nodes=2)
    cluster.pool(device("a"), node="", pool="shared", where=NodeChoice("", all_nodes=True))
    cluster.claim("one", wants())
    cluster.claim("two", wants())
    cluster.snapshot.add_pod(using("one"), 0)
    assert cluster.chosen("two", row=1) is None
    cluster.apply(removed_nodes=[1])
    fresh = NodeRow("fresh", "uid-9", allocatable=(("cpu", 8000), ("pods", 9)))
    cluster.apply(nodes=[NodeChange(9, fresh)])
    assert cluster.snapshot.row_of(9) == 0, "it has the row of the one that left"
    assert cluster.chosen("two", row=0) == [["r=a"]]
    cluster.snapshot.add_pod(using("two"), 0)
    cluster.snapshot.remove_pod(using("two"), 0)
    assert cluster.chosen("one", row=1) == [["r=a"]]


def test_all_devices_under_a_constraint_fail_the_attempt_whichever_equal_device_was_tried_first():
    cluster = Cluster()
    cluster.pool(device("a", model="x"), device("b", model="x"))
    differ = (Constraint((), f"{DRIVER}/model", distinct=True),)
    cluster.claim("c", wants("one"), wants("every", mode="All"), constraints=differ)
    status = cluster.kernel.evaluate(using("c")).rejected[0]
    assert status.code is Code.ERROR
    assert status.reasons[0].endswith(
        f"request every: cannot add device {DRIVER}/n0-pool/a because a claim constraint would not "
        "be satisfied"
    )


def test_a_choice_is_undone_when_a_later_request_needs_the_device():
    cluster = Cluster()
    cluster.pool(device("a", model="x"), device("b", model="y"))
    only_x = (f'device.attributes["{DRIVER}"].model == "x"',)
    cluster.claim("c", wants("any"), wants("picky", selectors=only_x))
    assert cluster.chosen("c") == [["any=b", "picky=a"]]


def test_alternatives_are_tried_in_order_and_the_first_scores_most():
    cluster = Cluster(nodes=2)
    cluster.pool(device("a"), node="n0")
    cluster.pool(device("a"), device("b"), node="n1")
    forms = (SubRequest("two", "gpu", count=2), SubRequest("one", "gpu"))
    cluster.claim("c", Request("r", alternatives=forms))
    assert cluster.chosen("c", row=0) == [["r/one=a"]]
    assert cluster.chosen("c", row=1) == [["r/two=a", "r/two=b"]]
    found = cluster.kernel.evaluate(using("c"))
    assert found.raw["DynamicResources"] == [7, 8]
    assert found.weighted["DynamicResources"] == [7 * 100 // 8 * 2, 200]
    assert cluster.kernel.totals(using("c")) == found.total


def test_constraints_want_a_common_value_or_different_ones():
    cluster = Cluster()
    cluster.pool(device("a", root="1"), device("b", root="2"), device("c", root="1"), device("d"))
    root = f"{DRIVER}/root"
    cluster.claim("same", wants(count=2), constraints=(Constraint((), root),))
    cluster.claim("other", wants(count=2), constraints=(Constraint((), root, distinct=True),))
    cluster.claim("many", wants(count=3), constraints=(Constraint((), root),))
    assert cluster.chosen("same") == [["r=a", "r=c"]]
    assert cluster.chosen("other") == [["r=a", "r=b"]]
    assert cluster.chosen("many") is None


def test_all_devices_means_all_and_a_constraint_in_the_way_is_the_claims_error():
    cluster = Cluster()
    cluster.pool(device("a", root="1"), device("b", root="2"))
    cluster.claim("all", wants(mode="All"))
    assert cluster.chosen("all") == [["r=a", "r=b"]]
    together = (Constraint((), f"{DRIVER}/root"),)
    cluster.claim("all", wants(mode="All"), constraints=together)
    assert cluster.kernel.evaluate(using("all")).error == (
        'running "DynamicResources" filter plugin: claim ns/all, request r: cannot add device '
        "gpu.example.com/n0-pool/b because a claim constraint would not be satisfied"
    )
    assert cluster.kernel.place(using("all"), 1, seed=1).rows == []


def test_shares_consume_capacity_until_it_is_gone():
    cluster = Cluster()
    memory = CapacityRow("memory", "10Gi", has_policy=True, default="4Gi", has_range=True,
                         minimum="2Gi", step="2Gi")  # fmt: skip
    cluster.pool(device("a", memory=memory, multiple=True))
    cluster.claim("five", wants(capacity=(("memory", "5Gi"),)))  # rounded up to 6Gi
    cluster.claim("default", wants())
    cluster.claim("more", wants())
    assert cluster.chosen("five", "default") == [["r=a"], ["r=a"]]
    assert cluster.chosen("five", "default", "more") is None
    share = Result("r", DRIVER, "n0-pool", "a", share_id="s", consumed=(("memory", "8Gi"),))
    cluster.claim("old", wants(), allocation=Allocation((share,)))
    assert cluster.chosen("more") is None


def test_partitions_share_counters():
    cluster = Cluster()

    def part(name, amount):
        return device(name, consumes=(("die", (("slots", str(amount)),)),))

    cluster.pool(part("whole", 4), part("half", 2), part("other", 2), part("quarter", 1),
                 counters=(("die", (("slots", "4"),)),))  # fmt: skip
    cluster.claim("three", wants(count=3))
    cluster.claim("two", wants(count=2))
    assert cluster.chosen("two") == [["r=half", "r=other"]]
    assert cluster.chosen("three") is None
    held = Allocation((Result("r", DRIVER, "n0-pool", "half"),))
    cluster.claim("old", wants(), allocation=held)
    assert cluster.chosen("two") is None


def test_taints_keep_away_who_does_not_tolerate_them_also_those_of_rules():
    cluster = Cluster()
    broken = DeviceTaint("broken", "yes", "NoSchedule")
    cluster.pool(device("a", taints=(broken,)), device("b"))
    cluster.claim("c", wants())
    cluster.claim("brave", wants(tolerations=(Toleration("broken", "Exists"),)))
    assert cluster.chosen("c") == [["r=b"]]
    assert cluster.chosen("brave") == [["r=a"]]
    rule = TaintRuleRow("rule", DeviceTaint("drain", "", "NoExecute"), selects=True, device="b")
    cluster.put(TAINT_RULE, "rule", rule)
    assert cluster.chosen("c") is None
    cluster.put(TAINT_RULE, "rule", None)
    assert cluster.chosen("c") == [["r=b"]]


def test_an_incomplete_pool_offers_nothing_and_a_newer_generation_replaces_an_older():
    cluster = Cluster()
    cluster.pool(device("a"), count=2)
    cluster.claim("c", wants())
    assert cluster.chosen("c") is None
    cluster.pool(device("a"), generation=2)
    assert cluster.chosen("c") == [["r=a"]]
    newer = SliceRow("newer", DRIVER, "n0-pool", 3, 1, NodeChoice("n0"), devices=(device("z"),))
    cluster.put(SLICE, "newer", newer)
    assert cluster.chosen("c") == [["r=z"]]


def test_twice_the_same_name_in_a_pool_makes_the_pool_invalid():
    cluster = Cluster()
    cluster.pool(device("a"), device("a"))
    cluster.claim("c", wants())
    found = cluster.kernel.evaluate(using("c"))
    assert found.rejected[0].reasons == ("invalid resource pools were encountered",)


def test_what_a_pool_of_several_nodes_gives_to_one_is_gone_for_all():
    cluster = Cluster(nodes=3)
    cluster.pool(device("a"), device("b"), pool="net", where=NodeChoice(all_nodes=True))
    cluster.claim("held", wants(), allocation=Allocation((Result("r", DRIVER, "net", "a"),)))
    cluster.claim("one", wants())
    cluster.claim("two", wants(count=2))
    assert cluster.kernel.filter(using("one")).tolist() == [True] * 3
    assert cluster.kernel.filter(using("two")).tolist() == [False] * 3


def test_a_claim_is_met_once_for_a_batch_and_again_only_when_it_is_given_back():
    cluster = Cluster(nodes=2)
    cluster.pool(device("a"), node="n0")
    cluster.pool(device("a"), node="n1")
    cluster.claim("c", wants())
    placed = cluster.kernel.place(using("c"), 3, seed=1)
    assert len(placed.rows) == 1
    refused = cluster.kernel.evaluate(using("c")).prefilter
    assert refused.message == "resource claim ns/c is in the process of being allocated"
    cluster.claim("other", wants())
    assert cluster.kernel.filter(using("other")).sum() == 1
    cluster.snapshot.remove_pod(using("c"), placed.rows[0])
    assert cluster.kernel.evaluate(using("c")).prefilter is None
    assert cluster.kernel.filter(using("other")).sum() == 2


def test_an_allocated_claim_binds_its_users_to_its_nodes():
    cluster = Cluster(nodes=3)
    here = (NodeTerm(fields=(Requirement("metadata.name", "In", ("n1",)),)),)
    results = (Result("r", DRIVER, "n1-pool", "a"),)
    cluster.claim("c", wants(), allocation=Allocation(results, here))
    assert cluster.kernel.filter(using("c")).tolist() == [False, True, False]
    placed = cluster.kernel.place(using("c"), 4, seed=1)
    assert placed.rows == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("refs", "text"),
    [
        (("nobody",), 'could not find ResourceClaim "ns/nobody"'),
        (("lost",), "request r: device class nothing does not exist"),
    ],
)
def test_claims_and_classes_that_do_not_exist_are_said(refs, text):
    cluster = Cluster()
    cluster.claim("lost", Request("r", SubRequest("r", "nothing")))
    assert cluster.kernel.diagnose(using(*refs)).message == f"0/1 nodes are available: {text}."


def test_a_selector_that_does_not_compile_fails_the_attempt_and_names_the_claim():
    cluster = Cluster()
    cluster.pool(device("a"))
    cluster.claim("c", wants(selectors=("1 +",)))
    error = cluster.kernel.evaluate(using("c")).error
    assert "claim ns/c: selector #0: CEL compile error: compilation failed" in error
    cluster.claim("fine", wants())
    assert cluster.chosen("fine") == [["r=a"]]


def test_a_hopeless_search_ends():
    """Devices that all differ in what a constraint reads, so that none stands for another: the
    search is cut off."""
    cluster = Cluster()
    cluster.pool(*(device(f"d{i:02}", index=i, root="x") for i in range(40)))
    picky = (f'device.attributes["{DRIVER}"].index > 99',)
    requests = [wants(f"r{i}", count=4) for i in range(3)]
    differ = (Constraint((), f"{DRIVER}/index", distinct=True),)
    cluster.claim("c", *requests, wants("never", selectors=picky), constraints=differ)
    error = cluster.kernel.evaluate(using("c")).error
    assert error.endswith("node n0: timed out trying to allocate devices")
    assert MAX_STEPS < 10**6


def puzzle(rng):
    """A pool and a claim of which much does not fit."""
    cluster = Cluster()
    taint = (DeviceTaint("k", "v", "NoSchedule"),)
    devices = [
        device(
            f"d{i}", index=rng.randrange(3), root=rng.choice("xy"), serial=i,
            taints=taint * (rng.random() < 0.1), multiple=rng.random() < 0.2,
            memory=rng.choice(("1Gi", "2Gi")),
            consumes=(("all", (("units", str(rng.randint(1, 3))),)),) * (rng.random() < 0.4),
        )
        for i in range(rng.randint(3, 7))
    ]  # fmt: skip
    cluster.pool(*devices, counters=(("all", (("units", str(rng.randint(2, 6))),)),))
    below = f'device.attributes["{DRIVER}"].index < '

    def wish(name):
        selectors = (below + str(rng.randint(1, 3)),) * (rng.random() < 0.6)
        forms = [
            SubRequest(f"s{n}", "gpu", count=rng.randint(1, 3), selectors=selectors,
                       capacity=(("memory", "1Gi"),) * (rng.random() < 0.3))
            for n in range(2)
        ]  # fmt: skip
        if rng.random() < 0.3:
            return Request(name, alternatives=tuple(forms))
        return Request(name, msgspec.structs.replace(forms[0], name=name))

    for number in range(rng.randint(1, 2)):
        requests = [wish(f"r{i}") for i in range(rng.randint(1, 3))]
        attribute = f"{DRIVER}/{rng.choice(('index', 'root'))}"
        constraints = (Constraint((), attribute, distinct=rng.random() < 0.3),)
        cluster.claim(f"c{number}", *requests, constraints=constraints * (rng.random() < 0.6))
    return cluster, [claim.name for claim in world_of(cluster.snapshot).claims.values()]


@pytest.mark.timeout(120)
def test_to_try_devices_once_that_nobody_can_tell_apart_changes_no_result(monkeypatch):
    met = 0
    for seed in range(180):
        cluster, claims = puzzle(random.Random(seed))
        found = cluster.chosen(*claims)
        with monkeypatch.context() as patched:
            patched.setattr(Allocator, "_kind", lambda *_: object())
            cluster, claims = puzzle(random.Random(seed))
            assert cluster.chosen(*claims) == found, seed
        met += found is not None
    assert 30 < met < 150, "the puzzles are too easy or too hard"


@pytest.mark.parametrize("serials", [False, True])
def test_devices_that_are_alike_are_not_tried_one_after_the_other(serials):
    """The same search over equal devices, or devices that differ in what nobody reads, is over at
    once: nothing fits, and nothing times out."""
    cluster = Cluster()
    own = [{"serial": i} if serials else {} for i in range(40)]
    cluster.pool(*(device(f"d{i:02}", root="x", **own[i]) for i in range(40)))
    picky = (f'device.attributes["{DRIVER}"].root == "y"',)
    requests = [wants(f"r{i}", count=4) for i in range(3)]
    cluster.claim("c", *requests, wants("never", selectors=picky))
    found = cluster.kernel.evaluate(using("c"))
    assert found.error == ""
    assert found.rejected[0].reasons == ("cannot allocate all claims",)


@pytest.mark.parametrize(
    ("users", "pod", "released"),
    [((), "me", True), (("me",), "me", True), (("me",), "other", False),
     (("me", "other"), "me", False)],
)  # fmt: skip
def test_a_claim_that_keeps_its_only_user_from_where_it_could_go_is_to_be_given_up(
    users, pod, released
):
    cluster = Cluster(nodes=2)
    for node in ("n0", "n1"):
        cluster.pool(device("a"), node=node)
    field = NodeTerm(fields=(Requirement("metadata.name", "In", ("n0",)),))
    allocation = Allocation((Result("r", DRIVER, "n0-pool", "a"),), (field,))
    row = ClaimRow("ns", "c", "uid-c", (wants(),), allocation=allocation, reserved_for=users)
    cluster.put(CLAIM, "ns/c", row)
    cordoned = NodeRow("n0", "uid-0", allocatable=(("cpu", 8000), ("pods", 9)), unschedulable=True)
    cluster.apply(nodes=[NodeChange(1, cordoned)])
    found = cluster.kernel.post_filter(using("c"), seed=1, pod=pod)
    assert (found.release == row) is released
    assert found.message.startswith("deallocation of ResourceClaim completed") is released
