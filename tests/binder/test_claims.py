"""Claims of reserved pods: written, waited for, taken back; a volume controller is played."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
import pytest

from binder.bindings import Stage
from binder.prebind import Write
from binder.proposals import Incoming
from stretto.kube.client import MERGE
from stretto.ledger.types import LedgerMember, LedgerOp, LedgerUnit, ReserveKind
from stretto.model.unit import (
    Attempt,
    Cause,
    Outcome,
    OutcomeKind,
    Proposal,
    UnitId,
    VerdictKind,
)
from stretto.snapshot.volume_rows import encode_storage
from tests.binder.shells import PODS, Rig, delete, pod_manifest, pod_of, simulated, until

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
SELECTED = "volume.kubernetes.io/selected-node"
MODES = ["ReadWriteOnce"]
GIB = "1Gi"


def volume(name: str, *, node: str = "", cls: str = "local", claim: Any = None) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "capacity": {"storage": GIB}, "accessModes": MODES, "storageClassName": cls,
        "local": {"path": "/v"},
    }  # fmt: skip
    if node:
        expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        spec["nodeAffinity"] = {"required": terms}
    if claim:
        spec["claimRef"] = claim
    phase = "Bound" if claim else "Available"
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}}


def claim(name: str, *, cls: str = "local") -> dict[str, Any]:
    spec = {
        "accessModes": MODES, "storageClassName": cls,
        "resources": {"requests": {"storage": GIB}},
    }  # fmt: skip
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Pending"}}


class World:
    """The simulated API server with two classes and one Binder on it."""

    def __init__(self, cluster: Any, client: Any) -> None:
        self.cluster, self.client = cluster, client
        self.rig = Rig(client, epoch=1)
        self.tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        for name in ("n1", "n2"):
            label = {"metadata": {"labels": {"kubernetes.io/hostname": name}}}
            await self.change(f"/api/v1/nodes/{name}", label)
        for name, provisioner in (("local", "kubernetes.io/no-provisioner"), ("fast", "x.y")):
            body = {
                "metadata": {"name": name}, "provisioner": provisioner,
                "volumeBindingMode": "WaitForFirstConsumer",
            }  # fmt: skip
            await self.create("/apis/storage.k8s.io/v1/storageclasses", body)
        await self.rig.open(clean=True)
        self.rig.start()

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self.client.post(path, body)
        assert answer.ok, answer.text
        return msgspec.json.decode(answer.body, type=dict[str, Any])

    async def change(self, path: str, body: dict[str, Any]) -> None:
        answer = await self.client.patch(path, body, content_type=MERGE)
        assert answer.ok, answer.text

    async def get(self, path: str) -> dict[str, Any]:
        answer = await self.client.get(path)
        assert answer.ok, answer.text
        return msgspec.json.decode(answer.body, type=dict[str, Any])

    async def pod(self, name: str, *claims: str) -> str:
        body = pod_manifest(name)
        body["spec"]["volumes"] = [
            {"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims
        ]
        return str((await self.create(PODS, body))["metadata"]["uid"])

    async def propose(self, name: str, node: str) -> None:
        self.rig.commits.propose([await self.rig.proposal(name, node)])

    async def seen(self, kind: str, key: str) -> None:
        objects = self.rig.machine.cluster.snapshot.objects
        await until(lambda: key in objects(kind), f"{kind} {key} is seen")

    async def pod_on_its_way(self, node: str) -> str:
        """Pod "p" with claim "data", which waits for its volume on this node; its uid."""
        await self.create(CLAIMS, claim("data", cls="fast"))
        uid = await self.pod("p", "data")
        await self.seen("PersistentVolumeClaim", "default/data")
        await self.propose("p", node)
        await self.is_selected("data", node)
        return uid

    def stage(self, uid: str) -> Stage | None:
        binding = self.rig.machine.bindings.get(uid)
        return None if binding is None else binding.stage

    def outcomes(self) -> list[Outcome]:
        return self.rig.machine.outcomes.after(0)[1]

    async def ended(self, uid: str) -> Outcome:
        def found() -> list[Outcome]:
            return [
                o
                for o in self.outcomes()
                if uid in (*o.members, o.unit_id) and o.kind is not OutcomeKind.CONFLICT
            ]

        await until(found, f"an outcome of {uid}")
        return found()[-1]

    # ------------------------------------------------------------- the volume controller's part
    async def bind_claim(self, name: str, volume_name: str) -> None:
        ref = await self.get(f"{CLAIMS}/{name}")
        claim_ref = {"namespace": "default", "name": name, "uid": ref["metadata"]["uid"]}
        body = {"spec": {"claimRef": claim_ref}, "status": {"phase": "Bound"}}
        await self.change(f"{VOLUMES}/{volume_name}", body)
        done = {
            "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"volumeName": volume_name},
            "status": {"phase": "Bound"},
        }
        await self.change(f"{CLAIMS}/{name}", done)

    async def has_claim_ref(self, name: str) -> str:
        """Wait for the claimRef; the claim's name."""
        while True:
            found = (await self.get(f"{VOLUMES}/{name}"))["spec"].get("claimRef")
            if found:
                return str(found["name"])
            await asyncio.sleep(0.01)

    async def selected(self, name: str) -> str | None:
        meta = (await self.get(f"{CLAIMS}/{name}"))["metadata"]
        found: str | None = (meta.get("annotations") or {}).get(SELECTED)
        return found

    async def is_selected(self, name: str, node: str | None) -> None:
        while await self.selected(name) != node:
            await asyncio.sleep(0.01)


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


