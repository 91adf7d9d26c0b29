"""The loop between streams, ledger and binds: order, backpressure, a ledger that fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec
import pytest
from prometheus_client import generate_latest

from stretto.ledger.types import EntryState, LedgerGap, LedgerUnavailable
from stretto.model.unit import Cause, OutcomeKind, VerdictKind
from stretto.simulator.cluster import SimulatedCluster
from stretto.simulator.faults import Effect, FaultRule
from tests.binder.shells import PODS, Rig, create, delete, pod_of, simulated, until


class Running(NamedTuple):
    """An open Binder whose loops run, and its API server."""

    rig: Rig
    cluster: SimulatedCluster


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    async with simulated() as (cluster, client):
        rig = Rig(client, epoch=10)
        await rig.open(clean=True)
        rig.start()
        yield Running(rig, cluster)
        await rig.stop()


@pytest.fixture
def rig(running: Running) -> Rig:
    return running.rig


def states(rig: Rig) -> list[EntryState]:
    return [entry.state for entry in rig.ledger.twin.entries()]


async def test_a_proposal_ends_as_a_bound_pod(rig: Rig) -> None:
    await create(rig.client, "p")
    rig.commits.propose([await rig.proposal("p", "n1")])
    await until(lambda: states(rig) == [EntryState.BOUND], "bound")
    assert rig.client.usage.total("get", "pods") == 1, "the happy path reads no pod"
    assert rig.client.usage.total("patch", "pods/status") == 0
    assert (await pod_of(rig.client, "p"))["spec"]["nodeName"] == "n1"
    (verdict,) = rig.verdicts
    assert verdict.kind is VerdictKind.COMMITTED
    assert rig.published_at == [verdict.sequence], "a verdict before its step of the log"
    assert [o.kind for o in rig.machine.outcomes.after(0)[1]] == [OutcomeKind.BOUND]
    rig.machine.validate()


async def test_a_bind_that_was_put_off_is_not_sent_to_a_node_that_left_meanwhile(
    running: Running,
) -> None:
    """The API server would bind to a name that no node has."""
    rig, cluster = running.rig, running.cluster
    await create(rig.client, "p")
    incoming = await rig.proposal("p", "n1")
    rule = cluster.faults.add(
        Effect.THROTTLE, method="POST", resource="pods/binding", retry_after_s=1
    )
    rig.commits.propose([incoming])
    await until(lambda: rule.struck > 0, "the bind was put off")
    await rig.client.delete("/api/v1/nodes/n1")
    await until(lambda: not rig.machine.cluster.node_uid_of("n1"), "the node's end was seen")
    cluster.faults.remove(rule)
    await until(lambda: not rig.machine.bindings, "freed")
    assert not (await pod_of(rig.client, "p"))["spec"].get("nodeName")
    await until(lambda: rig.commits.idle, "written")
    assert rig.ledger.twin.entries() == []


async def test_only_what_was_lost_to_something_counts_as_a_conflict(rig: Rig) -> None:
    """Held and superseded proposals have no cause: their pods are in somebody's hands."""
    await create(rig.client, "p")
    later = [await rig.proposal("p", "n1") for _ in range(2)]
    rig.commits.propose([later[1], later[0], await rig.proposal("p", "n2")])
    await until(lambda: len(rig.verdicts) == 3, "three verdicts")
    kinds = [verdict.kind for verdict in rig.verdicts]
    assert sorted(kinds) == sorted([VerdictKind.COMMITTED, VerdictKind.HELD, VerdictKind.HELD])
    counted = {
        sample.labels["cause"]: sample.value
        for family in rig.metrics.conflicts.collect()
        for sample in family.samples
        if sample.name == "stretto_conflicts_total"
    }
    assert "none" not in counted
    assert not any(counted.values())


