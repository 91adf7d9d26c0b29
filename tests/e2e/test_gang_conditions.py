"""What people see of gangs, beside what kube-scheduler writes for the same objects."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from dispatcher.group_hindrance import QUORUM
from dispatcher.pods import WAITS
from tests.e2e.api import Api, node_of, scheduled_condition
from tests.e2e.stack import Stack, until
from tests.e2e.test_gangs import GROUPS, WORKLOADS, create_group, create_members
from tests.kube_env.control_plane import ControlPlane

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(180)]

Told = dict[str, list[tuple[str, ...]]]
"""By group: conditions of its members, sorted, and of itself at the end."""


async def create_all(api: Api) -> None:
    """One that fits, one of which two of three fit, one of which none does, one that disagrees,
    one that is short of a member, and a pod without its group."""
    await api.create_nodes(2, cpu="4")
    value = {"metadata": {"name": "high"}, "value": 5}
    await api.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", value)
    for name, minimum in (("fits", 3), ("part", 3), ("huge", 3), ("mixed", 2), ("short", 3)):
        await create_group(api, name, minimum)
    await create_members(api, "fits", 3, cpu="100m")
    await create_members(api, "part", 3, cpu="3")
    await create_members(api, "huge", 3, cpu="9")
    await create_members(api, "short", 2, cpu="100m")
    await create_members(api, "absent", 1, cpu="100m")
    await create_members(api, "mixed", 1, cpu="100m")
    link = {"podGroupName": "mixed"}
    await api.create_pod("mixed-1", cpu="100m", schedulingGroup=link, priorityClassName="high")


async def told(api: Api) -> Told:
    found: Told = {}
    for pod in sorted(await api.pods(), key=lambda pod: str(pod["metadata"]["name"])):
        condition = scheduled_condition(pod)
        message = condition.get("message", "")
        text = ("True", "") if node_of(pod) else (condition.get("reason", ""), message)
        found.setdefault(pod["metadata"]["name"].split("-")[0], []).append(text)
    for name, texts in found.items():
        texts.sort()
        status, group = await api.answer("GET", f"{GROUPS}/{name}")
        conditions = group.get("status", {}).get("conditions", []) if status == 200 else []
        texts += [(c["type"], c["status"], c["reason"], c["message"]) for c in conditions]
    return found


async def by_kube_scheduler(api: Api) -> Told:
    async def done() -> bool:
        seen = await told(api)
        return all(len(seen[name]) == 4 for name in ("fits", "part", "huge")) and all(
            text[0] for name in ("fits", "part", "huge", "mixed") for text in seen[name]
        )

    await until(done, timeout_s=40, what="kube-scheduler has told every gang and its members")
    return await told(api)


async def test_groups_and_members_are_told_what_kube_scheduler_tells_them(
    new_control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    async with Api(new_control_plane(apiserver_flags=WORKLOADS)) as api:
        gate = "--feature-gates=GenericWorkload=true"
        api.plane.start_scheduler({"profiles": [{"schedulerName": "stretto"}]}, gate)
        await create_all(api)
        expected = await by_kube_scheduler(api)
        api.plane.stop()
    # kube-scheduler leaves these without a word.
    assert expected["short"] == [("", "")] * 2
    assert expected["absent"] == [("", "")]
    expected["short"] = [(WAITS, QUORUM)] * 2
    missing = 'waiting for pods\'s pod group "absent" to appear in scheduling queue'
    expected["absent"] = [(WAITS, missing)]
    assert expected["fits"][-1] == ("PodGroupInitiallyScheduled", "True", "Scheduled", "")
    assert "2 scheduled, 0 remaining" in expected["part"][-1][-1]

    async with Api(new_control_plane(apiserver_flags=WORKLOADS)) as api:
        async with Stack(tmp_path, api.plane.kubeconfig) as stack:
            await create_all(api)

            async def equal() -> bool:
                return await told(api) == expected

            with contextlib.suppress(TimeoutError):
                await until(equal, timeout_s=30, what="the same is told")
            assert await told(api) == expected
            await stack.settle()
            versions = [item["metadata"]["resourceVersion"] for item in await groups(api)]
        # Whoever starts next knows what was told, and writes nothing again.
        async with Stack(tmp_path, api.plane.kubeconfig) as stack:
            await api.create_pod("later", cpu="100m")

            async def bound() -> bool:
                return bool(node_of(await api.pod("later")))

            await until(bound, timeout_s=30, what="the next dispatcher works")
            await stack.settle()
            assert [i["metadata"]["resourceVersion"] for i in await groups(api)] == versions


async def groups(api: Api) -> list[dict[str, dict[str, str]]]:
    return list((await api.call("GET", GROUPS))["items"])