async def test_a_claim_gets_a_volume_before_its_pod_is_bound():
    async with world() as w:
        await w.create(VOLUMES, volume("v1", node="n1"))
        await w.create(CLAIMS, claim("data"))
        uid = await w.pod("p", "data")
        await w.seen("PersistentVolume", "v1")
        await w.seen("PersistentVolumeClaim", "default/data")
        await w.propose("p", "n1")
        assert await w.has_claim_ref("v1") == "data"
        assert w.stage(uid) is Stage.PREBIND
        assert "nodeName" not in (await pod_of(w.client, "p"))["spec"]
        await w.bind_claim("data", "v1")
        assert (await w.ended(uid)).kind is OutcomeKind.BOUND
        assert (await pod_of(w.client, "p"))["spec"]["nodeName"] == "n1"


async def test_a_claim_is_provisioned_on_the_node_of_its_pod():
    async with world() as w:
        uid = await w.pod_on_its_way("n2")
        await w.create(VOLUMES, volume("made", node="n2", cls="fast"))
        await w.bind_claim("data", "made")
        assert (await w.ended(uid)).node == "n2"


async def test_a_provisioner_that_gives_up_sends_the_pod_back():
    async with world() as w:
        uid = await w.pod_on_its_way("n2")
        await w.change(f"{CLAIMS}/data", {"metadata": {"annotations": {SELECTED: None}}})
        outcome = await w.ended(uid)
        assert (outcome.kind, outcome.cause) == (OutcomeKind.FAILED, Cause.VOLUMES)
        assert "provisioning on n2 failed" in outcome.detail
        assert w.stage(uid) is None
        assert await w.selected("data") is None
        await w.propose("p", "n1")
        await w.is_selected("data", "n1")


async def test_a_provisioner_that_gives_up_between_two_looks_is_noticed():
    async with world() as w:
        await w.create(CLAIMS, claim("data", cls="fast"))
        uid = await w.pod("p", "data")
        await w.seen("PersistentVolumeClaim", "default/data")
        await w.propose("p", "n2")
        await until(lambda: w.stage(uid) is Stage.PREBIND, "it is reserved")
        prebind = w.rig.machine.prebinds.by_uid[uid]
        storage = w.rig.machine.cluster.storage
        row = storage.claim("default/data")
        for node in ("n2", None):  # in one go, as a batch of the watch may be
            seen = msgspec.structs.replace(row, selected_node=node)
            storage.seen("PersistentVolumeClaim", "default/data", encode_storage(seen))
        prebind.made.append(Write("default/data", row.uid, "", "n2"))
        w.rig.machine.prebinds.look(prebind, now_s=0.0)
        assert "provisioning on n2 failed" in prebind.failure


