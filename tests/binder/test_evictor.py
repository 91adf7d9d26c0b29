"""What the answers of the API server make of an eviction."""

from __future__ import annotations

import asyncio
import json
import pathlib
from collections.abc import Mapping
from typing import cast

import msgspec
import pytest

import binder.evictor
from binder.evictor import Evictor
from binder.preemption_claims import Claim, ClaimStage
from stretto.kube.answers import Response
from stretto.kube.client import KubeClient
from stretto.model.unit import Cause, OutcomeKind
from stretto.telemetry.audit_log import AuditLog, AuditRecord
from stretto.telemetry.binder_metrics import BinderMetrics
from tests.binder.test_gang_claims import Ganging
from tests.binder.test_preemptions import Preempting, pod

OK, CONFLICT, SPENT = Response(201, b"{}"), Response(409, b"{}"), Response(429, b"{}")


class Answers:
    """A client that gives prepared answers; the last one stays."""

    def __init__(self, *evictions: Response, read: Response) -> None:
        self.evictions = list(evictions)
        self.read = read
        self.asked: list[str] = []
        self.bodies: list[object] = []
        """Of the nomination and of deletions."""
        self.patched: list[tuple[str, object]] = []
        """(path, status) of the other patches."""

    async def patch_pod_status(self, namespace: str, name: str, body: object) -> Response:
        self.bodies.append(body)
        return Response(200, json.dumps({"metadata": {"resourceVersion": "99"}}).encode())

    async def patch(self, path: str, body: dict[str, object]) -> Response:
        self.patched.append((path, body["status"]))
        return OK

    async def get_pod(self, namespace: str, name: str) -> Response:
        return self.read

    async def delete(self, path: str, body: object) -> Response:
        self.bodies.append(body)
        return OK

    async def evict(self, namespace: str, name: str, *, uid: str) -> Response:
        self.asked.append(uid)
        return self.evictions.pop(0) if len(self.evictions) > 1 else self.evictions[0]


def read(uid: str, **metadata: str) -> Response:
    """The answer to a GET of the victim."""
    found: Mapping[str, object] = {"metadata": {"name": "victim", "uid": uid, **metadata}}
    return Response(200, json.dumps(found).encode())


@pytest.fixture
def world() -> Preempting:
    made = Preempting()
    made.node("n1", cpu=2000)
    made.round()
    return made


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "RETRY_S", "BUDGET_RETRY_S":
        monkeypatch.setattr(binder.evictor, name, 0.0)


def claimed(world: Preempting, *, app: str = "web") -> tuple[Claim, str]:
    """A claim, and its victim's uid."""
    victim = world.runs("victim", pod(2000, app=app), "n1")
    high = world.api.create("high", pod(2000, priority=10))
    world.preempt(high)
    return world.claim(high), victim.uid


async def carry_out(
    world: Preempting, claim: Claim, client: Answers, *, audit: AuditLog | None = None
) -> None:
    """Until the claim is over."""
    over = asyncio.Event()
    evictor = Evictor(
        world.machine, cast("KubeClient", client), may_act=lambda: True,
        changed=lambda: over.set() if claim.stage is ClaimStage.OVER else None,
        events=None, metrics=BinderMetrics(), audit=audit or AuditLog(None),
    )  # fmt: skip
    evictor.put(claim)
    task = asyncio.create_task(evictor.run())
    await asyncio.wait_for(over.wait(), 30)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_the_audit_log_says_who_was_asked_to_go_and_what_came_of_it(
    world: Preempting, tmp_path: pathlib.Path
) -> None:
    claim, uid = claimed(world)
    log = tmp_path / "audit.jsonl"
    await carry_out(world, claim, Answers(OK, read=read(uid)), audit=AuditLog(log, epoch=7))
    (line,) = log.read_bytes().splitlines()
    record = msgspec.json.decode(line, type=AuditRecord)
    assert (record.act, record.epoch, record.uid, record.cause) == ("evict", 7, uid, "accepted")