@pytest.mark.parametrize("effect", [Effect.DROP_REPLY, Effect.REFUSE, Effect.THROTTLE, Effect.LATE])
async def test_a_bind_that_goes_wrong_is_resolved(running: Running, effect: Effect) -> None:
    rig = running.rig
    await create(rig.client, "p")
    rule = FaultRule(
        effect=effect, method="POST", resource="pods/binding", limit=1, retry_after_s=0, delay_s=1.0
    )
    running.cluster.faults.rules.append(rule)
    rig.commits.propose([await rig.proposal("p", "n1")])
    await until(lambda: rig.verdicts and not rig.machine.open, "resolved")
    await until(lambda: rig.commits.idle, "written")
    assert rule.struck == 1
    outcome = rig.machine.outcomes.after(0)[1][-1]
    bound = (await pod_of(rig.client, "p"))["spec"].get("nodeName", "")
    if effect in (Effect.DROP_REPLY, Effect.THROTTLE):
        assert (outcome.kind, bound) == (OutcomeKind.BOUND, "n1")
        await until(lambda: states(rig) == [EntryState.BOUND], "confirmed")
    else:
        assert (outcome.kind, bound) == (OutcomeKind.FAILED, "")
        assert states(rig) == []
        # It is decided again, under the version after the fence.
        rig.commits.propose([await rig.proposal("p", "n2")])
        await until(lambda: states(rig) == [EntryState.BOUND], "bound at last")
        assert (await pod_of(rig.client, "p"))["spec"]["nodeName"] == "n2"


async def test_a_pod_changed_in_flight_is_rebased_and_bound(rig: Rig) -> None:
    await create(rig.client, "p")
    proposal = await rig.proposal("p", "n1")
    patch = {"metadata": {"annotations": {"a": "b"}}}
    assert (await rig.client.patch(f"{PODS}/p", patch)).ok
    rig.commits.propose([proposal])
    await until(lambda: states(rig) == [EntryState.BOUND], "bound")
    assert (await pod_of(rig.client, "p"))["spec"]["nodeName"] == "n1"


async def test_a_pod_recreated_in_flight_is_gone(rig: Rig) -> None:
    await create(rig.client, "p")
    proposal = await rig.proposal("p", "n1")
    await delete(rig.client, "p")
    await create(rig.client, "p")
    rig.commits.propose([proposal])
    await until(lambda: rig.verdicts and not rig.machine.open, "settled")
    await until(lambda: states(rig) == [], "freed")
    assert rig.machine.outcomes.after(0)[1][-1].kind is OutcomeKind.GONE
    assert not (await pod_of(rig.client, "p"))["spec"].get("nodeName")


def told(rig: Rig) -> str:
    """The metrics as they are scraped."""
    return generate_latest(rig.metrics.registry).decode()


@pytest.mark.parametrize("error", [LedgerUnavailable, LedgerGap])
async def test_a_ledger_that_fails_stops_commits_and_is_mended(
    rig: Rig, error: type[Exception]
) -> None:
    await create(rig.client, "a")
    rig.commits.propose([await rig.proposal("a", "n1")])
    await until(lambda: states(rig) == [EntryState.BOUND], "bound")
    await until(lambda: rig.commits.idle, "written")
    for name in ("b", "c"):
        await create(rig.client, name)
    if error is LedgerGap:
        rig.ledger.twin.store.flush()
    else:
        rig.ledger.fail += [LedgerUnavailable("no answer")] * 2
    rig.commits.propose([await rig.proposal("b", "n1")])
    await until(lambda: len(rig.verdicts) == 2, "answered")
    assert (rig.verdicts[1].kind, rig.verdicts[1].cause) == (VerdictKind.CONFLICT, Cause.STALE)
    await until(lambda: rig.commits.ledger_ok, "whole again")
    rig.commits.propose([await rig.proposal("c", "n1")])
    await until(lambda: states(rig) == [EntryState.BOUND] * 2, "goes on")
    cause = "gap" if error is LedgerGap else "unanswered"
    assert f'stretto_ledger_repairs_total{{cause="{cause}"}} 1.0' in told(rig)
    rig.ledger.twin.validate()
    rig.machine.validate()


async def test_a_bind_in_flight_survives_the_loss_of_the_ledger(running: Running) -> None:
    rig = running.rig
    await create(rig.client, "p")
    rule = FaultRule(
        effect=Effect.DELAY, method="POST", resource="pods/binding", limit=1, delay_s=0.5
    )
    running.cluster.faults.rules.append(rule)
    rig.commits.propose([await rig.proposal("p", "n1")])
    await until(lambda: rule.struck, "the bind is on its way")
    rig.ledger.twin.store.flush()
    await create(rig.client, "q")
    rig.commits.propose([await rig.proposal("q", "n1")])
    await until(lambda: EntryState.RESERVED in states(rig), "written again, as not bound")
    await until(lambda: states(rig) == [EntryState.BOUND], "bound")
    rig.machine.validate()