async def test_what_was_written_is_taken_back_at_the_deadline():
    async with world() as w:
        w.rig.prebind_timeout_s = 0.5
        await w.create(VOLUMES, volume("v1", node="n1"))
        await w.create(CLAIMS, claim("data"))
        await w.create(CLAIMS, claim("more", cls="fast"))
        uid = await w.pod("p", "data", "more")
        await w.seen("PersistentVolume", "v1")
        await w.seen("PersistentVolumeClaim", "default/data")
        await w.seen("PersistentVolumeClaim", "default/more")
        await w.propose("p", "n1")
        await w.has_claim_ref("v1")
        await w.is_selected("more", "n1")
        outcome = await w.ended(uid)
        assert outcome.kind is OutcomeKind.FAILED
        assert "not bound in time" in outcome.detail
        assert "claimRef" not in (await w.get(f"{VOLUMES}/v1"))["spec"]
        assert await w.selected("more") is None
        effective = w.rig.machine.cluster.snapshot.volumes
        await until(lambda: not effective.holder(effective.volumes["v1"]), "the log says so")


async def test_one_of_two_claims_gets_the_last_volume():
    async with world() as w:
        await w.create(VOLUMES, volume("v1"))
        uids = []
        for name in "ab":
            await w.create(CLAIMS, claim(f"data-{name}"))
            uids.append(await w.pod(name, f"data-{name}"))
            await w.seen("PersistentVolumeClaim", f"default/data-{name}")
        await w.seen("PersistentVolume", "v1")
        both = [await w.rig.proposal("a", "n1"), await w.rig.proposal("b", "n2")]
        w.rig.commits.propose(both)
        await until(lambda: len(w.rig.verdicts) == 2, "two verdicts")
        first, second = sorted(w.rig.verdicts, key=lambda v: v.kind)
        assert first.kind is VerdictKind.COMMITTED
        assert (second.kind, second.cause) == (VerdictKind.CONFLICT, Cause.VOLUMES)
        winner = await w.has_claim_ref("v1")
        await w.bind_claim(winner, "v1")
        assert (await w.ended(first.unit_id)).kind is OutcomeKind.BOUND
        # Long after, the other finds nothing either.
        loser = "b" if winner == "data-a" else "a"
        await w.propose(loser, "n2")
        await until(lambda: len(w.rig.verdicts) == 3, "a verdict")
        assert w.rig.verdicts[-1].cause is Cause.VOLUMES


async def test_a_pod_that_is_deleted_meanwhile_leaves_its_claim_free():
    async with world() as w:
        uid = await w.pod_on_its_way("n2")
        await delete(w.client, "p")
        binding = w.rig.machine.withdraw(uid)
        assert binding is None, "its read comes when what it wrote is taken back"
        w.rig.prebinder.seen()
        outcome = await w.ended(uid)
        assert outcome.kind is OutcomeKind.GONE
        assert await w.selected("data") is None


async def test_a_node_that_goes_frees_the_claims_of_the_pods_that_were_to_go_there():
    async with world() as w:
        uid = await w.pod_on_its_way("n2")
        answer = await w.client.delete("/api/v1/nodes/n2")
        assert answer.ok
        outcome = await w.ended(uid)
        assert outcome.kind is OutcomeKind.FAILED
        assert await w.selected("data") is None


