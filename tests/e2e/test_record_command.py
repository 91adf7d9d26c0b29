"""`stretto record` as an operator uses it: beside `stretto run`, then `stretto check-history`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stretto.cli.verdict import ledger_owner
from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.kube.listing import read_all
from stretto.model.objects import Pod
from stretto.simulator.cluster import SimulatedCluster
from stretto.simulator.settings import SimulatorSettings
from tests.binder.shells import delete
from tests.e2e.commands import Ended, ended, is_one_clear_line, ready_line, running
from tests.e2e.stack import plain_kubeconfig, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


@contextlib.asynccontextmanager
async def simulated(folder: Path) -> AsyncIterator[tuple[SimulatedCluster, Path]]:
    """A cluster with three nodes, and a kubeconfig for it."""
    async with SimulatedCluster(SimulatorSettings(nodes=3)) as cluster:
        yield cluster, plain_kubeconfig(folder, url=cluster.url, name="sim")


async def load(folder: Path, kubeconfig: Path, *, run: str) -> None:
    """Twenty pods, all bound."""
    words = ("--pods=20", "--arrival=burst", f"--run={run}")
    end = await ended(folder, "loadgen", f"--kubeconfig={kubeconfig}", *words)
    assert end.code == 0, end.lines


def freed(audit: Path, uid: str) -> bool:
    """The Binder has told that it gave a pod's room back."""
    acts = [json.loads(line) for line in audit.read_bytes().splitlines()]
    return any(act["act"] == "freed" and act["uid"] == uid for act in acts if "uid" in act)


async def recording(process: asyncio.subprocess.Process) -> None:
    """Wait until the first list is written."""
    assert process.stdout is not None
    line = await process.stdout.readline()
    assert line.startswith(b"stretto record: recording /api/v1/pods, "), line


async def stopped(process: asyncio.subprocess.Process, number: signal.Signals) -> Ended:
    process.send_signal(number)
    out, _ = await process.communicate()
    assert process.returncode is not None
    return Ended(process.returncode, out.decode().splitlines())


async def test_what_was_recorded_beside_a_run_is_held(tmp_path: Path) -> None:
    """Pods that were bound before the recording began are in two of the logs only,
    and one that was gone before is in no list."""
    out, audit = tmp_path / "a history", tmp_path / "audit.jsonl"
    async with simulated(tmp_path) as (cluster, kubeconfig):
        at = f"--kubeconfig={kubeconfig}"
        async with (
            KubeClient(KubeConfig.from_url(cluster.url)) as client,
            running(tmp_path, "run", at, "--shards=1", f"--audit-log={audit}") as roles,
        ):
            uid = (await ledger_owner(client)).partition(":")[0]
            await ready_line(roles)
            await load(tmp_path, kubeconfig, run="before")
            first, second, *_ = [
                pod.metadata for pod in await read_all(client, "/api/v1/pods", kind=Pod)
            ]
            await delete(client, first.name)
            await until(lambda: freed(audit, first.uid), timeout_s=30, what="room is freed")
            ledger = tmp_path / "state/stretto/ledger" / uid
            logs = (f"--ledger={ledger}", f"--audit-log={audit}", f"--out={out}")
            async with running(tmp_path, "record", at, *logs) as process:
                await recording(process)
                await load(tmp_path, kubeconfig, run="after")
                await delete(client, second.name)
                await until(lambda: freed(audit, second.uid), timeout_s=30, what="as above")
                end = await stopped(process, signal.SIGINT)
    assert end.code == 0, end.lines
    assert end.lines[-1] == f"stretto check-history '{out}'"
    assert " gaps 0" in end.lines[0]
    verdict = await ended(tmp_path, *shlex.split(end.lines[-1])[1:])
    assert (verdict.code, verdict.lines[-1]) == (0, "held"), verdict.lines
    table = {line.split()[0]: line.split()[1] for line in verdict.lines if line[0] == "I"}
    assert table["I10"] == "60", "the POSTs of all, and the binds of the second twenty"
    assert int(table["I24"]) >= 38, "all but the two are in the ledger at the end"


async def test_an_api_server_that_is_away_at_the_end_leaves_a_gap(tmp_path: Path) -> None:
    out = tmp_path / "history"
    async with contextlib.AsyncExitStack() as outlives:
        async with simulated(tmp_path) as (_, kubeconfig):
            flags = (f"--kubeconfig={kubeconfig}", f"--out={out}", "--scheduler-name=own")
            process = await outlives.enter_async_context(running(tmp_path, "record", *flags))
            await recording(process)
        end = await stopped(process, signal.SIGTERM)
    assert end.code == 0, end.lines
    assert [line for line in end.lines if line.startswith("gap: the end was not recorded: ")]
    assert "recorded without the ledger's log: its rules will not be checked" in end.lines
    assert end.lines[-1] == f"stretto check-history {out} --scheduler-name=own"
    verdict = await ended(tmp_path, *shlex.split(end.lines[-1])[1:])
    assert (verdict.code, verdict.lines[-1]) == (3, "inconclusive"), verdict.lines


async def test_what_cannot_be_recorded_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "api.jsonl").write_text("")
    (tmp_path / "file").write_text("")
    async with simulated(tmp_path) as (cluster, kubeconfig):
        async with KubeClient(KubeConfig.from_url(cluster.url)) as client:
            lease = {"metadata": {"name": "stretto-binder", "namespace": "default"}, "spec": {}}
            assert (await client.post(LEASES, lease)).ok

        async def refused(*words: str, says: str) -> None:
            flags = (f"--kubeconfig={kubeconfig}", f"--out={tmp_path / 'new'}", *words)
            end = await ended(tmp_path, "record", *flags)
            assert end.code == 2
            is_one_clear_line(end, says)
            assert not (tmp_path / "new" / "api.jsonl").exists()

        await refused(f"--ledger={tmp_path}", says="there is no appendonlydir in it; name the ")
        await refused(f"--audit-log={tmp_path / 'none'}", says="no such file; name that of the ")
        await refused(f"--out={tmp_path / 'file'}", says="name a folder that can be written")
        await refused(f"--out={tmp_path / 'old'}", says="there is a recording in it; name another")
        await refused(says="the Lease stretto-binder is in default; name that one")
        await refused("--kubeconfig=/none", says="/none")
    assert (tmp_path / "old" / "api.jsonl").read_text() == ""
