"""Claims to devices of reserved pods: promised, written, waited for, taken back."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec

from binder.bindings import Stage
from binder.claim_bodies import allocation_body
from binder.prebind import Answer
from stretto.ledger.types import (
    Account,
    Charge,
    LedgerMember,
    LedgerOp,
    LedgerUnit,
    ReserveKind,
)
from stretto.model.devices import (
    CLAIM,
    SLICE,
    Allocation,
    ClaimRow,
    ClassRow,
    Request,
    Result,
    SubRequest,
    decode_claim,
)
from stretto.model.unit import Attempt, Cause, OutcomeKind, Release
from tests.binder.shells import PODS, Rig, delete, pod_manifest, simulated, until
from tests.binder.test_claims import World as Claims
from tests.binder.test_claims import charged

API = "/apis/resource.k8s.io/v1"
CLAIMS = f"{API}/namespaces/default/resourceclaims"
DRIVER = "gpu.example.com"
DEVICE_A = f"device {DRIVER} n1 a"
FINALIZER = "resource.kubernetes.io/delete-protection"


def claim(name: str, *, count: int = 1) -> dict[str, Any]:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    return {
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    }


def slice_of(node: str, *devices: dict[str, Any]) -> dict[str, Any]:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": list(devices)}
    return {"metadata": {"name": f"{node}-gpus"}, "spec": spec}


class World(Claims):
    """The simulated API server with a class, devices on n1 and one Binder on it."""

    async def begin(self) -> None:
        await self.create(f"{API}/deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}})
        await self.rig.open(clean=True)
        self.rig.start()

    async def devices(self, *devices: dict[str, Any]) -> None:
        await self.create(f"{API}/resourceslices", slice_of("n1", *devices))
        await self.seen(SLICE, "n1-gpus")

    async def claim(self, name: str, **fields: Any) -> None:
        await self.create(CLAIMS, claim(name, **fields))
        await self.seen(CLAIM, f"default/{name}")

    async def pod(self, name: str, *claims: str) -> str:
        body = pod_manifest(name)
        body["spec"]["resourceClaims"] = [{"name": c, "resourceClaimName": c} for c in claims]
        return str((await self.create(PODS, body))["metadata"]["uid"])

    async def status(self, name: str) -> dict[str, Any]:
        return (await self.get(f"{CLAIMS}/{name}")).get("status") or {}

    async def bound(self, uid: str) -> None:
        assert (await self.ended(uid)).kind is OutcomeKind.BOUND

    def logged(self, name: str) -> ClaimRow:
        """The claim as the log has it."""
        payload = self.rig.machine.cluster.snapshot.object_payload(CLAIM, f"default/{name}")
        assert payload is not None
        return decode_claim(payload)


@contextlib.asynccontextmanager
async def world():
    async with simulated() as (cluster, client):
        found = World(cluster, client)
        await found.begin()
        try:
            yield found
            found.rig.machine.validate()
        finally:
            await found.rig.stop()


async def test_a_claim_gets_devices_finalizer_and_user_before_the_pod_is_bound():
    async with world() as w:
        await w.devices({"name": "a"}, {"name": "b"})
        await w.claim("data", count=2)
        uid = await w.pod("p", "data")
        await w.propose("p", "n1")
        await w.bound(uid)
        found = await w.get(f"{CLAIMS}/data")
        assert FINALIZER in found["metadata"]["finalizers"]
        status = found["status"]
        assert status["reservedFor"] == [{"resource": "pods", "name": "p", "uid": uid}]
        devices = [result["device"] for result in status["allocation"]["devices"]["results"]]
        assert devices == ["a", "b"]
        (term,) = status["allocation"]["nodeSelector"]["nodeSelectorTerms"]
        assert term["matchFields"][0]["values"] == ["n1"]
        await until(lambda: not w.logged("data").allocation.pending, "the log has the API's word")


async def test_a_claim_that_has_devices_gets_another_user():
    async with world() as w:
        await w.devices({"name": "a"})
        await w.claim("shared")
        first = await w.pod("p", "shared")
        await w.propose("p", "n1")
        await w.bound(first)
        await until(lambda: not w.logged("shared").allocation.pending, "the watch shows it")
        second = await w.pod("q", "shared")
        await w.propose("q", "n1")
        await w.bound(second)
        users = (await w.status("shared"))["reservedFor"]
        assert {user["uid"] for user in users} == {first, second}


async def test_devices_that_a_commit_promises_are_no_longer_free():
    async with world() as w:
        await w.devices({"name": "a", "bindingConditions": ["Attached"],
                         "bindingFailureConditions": ["Broken"]})  # fmt: skip
        await w.claim("one")
        await w.claim("two")
        first = await w.pod("p", "one")
        await w.pod("q", "two")
        await w.propose("p", "n1")
        await until(lambda: w.stage(first) is Stage.PREBIND, "the first waits for its device")
        await w.propose("q", "n1")

        def refused() -> bool:
            return any(o.cause is Cause.DEVICES for o in w.outcomes())

        await until(refused, "the second is refused")
        assert w.logged("one").allocation.results[0].device == "a"


async def test_a_device_that_is_attached_lets_the_pod_go_and_one_that_fails_is_given_back():
    async with world() as w:
        await w.devices({"name": "a", "bindingConditions": ["Attached"],
                         "bindingFailureConditions": ["Broken"]})  # fmt: skip
        await w.claim("data")
        uid = await w.pod("p", "data")
        await w.propose("p", "n1")
        await written(w, "data")
        await say(w, "data", "Broken")
        outcome = await w.ended(uid)
        assert outcome.kind is OutcomeKind.FAILED
        assert "a device cannot be attached: gpu.example.com/n1/a has Broken" in outcome.detail
        status = await w.status("data")
        assert not status.get("allocation")
        assert not status.get("reservedFor")

        await w.change(f"{CLAIMS}/data/status", {"status": {"devices": None}})
        await until(lambda: w.logged("data").allocation is None, "the claim is free again")
        other = await w.pod("q", "data")
        await w.propose("q", "n1")
        await written(w, "data")
        assert w.stage(other) is Stage.PREBIND
        await say(w, "data", "Attached")
        await w.bound(other)


async def written(w: World, name: str) -> None:
    while not (await w.status(name)).get("allocation"):
        await asyncio.sleep(0.01)


async def say(w: World, name: str, condition: str) -> None:
    """The driver's word on the device."""
    found = {"driver": DRIVER, "pool": "n1", "device": "a",
             "conditions": [{"type": condition, "status": "True"}]}  # fmt: skip
    await w.change(f"{CLAIMS}/{name}/status", {"status": {"devices": [found]}})