async def test_a_volume_that_others_took_meanwhile_is_not_written_over():
    async with world() as w:
        await w.create(VOLUMES, volume("v1", node="n1"))
        await w.create(CLAIMS, claim("data"))
        uid = await w.pod("p", "data")
        await w.seen("PersistentVolume", "v1")
        await w.seen("PersistentVolumeClaim", "default/data")
        other = {"namespace": "default", "name": "other", "uid": "u-other"}
        incoming = await w.rig.proposal("p", "n1")
        w.rig.machine.cluster.storage.seen = lambda *_: None  # the watch is behind
        await w.change(f"{VOLUMES}/v1", {"spec": {"claimRef": other}})
        w.rig.commits.propose([incoming])
        outcome = await w.ended(uid)
        assert outcome.kind is OutcomeKind.FAILED
        assert (await w.get(f"{VOLUMES}/v1"))["spec"]["claimRef"]["name"] == "other"


async def test_a_binder_that_dies_in_between_is_succeeded_by_one_that_goes_on_there():
    async with world() as w:
        uid = await w.pod_on_its_way("n2")
        store = w.rig.ledger.twin.store
        await w.rig.stop()
        w.rig = Rig(w.client, epoch=2, store=store)
        await w.rig.open()
        w.rig.start()
        assert w.rig.opening.fenced == 1
        assert w.stage(uid) is None, "the reservation is over"
        await w.propose("p", "n1")
        await until(lambda: w.rig.verdicts, "a verdict")
        assert w.rig.verdicts[0].cause is Cause.VOLUMES, "the claim is for n2"
        await w.propose("p", "n2")
        await until(lambda: w.stage(uid) is Stage.PREBIND, "it is reserved again")
        await w.create(VOLUMES, volume("made", node="n2", cls="fast"))
        await w.bind_claim("data", "made")
        assert (await w.ended(uid)).node == "n2"


@pytest.mark.parametrize("together", [False, True])
async def test_pods_of_one_claim_get_one_volume_for_it(together):
    async with world() as w:
        await w.create(VOLUMES, volume("v1", node="n1", cls="fast"))
        await w.create(CLAIMS, claim("data", cls="fast"))
        first, second = await w.pod("first", "data"), await w.pod("second", "data")
        await w.seen("PersistentVolume", "v1")
        await w.seen("PersistentVolumeClaim", "default/data")
        both = [await w.rig.proposal("first", "n1"), await w.rig.proposal("second", "n2")]
        for each in [both] if together else [both[:1], both[1:]]:
            w.rig.commits.propose(each)
            await until(lambda: w.stage(first) is Stage.PREBIND, "the first is reserved")
        await until(lambda: len(w.rig.verdicts) == 2, "two verdicts")
        causes = {v.unit_id: v.cause for v in w.rig.verdicts}
        assert causes[second] is Cause.VOLUMES, "it is not provisioned on n2 as well"
        await w.propose("second", "n1")
        await until(lambda: w.stage(second) is Stage.PREBIND, "beside the first it may")
        await w.has_claim_ref("v1")
        await w.bind_claim("data", "v1")
        for uid in (first, second):
            assert (await w.ended(uid)).node == "n1"


async def gang(w: World, *names: str) -> Incoming:
    """One unit of two pods, on n1 and n2."""
    first, second = [await w.rig.proposal(n, f"n{i}") for i, n in enumerate(names, 1)]
    members = (*first.proposal.unit.members, *second.proposal.unit.members)
    unit = msgspec.structs.replace(first.proposal.unit, unit_id=UnitId("gang"), members=members)
    proposal = Proposal(unit, (*first.proposal.nodes, *second.proposal.nodes))
    return first._replace(proposal=proposal, shapes=(*first.shapes, *second.shapes))


@pytest.mark.parametrize("fails", [False, True])
async def test_a_gang_is_bound_when_the_last_of_its_claims_is_or_not_at_all(fails):
    async with world() as w:
        await w.create(CLAIMS, claim("data", cls="fast"))
        plain, other = await w.pod("plain"), await w.pod("other", "data")
        await w.seen("PersistentVolumeClaim", "default/data")
        w.rig.commits.propose([await gang(w, "plain", "other")])
        await w.is_selected("data", "n2")
        assert w.stage(plain) is w.stage(other) is Stage.PREBIND
        if fails:
            answer = await w.client.delete("/api/v1/nodes/n2")
            assert answer.ok
        else:
            await w.create(VOLUMES, volume("made", node="n2", cls="fast"))
            await w.bind_claim("data", "made")
        kind = OutcomeKind.FAILED if fails else OutcomeKind.BOUND
        for uid in (plain, other):
            await until(
                lambda uid=uid: [o for o in w.outcomes() if uid in o.members], "an outcome of each"
            )
            assert [o.kind for o in w.outcomes() if uid in o.members] == [kind]
        assert bool((await pod_of(w.client, "plain"))["spec"].get("nodeName")) is not fails