async def test_drift_freezes_the_node_until_the_ledger_is_written_anew(rig: Rig) -> None:
    await create(rig.client, "p")
    uid = rig.machine.cluster.node_uid_of("n1")
    node = rig.ledger.twin.store.accounts[uid]
    node[2::4] = [0] * (len(node) // 4)
    rig.commits.propose([await rig.proposal("p", "n1")])
    await until(lambda: "rebuild" in rig.ledger.calls, "rebuilt")
    await until(lambda: not rig.machine.cluster.nodes[uid].frozen, "thawed")
    assert rig.verdicts[0].cause is Cause.LEDGER
    assert 'stretto_ledger_repairs_total{cause="drift"} 1.0' in told(rig)
    rig.commits.propose([await rig.proposal("p", "n1")])
    await until(lambda: states(rig) == [EntryState.BOUND], "bound")


async def test_nothing_is_committed_on_an_old_picture_or_without_the_lease(rig: Rig) -> None:
    await create(rig.client, "p")
    rig.fresh = False
    rig.commits.propose([await rig.proposal("p", "n1")])
    await asyncio.sleep(0.05)
    assert "reserve" not in rig.ledger.calls
    rig.may_act, rig.fresh = False, True
    rig.commits.changed()
    await asyncio.sleep(0.05)
    assert "reserve" not in rig.ledger.calls
    assert rig.verdicts == []
    rig.may_act = True
    await until(lambda: states(rig) == [EntryState.BOUND], "committed when both are back")


async def test_shards_wait_while_too_much_waits(rig: Rig) -> None:
    rig.fresh = False
    proposals = []
    for number in range(6):
        await create(rig.client, f"p{number}")
        proposals.append(await rig.proposal(f"p{number}", "n1"))
    await rig.commits.room()
    rig.commits.propose(proposals)
    waiting = asyncio.create_task(rig.commits.room())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    rig.fresh = True
    rig.commits.changed()
    await waiting
    await until(lambda: states(rig) == [EntryState.BOUND] * 6, "bound")


async def test_after_close_no_proposal_is_taken(rig: Rig) -> None:
    await create(rig.client, "p")
    proposal = await rig.proposal("p", "n1")
    rig.commits.close()
    rig.commits.propose([proposal])
    rig.commits.changed()
    await until(lambda: rig.commits.idle, "idle")
    assert rig.verdicts == []
    assert rig.ledger.twin.entries() == []


async def test_only_what_changes_the_picture_starts_a_round_at_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await until(lambda: rig.commits.idle, "idle")
    monkeypatch.setattr("binder.committer.GATHER_S", 600.0)
    rounds: list[bool] = []
    one_round = rig.commits.round

    async def counted() -> None:
        rounds.append(rig.machine.cluster.changed)
        await one_round()

    rig.commits.round = counted  # type: ignore[method-assign]
    for _ in range(5):
        rig.commits.changed()
        await asyncio.sleep(0.005)
    assert not rounds, "an end of a bind waits for others"
    assert not rig.commits.idle, "and is not forgotten"
    rig.machine.cluster.namespace_seen("new", {})
    rig.commits.changed()
    await until(lambda: bool(rounds), "a round")
    assert rounds == [True]


async def test_of_two_shards_proposals_that_wait_the_more_important_is_first(rig: Rig) -> None:
    for name in ("low", "high"):
        await create(rig.client, name)
    low, high = [await rig.proposal(name, "n1") for name in ("low", "high")]
    important = msgspec.structs.replace(high.shapes[0], priority=9)
    rig.commits.propose([low, high._replace(stream=low.stream + 1, shapes=(important,))])
    await until(lambda: len(rig.verdicts) == 2, "two verdicts")
    units = [verdict.unit_id for verdict in rig.verdicts]
    assert units == [one.proposal.unit.unit_id for one in (high, low)]