async def test_a_pod_that_is_deleted_in_between_gives_its_devices_back():
    async with world() as w:
        await w.devices({"name": "a", "bindingConditions": ["Attached"]})
        await w.claim("data")
        uid = await w.pod("p", "data")
        await w.propose("p", "n1")
        await written(w, "data")
        await delete(w.client, "p")
        binding = w.rig.machine.withdraw(uid)
        assert binding is None, "what was written is taken back first"
        w.rig.prebinder.seen()
        assert (await w.ended(uid)).kind is OutcomeKind.GONE
        while (await w.status("data")).get("allocation"):
            await asyncio.sleep(0.01)
        await until(lambda: w.logged("data").allocation is None, "the claim is free again")


async def test_a_binder_that_starts_in_between_finds_the_claim_and_goes_on_with_it():
    async with world() as w:
        await w.devices({"name": "a", "bindingConditions": ["Attached"]})
        await w.claim("data")
        await w.pod("p", "data")
        await w.propose("p", "n1")
        await written(w, "data")
        await w.rig.stop()
        w.rig = Rig(w.client, epoch=2, store=w.rig.ledger.twin.store)
        await w.rig.open(clean=False)
        w.rig.start()
        await until(lambda: not w.rig.machine.open, "the pod is free to be decided again")
        allocation = w.logged("data").allocation
        assert allocation is not None
        assert not allocation.pending
        shape = (await w.rig.proposal("p", "n1")).shapes[0]
        assert w.rig.machine.kernel.filter(shape).tolist() == [True, False]
        assert w.rig.machine.kernel.diagnose(shape).nodes == 2
        await until(lambda: not charged(w), "what the first Binder reserved is freed")
        assert rival(w) is ReserveKind.NO_FIT, "the API's word counts in the ledger"