def charged(w: World) -> dict[str, tuple[str, int]]:
    """What the ledger's entries hold beside room: account → (resource, amount)."""
    entries = w.rig.ledger.twin.entries()
    return {c.account: c.lines[0] for entry in entries for c in entry.charges}


async def test_the_ledger_holds_the_volume_and_the_attachment_while_the_pod_is_in_flight():
    async with world() as w:
        limit = {"name": "x.y", "nodeID": "n1", "allocatable": {"count": 1}}
        node = {"metadata": {"name": "n1"}, "spec": {"drivers": [limit]}}
        await w.create("/apis/storage.k8s.io/v1/csinodes", node)
        made = await w.create(VOLUMES, volume("v1", node="n1"))
        await w.create(CLAIMS, claim("data"))
        await w.create(CLAIMS, claim("more", cls="fast"))
        uid = await w.pod("p", "data", "more")
        await w.seen("CSINode", "n1")
        await w.seen("PersistentVolume", "v1")
        await w.seen("PersistentVolumeClaim", "default/data")
        await w.seen("PersistentVolumeClaim", "default/more")
        await w.propose("p", "n1")
        await w.has_claim_ref("v1")
        node_uid = w.rig.machine.cluster.node_uid_of("n1")
        account = f"volume {made['metadata']['uid']}"
        held = {account: ("volume", 1), f"attachments {node_uid} x.y": ("attachments", 1)}
        assert charged(w) == held
        member = LedgerMember("other", account, 1, (("volume", 1),))
        unit = LedgerUnit("other", Attempt(1, 99), (member,))
        (reply,) = w.rig.ledger.twin.reserve([unit])
        # Once the watch shows the claimRef the volume has no account any more.
        refused = (ReserveKind.NO_FIT, ReserveKind.ACCOUNT_MISSING)
        assert reply.kind in refused, "the ledger by itself gives it to nobody else"
        w.rig.ledger.twin.store.flush()
        w.rig.commits.changed()
        w.rig.machine.book.ops.append(LedgerOp.forget_unit("x"))
        await until(lambda: charged(w) == held, "a lost ledger is filled with them again")
        attached = volume("made", node="n1", cls="fast")
        attached["spec"]["csi"] = {"driver": "x.y", "volumeHandle": "made"}
        await w.create(VOLUMES, attached)
        await w.bind_claim("data", "v1")
        await w.bind_claim("more", "made")
        assert (await w.ended(uid)).kind is OutcomeKind.BOUND
        await until(lambda: not charged(w), "they end with the bind")
        accounts = w.rig.machine.committer.charges.accounts.by_uid
        slots = f"attachments {node_uid} x.y"
        taken = {"attachments": 1}
        await until(lambda: accounts[slots].foreign == taken, "what is bound is the API's word")
        assert account not in accounts


@pytest.mark.parametrize("missing", ["claim", "class"])
async def test_what_does_not_exist_is_a_conflict_and_nothing_is_written(missing):
    async with world() as w:
        if missing == "class":
            await w.create(CLAIMS, claim("data", cls="no-such-class"))
            await w.seen("PersistentVolumeClaim", "default/data")
        await w.pod("p", "data")
        await w.propose("p", "n1")
        await until(lambda: w.rig.verdicts, "a verdict")
        assert w.rig.verdicts[0].cause is Cause.VOLUMES
        assert not w.rig.machine.prebinds.by_uid