async def test_what_is_written_names_version_and_uid(world: Preempting) -> None:
    claim, uid = claimed(world, app="db")  # its budget is spent: it is deleted
    member, version = claim.seats[0].member, claim.seats[0].resource_version
    client = Answers(SPENT, read=read(uid))
    await carry_out(world, claim, client)
    assert client.asked == []
    assert client.bodies == [
        {
            "metadata": {"uid": member.uid, "resourceVersion": str(version)},
            "status": {"nominatedNodeName": claim.seats[0].node_name},
        },
        {"preconditions": {"uid": uid}},
    ]


async def test_nominees_of_less_priority_on_the_node_lose_their_nomination(
    world: Preempting,
) -> None:
    """They may no longer fit; those of other nodes keep theirs."""
    world.node("n2", cpu=2000)
    for name, node, priority in (("lower", "n1", 5), ("else", "n2", 5)):
        world.machine.preemptions.nominee_seen(
            name, name=("default", name), version=5, node=node, shape=pod(1, priority=priority)
        )
    world.round()
    world.runs("there", pod(2000, priority=99), "n2")
    claim, uid = claimed(world)
    client = Answers(OK, read=read(uid))
    await carry_out(world, claim, client)
    cleared = [path for path, status in client.patched if status == {"nominatedNodeName": None}]
    assert cleared == ["/api/v1/namespaces/default/pods/lower/status"]


async def test_a_conflict_about_the_same_pod_means_nothing(world: Preempting) -> None:
    claim, uid = claimed(world)
    client = Answers(CONFLICT, CONFLICT, OK, read=read(uid))
    await carry_out(world, claim, client)
    assert client.asked == [uid] * 3
    assert [outcome.kind for outcome in world.outcomes()] == [OutcomeKind.NOMINATED]


@pytest.mark.parametrize("how", ["namesake", "leaving", "gone"])
async def test_a_conflict_about_a_pod_that_goes_is_enough(world: Preempting, how: str) -> None:
    claim, uid = claimed(world)
    found = {
        "namesake": read("another"),
        "leaving": read(uid, deletionTimestamp="2026-01-01T00:00:00Z"),
        "gone": Response(404, b"{}"),
    }
    client = Answers(CONFLICT, read=found[how])
    await carry_out(world, claim, client)
    assert client.asked == [uid]
    assert [outcome.kind for outcome in world.outcomes()] == [OutcomeKind.NOMINATED]


async def test_a_budget_that_stays_spent_ends_the_claim(
    world: Preempting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binder.evictor, "BUDGET_PATIENCE_S", 0.0)
    claim, uid = claimed(world)
    client = Answers(SPENT, read=read(uid))
    await carry_out(world, claim, client)
    (outcome,) = world.outcomes()
    assert (outcome.kind, outcome.cause) == (OutcomeKind.CONFLICT, Cause.VICTIMS)
    assert not world.follower.nominations
    assert world.machine.cluster.facts[uid].flags == 0


class Gone(Answers):
    """One member of the gang is gone when its nomination comes."""

    def __init__(self, name: str) -> None:
        super().__init__(OK, read=Response(404, b"{}"))
        self.name = name
        self.nominated: list[str] = []
        self.cleared: list[str] = []

    async def patch_pod_status(self, namespace: str, name: str, body: object) -> Response:
        if name == self.name:
            return Response(404, b"{}")
        self.nominated.append(name)
        return await super().patch_pod_status(namespace, name, body)

    async def patch(self, path: str, body: object) -> Response:
        assert isinstance(body, dict)
        assert body["status"] == {"nominatedNodeName": None}
        self.cleared.append(path.split("/")[-2])
        return OK


async def test_nobody_goes_for_a_gang_of_which_one_nomination_cannot_be_written() -> None:
    world = Ganging()
    world.old()
    pods = world.gang()
    incoming = world.decided_together(pods)
    assert incoming is not None
    world.propose(incoming)
    client = Gone("new1")
    await carry_out(world, world.claim(pods[0]), client)
    assert client.asked == []
    assert client.cleared == client.nominated, "what was written is taken back"
    (outcome,) = world.outcomes()
    assert (outcome.kind, outcome.cause) == (OutcomeKind.CONFLICT, Cause.POD_CHANGED)
    assert set(outcome.members) == {made.uid for made in pods}