def rival(w: World, *, amount: int = 1) -> ReserveKind:
    """What the ledger by itself says when another pod wants device a."""
    node_uid = w.rig.machine.cluster.node_uid_of("n1")
    charge = Charge(DEVICE_A, (("device", amount),))
    member = LedgerMember("other", node_uid, 1, (), (charge,))
    (reply,) = w.rig.ledger.twin.reserve([LedgerUnit("other", Attempt(1, 99), (member,))])
    w.rig.ledger.twin.transition([LedgerOp.free("other"), LedgerOp.forget_unit("other")])
    return reply.kind


async def test_the_ledger_holds_a_device_while_the_pod_is_in_flight_and_the_api_afterwards():
    async with world() as w:
        await w.devices({"name": "a", "bindingConditions": ["Attached"]})
        await w.claim("data")
        await w.rig.commits.round()
        assert rival(w) is ReserveKind.GRANTED
        assert rival(w, amount=2) is ReserveKind.NO_FIT
        uid = await w.pod("p", "data")
        await w.propose("p", "n1")
        await written(w, "data")
        assert charged(w) == {DEVICE_A: ("device", 1)}
        assert rival(w) is ReserveKind.NO_FIT
        w.rig.ledger.twin.store.flush()
        w.rig.machine.book.ops.append(LedgerOp.forget_unit("x"))
        w.rig.commits.changed()
        held = {DEVICE_A: ("device", 1)}
        await until(lambda: charged(w) == held, "a lost ledger is filled with it again")
        await say(w, "data", "Attached")
        await w.bound(uid)
        await until(lambda: not charged(w), "it ends with the bind")
        assert rival(w) is ReserveKind.NO_FIT
        await delete(w.client, "p")
        await w.change(f"{CLAIMS}/data/status", {"status": {"devices": None, "allocation": None,
                                                            "reservedFor": None}})  # fmt: skip
        await until(lambda: w.logged("data").allocation is None, "the claim is free again")
        await until(lambda: not device_a(w).foreign, "so is the device")


def device_a(w: World) -> Account:
    """The account of the device as it was written to the ledger last."""
    return w.rig.machine.committer.charges.accounts.by_uid[DEVICE_A]


async def test_devices_that_only_keep_a_pod_away_are_given_up_on_request():
    async with world() as w:
        await w.devices({"name": "a"})
        await w.claim("data")
        uid = await w.pod("p", "data")
        await w.propose("p", "n1")
        await w.bound(uid)
        claim_uid = (await w.get(f"{CLAIMS}/data"))["metadata"]["uid"]
        prebinder = w.rig.prebinder
        prebinder.release([Release("default/data", claim_uid, "another")])
        prebinder.release([Release("default/data", claim_uid, uid)])
        prebinder.release([Release("default/missing", claim_uid, uid)])
        await asyncio.sleep(0.1)
        assert (await w.status("data"))["allocation"], "the pod uses it, or is on a node"

        await delete(w.client, "p")
        await until(lambda: uid not in w.rig.machine.cluster.facts, "the pod is gone")
        prebinder.release([Release("default/data", "another", uid)])
        await asyncio.sleep(0.1)
        assert (await w.status("data"))["allocation"], "it is another claim by now"
        prebinder.release([Release("default/data", claim_uid, uid)])
        await until(lambda: w.logged("data").allocation is None, "the devices are free")
        assert not (await w.status("data")).get("reservedFor")


