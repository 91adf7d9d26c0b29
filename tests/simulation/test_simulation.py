"""A few simulated runs in each test run; ``make simulate RUNS=…`` does many."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator

import pytest

import stretto.kube.client
from stretto.kube.client import _Preconditions as Preconditions
from stretto.simulator.store import Change
from tests.simulation.__main__ import replay
from tests.simulation.apart import Apart
from tests.simulation.brief import EVENTS, FAULTS, Brief
from tests.simulation.bulky import Bulky
from tests.simulation.cluster import PODS, SHORT, Judge, Settings, Simulation, Violation
from tests.simulation.gangs import FOUR_GANGS, HALF_JOBS, GangRaces
from tests.simulation.jobs import COUNT, JobsRun
from tests.simulation.preempting_gangs import PreemptingGangs
from tests.simulation.quota import LIMIT, QuotaRun
from tests.simulation.standbys import OTHERS, Standbys, with_other

SEEDS = 24
pytestmark = pytest.mark.timeout(180)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_everything_comes_to_rest_whatever_fails(seed: int) -> None:
    run = Simulation(seed)
    run.run()
    assert run.world.faults >= 3
    assert run.world.events >= 200


@pytest.mark.parametrize("first", range(0, 32, 8))
def test_brief_runs_come_to_rest_soon_and_count(first: int) -> None:
    for seed in range(first, first + 8):
        run = Brief(seed)
        run.run()
        assert run.world.faults >= FAULTS, seed
        assert run.world.events >= EVENTS, seed


def test_a_pod_that_is_bound_and_deleted_in_a_gap_of_the_watch_keeps_no_room() -> None:
    run = Brief(108)
    run.settings = dataclasses.replace(run.settings, patience_s=20.0)
    run.run()


@pytest.mark.parametrize("seed", range(100, 112))
def test_pods_of_higher_priority_get_their_room_whatever_fails(seed: int) -> None:
    run = Simulation(seed, Settings(singles=7, urgent=4, gangs=0))
    run.run()
    names = {pod["metadata"]["name"] for pod in run._pods()}
    assert {"u0", "u1", "u2", "u3"} <= names, "nobody makes them leave"


@pytest.mark.parametrize("seed", [200, 201, 202, 505, 507])
def test_a_quota_is_never_overspent_whatever_fails(seed: int) -> None:
    run = QuotaRun(seed)
    run.run()
    assert run.peak == LIMIT, "the quota is used up"


def test_the_same_seed_is_the_same_run() -> None:
    runs = [Simulation(7), Simulation(7), Simulation(8)]
    for run in runs:
        run.run()
    same, again, other = (run.world.trace for run in runs)
    assert same == again != other


@pytest.mark.timeout(900)  # a process more, which a busy machine may start slowly
def test_another_process_with_other_hashes_plays_the_same_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert replay(Brief, range(26, 30), "brief") == 0
    assert "4 of 4 seeds" in capsys.readouterr().out


@pytest.mark.parametrize("first", range(1000, 1012, 4))
def test_the_history_of_a_run_holds_every_rule_and_keeping_it_changes_nothing(first: int) -> None:
    for seed in range(first, first + 4):
        run, kept = Brief(seed), Brief(seed)
        kept.record()
        run.run()
        kept.run()
        assert kept.world.trace == run.world.trace
        assert kept.recorder is not None
        checks = kept.recorder.findings(at_rest=True).checks
        assert all(checks[rule] for rule in ("I1a", "I1b", "I2", "I9", "I10", "I12", "I13", "I24"))


def test_a_bind_that_asks_for_no_version_is_seen_in_the_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In most runs nothing comes of it, so that the judge has nothing to say."""

    class Careless(Preconditions):
        def __post_init__(self) -> None:
            self.resource_version = ""

    monkeypatch.setattr(stretto.kube.client, "_Preconditions", Careless)

    def problem(seed: int) -> str:
        run = Brief(seed)
        run.record()
        try:
            run.run()
        except Violation as violation:
            return str(violation)
        return ""

    assert any("I10" in problem(seed) for seed in range(7000, 7060))


def test_what_the_judge_sees_while_a_request_is_carried_out_ends_the_run() -> None:
    """The request comes from a callback of the loop: it must not be logged and forgotten."""
    run = Simulation(1, SHORT)
    see = run.judge.changed

    def changed(change: Change) -> None:
        see(change)
        if getattr(change.new, "node_name", ""):
            raise Violation("no pod may be bound")

    run.judge.changed = changed  # type: ignore[method-assign]
    with pytest.raises(Violation, match="no pod may be bound"):
        run.run()
    assert len(run.judge.nodes) == 1, "the first one"


