"""What is written to the API server, by its own audit log: at most two writes a pod on the happy
path, and none when nothing has changed."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.api import Api, scheduled_condition
from tests.e2e.stack import Stack, until
from tests.kube_env.control_plane import ControlPlane

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(180)]

PODS = 60
HOPELESS = 12
QUIET_S = 5.0
ACCOUNT = "system:serviceaccount:stretto:"
WRITES = {"create", "update", "patch", "delete", "deletecollection"}
KEPT_ALIVE = {"leases", "tokenreviews", "subjectaccessreviews"}
"""Not for any pod."""


def writes(folder: Path) -> Counter[str]:
    """Writes of all roles so far that have ended: "verb resource/subresource" → how many."""
    found: Counter[str] = Counter()
    for file in folder.glob("audit-*.jsonl"):
        for line in file.read_text().splitlines():
            event = json.loads(line)
            what = event.get("objectRef") or {}
            ours = event["user"]["username"].startswith(ACCOUNT)
            if ours and event["verb"] in WRITES and what.get("resource") not in KEPT_ALIVE:
                sub = f"/{what['subresource']}" if "subresource" in what else ""
                found[f"{event['verb']} {what['resource']}{sub}"] += 1
    return found


async def test_two_writes_a_pod_and_none_when_nothing_has_changed(
    new_control_plane: Callable[..., ControlPlane],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, str], None],
) -> None:
    log = tmp_path / "audit"
    log.mkdir()
    monkeypatch.setenv("STRETTO_AUDIT", str(log))
    async with Api(new_control_plane()) as api:
        await api.create_nodes(4, cpu="16")
        async with Stack(tmp_path, api.plane.kubeconfig) as stack:
            before = writes(log)
            await api.all(api.create_pod(f"p-{i}") for i in range(PODS))
            await told_all(api, "Scheduled", PODS)
            happy = writes(log) - before
            record_property("a bound pod", f"{happy.total() / PODS:.2f} writes: {dict(happy)}")
            assert happy == {"create pods/binding": PODS, "create events": PODS}

            before = writes(log)
            await api.all(api.create_pod(f"h-{i}", cpu="15") for i in range(HOPELESS))
            await told_all(api, "FailedScheduling", HOPELESS)
            hopeless = writes(log) - before
            record_property("a hopeless pod", f"{hopeless.total() / HOPELESS:.2f} writes")
            assert hopeless == {"patch pods/status": HOPELESS, "create events": HOPELESS}

            # Some room, and still not enough: they are decided again and there is nothing to say.
            before, tried = writes(log), await attempts(stack)
            await api.delete_pod("p-0")

            async def decided_again() -> bool:
                return await attempts(stack) > tried

            await until(decided_again, timeout_s=60, what="they are decided again")
            await asyncio.sleep(QUIET_S)
            assert writes(log) == before
            told = {scheduled_condition(await api.pod(f"h-{i}"))["message"] for i in range(2)}
            assert len(told) == 1
            await stack.settle()


async def attempts(stack: Stack) -> float:
    return (await stack.metrics("dispatcher")).total("scheduler_schedule_attempts_total")


async def told_all(api: Api, reason: str, pods: int) -> None:
    async def told() -> bool:
        return len(await api.events(reason)) == pods

    await until(told, timeout_s=60, what=f"{pods} events of {reason}")