async def test_a_claim_that_was_made_for_extended_resources_is_not_left_behind():
    async with world() as w:
        await w.change(f"{API}/deviceclasses/gpu", {"spec": {"extendedResourceName": "x.y/gpu"}})
        await w.devices({"name": "a", "bindingConditions": ["Attached"]})
        body = pod_manifest("p")
        resources = body["spec"]["containers"][0]["resources"]
        resources["requests"]["x.y/gpu"] = "1"
        resources["limits"] = {"x.y/gpu": "1"}
        uid = (await w.create(PODS, body))["metadata"]["uid"]

        def made() -> list[ClaimRow]:
            rows = w.rig.machine.cluster.devices.claims()
            return [row for row in rows if row.owner_uid == uid and row.allocation]

        await w.propose("p", "n1")
        await until(made, "the claim has the device")
        (first,) = made()
        await w.rig.stop()
        w.rig = Rig(w.client, epoch=2, store=w.rig.ledger.twin.store)
        await w.rig.open(clean=False)
        w.rig.start()
        await until(lambda: not made(), "it is gone")
        w.rig._attempts = 1
        await w.propose("p", "n1")
        await until(made, "another has the device")
        (second,) = made()
        assert second.uid != first.uid


class Late:
    """A client whose allocations are on their way for long."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.sent: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def patch(self, path: str, body: Any, **options: Any) -> Any:
        if path.endswith("/status") and body["status"].get("allocation"):
            self.sent.append((path, body))
            await asyncio.Event().wait()
        return await self._client.patch(path, body, **options)


async def test_an_allocation_that_comes_late_does_not_take_what_the_next_binder_gave_away():
    async with world() as w:
        late = Late(w.client)
        w.rig.prebinder._devices._client = late
        await w.devices({"name": "a"})
        await w.claim("one")
        await w.claim("two")
        await w.pod("p", "one")
        other = await w.pod("q", "two")
        await w.propose("p", "n1")
        await until(lambda: late.sent, "the allocation is on its way")
        await w.rig.stop()
        w.rig = Rig(w.client, epoch=2, store=w.rig.ledger.twin.store)
        await w.rig.open(clean=False)
        w.rig.start()
        await w.propose("q", "n1")
        await w.bound(other)
        ((path, body),) = late.sent
        assert (await w.client.patch(path, body)).status == 409
        assert not (await w.status("one")).get("allocation")
        assert (await w.status("two"))["allocation"]


async def test_an_allocation_that_comes_after_it_was_taken_back_has_no_effect():
    async with world() as w:
        late = Late(w.client)
        w.rig.prebinder._devices._client = late
        await w.devices({"name": "a"})
        await w.claim("data")
        await w.pod("p", "data")
        await w.propose("p", "n1")
        await until(lambda: late.sent, "the allocation is on its way")
        (prebind,) = w.rig.machine.prebinds.by_uid.values()
        writer = w.rig.prebinder._devices
        (write,) = prebind.writes
        assert await writer.undo(prebind.binding, write) is Answer.DONE
        ((path, body),) = late.sent
        assert (await w.client.patch(path, body)).status == 409
        assert not (await w.status("data")).get("allocation")


def test_configuration_of_classes_and_claims_is_copied_for_the_requests_it_concerns():
    forms = (SubRequest("big", "gpu"), SubRequest("small", "gpu"))
    requests = (Request("a", SubRequest("a", "gpu")), Request("b", alternatives=forms))
    config = msgspec.json.encode(
        [
            {"requests": ["b"], "opaque": {"driver": DRIVER, "parameters": {"x": 1}}},
            {"requests": ["b/big"], "opaque": {"driver": DRIVER, "parameters": {"x": 2}}},
        ]
    )
    claim_row = ClaimRow("ns", "c", "u", requests, config=config)
    of_class = msgspec.json.encode([{"opaque": {"driver": DRIVER, "parameters": {"y": 1}}}])
    results = (Result("a", DRIVER, "p", "d0"), Result("b/small", DRIVER, "p", "d1", admin=True))
    body = allocation_body(
        Allocation(results), claim_row, classes=[ClassRow("gpu", config=of_class)], now="now"
    )
    assert body["devices"]["config"] == [
        {"opaque": {"driver": DRIVER, "parameters": {"y": 1}}, "source": "FromClass"},
        {
            "requests": ["b"],
            "opaque": {"driver": DRIVER, "parameters": {"x": 1}},
            "source": "FromClaim",
        },
    ]
    assert [r.get("adminAccess", False) for r in body["devices"]["results"]] == [False, True]