def test_without_faults_nothing_is_lost_or_late() -> None:
    run = Simulation(3, Settings(faults=0, patience_s=20))
    run.run()
    assert run.world.faults == 0


def test_the_judge_sees_an_overcommitted_node_and_a_pod_that_moves() -> None:
    run = Simulation(1)
    judge = Judge(run.world, node_cpu=1)
    pods = run.kube.api.store(run.pods_kind)
    pods.observe(judge.changed)
    for number in range(3):
        run.create_pod(f"p{number}")
    run.kube.call("POST", "/api/v1/nodes", {"metadata": {"name": "n0"}})
    bind = {"target": {"kind": "Node", "name": "n0"}}
    for number in range(2):
        path = f"/api/v1/namespaces/default/pods/p{number}/binding"
        run.kube.call("POST", path, {**bind, "metadata": {"name": f"p{number}"}})
    path = "/api/v1/namespaces/default/pods/p2/binding"
    with pytest.raises(Violation, match="n0 is overcommitted by p2"):
        run.kube.call("POST", path, {**bind, "metadata": {"name": "p2"}})
    run.world.loop.close()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("settings", [FOUR_GANGS, HALF_JOBS])
def test_gangs_for_one_gangs_room_run_one_after_another(seed: int, settings: Settings) -> None:
    run = GangRaces(seed, settings)
    run.run()
    assert sorted(run.order) == sorted(f"g{number}" for number in range(settings.gangs))


@pytest.mark.parametrize("seed", range(16))
def test_a_gang_of_high_priority_gets_its_room_and_breaks_none_whatever_fails(seed: int) -> None:
    run = PreemptingGangs(seed)
    run.run()
    assert run.world.faults >= 3


def test_two_gangs_that_hold_parts_are_noticed() -> None:
    run = GangRaces(1)
    run._create_cluster()
    for gang in ("g0", "g1"):
        run.create_pod(f"{gang}-0", group=gang)
    bind = {"target": {"kind": "Node", "name": "n0"}}
    run.kube.call("POST", f"{PODS}/g0-0/binding", {**bind, "metadata": {"name": "g0-0"}})
    with pytest.raises(Violation, match="g0 and g1 hold parts"):
        run.kube.call("POST", f"{PODS}/g1-0/binding", {**bind, "metadata": {"name": "g1-0"}})
    run.world.loop.close()


@pytest.mark.parametrize("seed", range(16))
def test_no_host_ever_holds_two_pods_that_keep_apart_whatever_fails(seed: int) -> None:
    run = Apart(seed)
    run.run()
    names = {pod["metadata"]["name"] for pod in run._pods()}
    assert len(names) == run.settings.singles + 1, "a set has a pod for each host"


@pytest.mark.parametrize("seed", [0, 6, 10, 12, *range(100, 106), 107, 108])
def test_leaders_that_stand_still_and_go_on_do_no_harm_and_their_fellows_take_over(
    seed: int,
) -> None:
    run = Standbys(seed)
    run.record()
    run.run()
    assert run.frozen + run.stopped + run.deleted


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", OTHERS)
def test_whatever_a_run_is_about_holds_with_two_of_each_leader(name: str, seed: int) -> None:
    run = with_other(name, seed)
    run.record()
    run.run()
    assert run.world.faults >= 3


@pytest.mark.parametrize("seed", range(8))
def test_bulky_pods_keep_apart_and_none_is_lost_in_the_slow_lane_whatever_fails(seed: int) -> None:
    run = Bulky(seed)
    run.run()
    names = {pod["metadata"]["name"] for pod in run._pods()}
    assert len(names) == run.settings.singles + 1
    assert run.through_lane >= 1


def test_two_pods_of_a_set_on_one_host_are_noticed() -> None:
    run = Apart(1)
    run._create_cluster()
    bind = {"target": {"kind": "Node", "name": "n0"}}
    for name in ("p0", "p3"):
        run.create_pod(name)
    path = f"{PODS}/p0/binding"
    run.kube.call("POST", path, {**bind, "metadata": {"name": "p0"}})
    with pytest.raises(Violation, match="p0 and p3 of set-0 are both on n0"):
        run.kube.call("POST", f"{PODS}/p3/binding", {**bind, "metadata": {"name": "p3"}})
    run.world.loop.close()


def test_every_suspended_job_is_admitted_once_there_is_room_whatever_fails() -> None:
    for seed in range(6):
        run = JobsRun(seed)
        run.run()
        assert run.resumed >= COUNT
        assert run.peak <= LIMIT
