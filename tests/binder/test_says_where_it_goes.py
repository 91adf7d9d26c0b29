"""A pod whose claims are being bound says in status.nominatedNodeName where it is going."""

from __future__ import annotations

from typing import Any

from stretto.model.unit import OutcomeKind
from tests.binder.shells import PODS, pod_of, until
from tests.binder.test_claims import CLAIMS, SELECTED, VOLUMES, claim, volume, world


async def nominated(client: Any, name: str) -> str | None:
    found: str | None = (await pod_of(client, name))["status"].get("nominatedNodeName")
    return found


async def test_a_pod_says_where_it_goes_while_its_claims_are_bound():
    async with world() as w:
        uid = await w.pod_on_its_way("n2")
        assert await nominated(w.client, "p") == "n2"
        binding = w.rig.machine.bindings[uid]
        version = (await pod_of(w.client, "p"))["metadata"]["resourceVersion"]
        await until(lambda: str(binding.resource_version) == version, "the bind knows the version")
        await w.create(VOLUMES, volume("made", node="n2", cls="fast"))
        await w.bind_claim("data", "made")
        assert (await w.ended(uid)).kind is OutcomeKind.BOUND
        assert binding.rebases == 0, "its bind was not refused once"


async def test_a_pod_that_says_so_and_is_changed_is_bound_under_its_new_version():
    async with world() as w:
        uid = await w.pod_on_its_way("n2")
        await w.change(f"{PODS}/p", {"metadata": {"annotations": {"somebody": "was here"}}})
        binding = w.rig.machine.bindings[uid]
        await w.create(VOLUMES, volume("made", node="n2", cls="fast"))
        await w.bind_claim("data", "made")
        assert (await w.ended(uid)).kind is OutcomeKind.BOUND
        assert binding.rebases == 1


async def test_a_pod_that_cannot_go_there_says_so_no_longer():
    async with world() as w:
        uid = await w.pod_on_its_way("n2")
        await w.change(f"{CLAIMS}/data", {"metadata": {"annotations": {SELECTED: None}}})
        outcome = await w.ended(uid)
        assert outcome.kind is OutcomeKind.FAILED
        assert await nominated(w.client, "p") is None
        meta = (await pod_of(w.client, "p"))["metadata"]
        assert meta["resourceVersion"] == str(outcome.resource_version)
        assert uid not in w.rig.machine.cluster.nominated


async def test_a_pod_changed_before_it_could_say_so_is_bound_all_the_same():
    async with world() as w:
        await w.create(CLAIMS, claim("data", cls="fast"))
        uid = await w.pod("p", "data")
        await w.seen("PersistentVolumeClaim", "default/data")
        proposal = await w.rig.proposal("p", "n2")
        await w.change(f"{PODS}/p", {"metadata": {"annotations": {"somebody": "was here"}}})
        w.rig.commits.propose([proposal])
        await w.is_selected("data", "n2")
        assert await nominated(w.client, "p") is None
        await w.create(VOLUMES, volume("made", node="n2", cls="fast"))
        await w.bind_claim("data", "made")
        assert (await w.ended(uid)).kind is OutcomeKind.BOUND
