"""Runs against a simulated cluster with a scheduler of thirty lines."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from stretto.workload import synthetic
from stretto.workload.generator import Generator
from stretto.workload.load import LoadResult, Progress, run_load
from stretto.workload.manifests import node_manifest
from stretto.workload.nodes import create_nodes
from stretto.workload.observations import Observations
from stretto.workload.report import Check, Extras, ReportError, make_room, write_report
from stretto.workload.schedules import schedule_of
from stretto.workload.settings import Arrival, LoadSettings
from stretto.workload.table import TraceError
from tests.workload.tiny_scheduler import cluster


def settings(**fields: Any) -> LoadSettings:
    return LoadSettings(**{"run": "r", "pods": 60, "nodes": "5", "settle_s": 0.5, **fields})


async def load(refuse: str = "", **fields: Any) -> LoadResult:
    async with cluster(nodes=5, refuse=refuse) as client:
        return await run_load(settings(**fields), client=client)


async def test_a_burst_is_bound_and_counted() -> None:
    result = await load(replicas=3, shapes=4)
    assert (result.counts.created, result.counts.bound, result.unfinished) == (60, 60, 0)
    assert result.finished
    assert result.created_to_bound_ms.count == 60
    assert result.nodes_used == 5
    assert sum(result.bound_per_s) == 60
    assert result.api_calls["create pods"] == 60
    assert result.counts.refused == result.counts.rebound == 0


@pytest.mark.parametrize("arrival", [Arrival.STEADY, Arrival.RAMP])
async def test_pods_come_when_they_are_due(arrival: Arrival) -> None:
    result = await load(arrival=arrival, pods=40, rate=100, rate_from=50)
    assert result.counts.bound == 40
    assert result.created_span_s > 0.3


async def test_pods_that_fit_nowhere_end_the_run_with_their_reason() -> None:
    result = await load(refuse="-s1-", shapes=2, replicas=10)
    assert result.unfinished == 30
    assert result.reasons == {"Unschedulable: 0/3 nodes are available": 30}
    assert result.created_to_decided_ms.count == 60
    assert result.created_to_bound_ms.count == 30


async def test_lifetimes_end_pods_by_the_kubelet_or_by_deletion() -> None:
    result = await load(lifetime_s=0.01, settle_s=1.0)
    assert result.counts.bound == 60
    result = await load(lifetime_s=0.01, delete=True, arrival=Arrival.STEADY, rate=100)
    assert result.deleted > 0


async def test_a_trace_is_replayed(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("name,cpu,memory,at_s,replicas\na,1,1Gi,0,5\nb,2,1Gi,1000,5\n")
    result = await load(trace=str(trace), arrival=Arrival.TRACE, pods=0, span_s=0.5)
    assert result.counts.bound == 10
    assert 0.4 < result.created_span_s < 5


async def test_stop_ends_a_run_early() -> None:
    stop = asyncio.Event()

    def enough(progress: Progress) -> None:
        if progress.bound >= 5:
            stop.set()

    async with cluster(nodes=5) as client:
        wanted = settings(pods=100_000, arrival=Arrival.STEADY, rate=100)
        result = await run_load(wanted, client=client, progress=enough, stop=stop)
    assert not result.finished
    assert 5 <= result.counts.created < 1000


async def test_cleanup_leaves_nothing() -> None:
    async with cluster(nodes=5) as client:
        await run_load(settings(cleanup=True), client=client)
        for path in ("/api/v1/pods", "/api/v1/nodes"):
            items = json.loads((await client.get(path)).body)["items"]
            left = [item["metadata"]["name"] for item in items]
            assert all("deletionTimestamp" in item["metadata"] for item in items), left


async def test_cleanup_keeps_nodes_that_were_there_before() -> None:
    async with cluster(nodes=5) as client:
        await create_nodes(client, (node_manifest(n) for n in synthetic.nodes(2)))
        await run_load(settings(cleanup=True), client=client)
        items = json.loads((await client.get("/api/v1/nodes")).body)["items"]
        assert {item["metadata"]["name"] for item in items} == {"node-00000", "node-00001"}


async def test_nodes_that_exist_are_left_alone_and_bad_ones_are_named() -> None:
    async with cluster(nodes=1) as client:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "spec": {}}
        assert await create_nodes(client, [node]) == ["a"]
        assert await create_nodes(client, [node]) == []
        with pytest.raises(TraceError, match="node Not A Name was refused"):
            await create_nodes(client, [{**node, "metadata": {"name": "Not A Name"}}])


async def test_creations_that_fail_are_counted_by_reason() -> None:
    async with cluster(nodes=1) as client:
        seen = Observations()
        generator = Generator(client, seen, namespace="default", concurrency=2, clock=lambda: 0.0)
        _, schedule = schedule_of(settings(pods=2), run="Not valid ?")
        pods = list(schedule)
        for pod in pods:
            pod.manifest["spec"]["containers"] = []
        await generator.run(pods, asyncio.Event())
    assert seen.counts.create_failed == 2
    assert seen.counts.created == 0
    assert "containers" in next(iter(seen.counts.failures))


async def test_the_report_says_it_all_in_two_files(tmp_path: Path) -> None:
    result = await load(refuse="-s1-")
    hostile = "<script>alert(1)</script>"
    result = dataclasses.replace(result, reasons={hostile: 1})
    extras = Extras(
        title="Trial",
        conflicts={"CAPACITY": 2},
        attempts=90,
        api_requests={
            "binder": {"create pods/binding": 60, "list pods": 3},
            "dispatcher": {"watch pods": 2},
        },
        checks=(Check("no node overcommitted", held=True, detail="0 of 5"),),
    )
    html, data = tmp_path / "r.html", tmp_path / "r.json"
    write_report(result, extras, html, data)
    page, numbers = html.read_text(), json.loads(data.read_bytes())
    assert numbers["counts"]["created"] == 60
    assert numbers["attempts_per_pod"] == pytest.approx(90 / result.counts.bound)
    assert numbers["api_writes_per_pod"] == pytest.approx(60 / result.counts.bound)
    assert numbers["scheduler_api_requests"]["dispatcher"] == {"watch pods": 2}
    assert "<td>dispatcher</td><td>watch pods</td><td>2</td>" in page
    assert numbers["cpu_ms_per_pod"] is None
    assert "rate_from" not in page
    assert numbers["settings"].keys().isdisjoint(result.settings.unused())
    assert hostile not in page
    assert "http" not in page.replace("http-equiv", ""), "nothing is loaded from elsewhere"
    assert page.count("<svg") == 3
    with pytest.raises(ReportError, match="cannot be written to"):
        write_report(result, None, tmp_path / "no" / "r.html", None)


async def test_a_report_of_nothing_is_still_a_report(tmp_path: Path) -> None:
    async with cluster(nodes=1) as client:
        stop = asyncio.Event()
        stop.set()
        result = await run_load(settings(), client=client, stop=stop)
    write_report(result, None, tmp_path / "r.html", tmp_path / "r.json")
    assert result.counts.created == 0


async def test_the_place_of_a_report_is_made_or_refused_before_the_load(tmp_path: Path) -> None:
    make_room(tmp_path / "new" / "r.html")
    assert (tmp_path / "new").is_dir()
    (tmp_path / "file").touch()
    assert not (tmp_path / "new" / "r.html").exists(), "nothing was written yet"
    for place in (tmp_path, tmp_path / "file" / "r.html", Path("/proc/r.html")):
        with pytest.raises(ReportError, match=f"{place}: .*choose another"):
            make_room(place)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"shapes": 0}, "--shapes 0: take 1 or more"),
        ({"trace_format": "philly"}, "--trace-format philly: only for a file"),
        ({"trace": "openb", "trace_format": "philly"}, "--trace-format philly: only for a file"),
        ({"run": "My Run!"}, "--run 'My Run!': take lower-case letters"),
        ({"run": "r" * 39 + "-b"}, "at most 40"),
        ({"rate": 0}, "--rate 0: take more than 0"),
        ({"rate_from": -1.5}, "--rate-from -1.5: take more than 0"),
        ({"pods": 0}, "--pods 0: take 1 or more"),
        ({"arrival": Arrival.TRACE}, "--arrival trace: name a trace with --trace"),
        ({"settle_s": -1}, "--settle-s -1: take 0 or more"),
    ],
)
def test_settings_that_cannot_work_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        settings(**fields)


@pytest.mark.parametrize(
    ("fields", "shown", "hidden"),
    [
        ({}, {"shapes", "replicas"}, {"rate", "rate_from", "seed", "span_s"}),
        ({"lifetime_s": 3.0}, {"seed", "lifetime_s"}, {"trace", "max_gap_s"}),
        ({"arrival": Arrival.RAMP}, {"rate", "rate_from"}, {"span_s"}),
        ({"trace": "openb"}, {"span_s", "max_gap_s"}, {"shapes", "seed", "trace_format", "rate"}),
        ({"trace": "t.csv", "arrival": Arrival.STEADY}, {"trace_format", "rate"}, {"replicas"}),
    ],
)
def test_a_report_shows_the_settings_that_had_an_effect(
    fields: dict[str, Any], shown: set[str], hidden: set[str]
) -> None:
    unused = settings(**fields).unused()
    assert hidden <= unused
    assert not shown & unused
    assert unused <= {field.name for field in dataclasses.fields(LoadSettings)}


def test_the_same_seed_makes_the_same_pods() -> None:
    wanted = settings(lifetime_s=3, pods=50)
    first, second = (list(schedule_of(wanted, run="r")[1]) for _ in range(2))
    assert first == second
