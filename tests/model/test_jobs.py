"""What is read of a Job that asks for admission, and the pods that its template makes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stretto.model.jobs import (
    ADMISSION,
    ADMISSION_LABEL,
    ADMITTED,
    KUEUE_LABEL,
    Job,
    JobSeen,
    Template,
    job_of,
    job_seen,
    queue_problem,
    template_of,
)
from stretto.model.objects import Pod
from stretto.model.shape import QUEUE_LABEL


def job(*, labels: dict[str, str] | None = None, **spec: Any) -> Job:
    body = {
        "metadata": {
            "name": "j", "namespace": "default", "uid": "u", "resourceVersion": "7",
            "generation": 2, "labels": {ADMISSION_LABEL: ADMISSION, **(labels or {})},
        },
        "spec": {"suspend": True, "template": template(), **spec},
        "status": spec.pop("status", {}),
    }  # fmt: skip
    return msgspec.json.decode(msgspec.json.encode(body), type=Job)


def template(*, queue: str = "a", scheduler: str = "stretto", **spec: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": "250m"}, "limits": {"cpu": "1", "memory": "64Mi"}}
    containers = [{"name": "c", "image": "i", "resources": resources}]
    labels = {QUEUE_LABEL: queue} if queue else {}
    return {
        "metadata": {"labels": labels},
        "spec": {"schedulerName": scheduler, "containers": containers, **spec},
    }


def seen(**spec: Any) -> JobSeen:
    return job_seen(job(**spec), version=7)


def read(**spec: Any) -> Template:
    return template_of(job(**spec), schedulers=("stretto",))


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({}, 1),
        ({"parallelism": 4}, 4),
        ({"parallelism": 4, "completions": 2}, 2),
        ({"parallelism": 4, "completions": 9, "status": {"succeeded": 7}}, 2),
        ({"parallelism": 4, "completions": 9, "status": {"succeeded": 9}}, 0),
        ({"parallelism": 4, "completions": 0}, 0),
        ({"parallelism": 0}, 0),
        ({"parallelism": 3, "status": {"active": 3}}, 3),
        ({"parallelism": 3, "status": {"succeeded": 2, "active": 1}}, 1),
    ],
)
def test_so_many_members_run_at_once(spec: dict[str, Any], count: int) -> None:
    assert seen(**spec).count == count


def test_a_limit_without_a_request_is_a_request_as_in_a_pod() -> None:
    found = read()
    assert found.problem == ""
    assert found.shape is not None
    assert dict(found.shape.requests) == {"cpu": 250, "memory": 64 << 20}
    assert (found.shape.queue, found.shape.namespace) == ("a", "default")


def test_init_containers_and_pod_level_resources_count_as_in_a_pod() -> None:
    init = [{"name": "i", "image": "i", "resources": {"limits": {"cpu": "2"}}}]
    found = read(template=template(initContainers=init))
    assert found.shape is not None
    assert dict(found.shape.requests)["cpu"] == 2000
    found = read(template=template(resources={"limits": {"cpu": "3"}}))
    assert found.shape is not None
    assert dict(found.shape.requests)["cpu"] == 3000


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"template": {"spec": {"containers": [{"resources": {"requests": {"cpu": "x"}}}],
                                "schedulerName": "stretto"}}}, "spec.template cannot be read"),
        ({"template": {"spec": "no"}}, "spec.template cannot be read"),
        ({"template": template(scheduler="other")}, "schedulerName is other, which is not served"),
        ({"template": template(schedulingGates=[{"name": "x/y"}])}, "has schedulingGates"),
    ],
)  # fmt: skip
def test_a_template_of_which_nothing_can_come_is_named(spec: dict[str, Any], text: str) -> None:
    assert text in read(**spec).problem


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"parallelism": 0}, "spec.parallelism is 0"),
        ({"labels": {KUEUE_LABEL: "q"}}, "Kueue admits it too"),
        ({"managedBy": "example.com/other"}, "spec.managedBy is example.com/other"),
    ],
)
def test_what_is_not_ours_to_resume_is_named(spec: dict[str, Any], text: str) -> None:
    assert text in seen(**spec).problem


def test_the_state_is_read_from_the_object_alone() -> None:
    told = {"type": ADMITTED, "status": "False", "reason": "WaitingForQuota", "message": "m"}
    found = seen(status={"active": 3, "conditions": [told]})
    assert (found.active, found.suspended, found.ended, found.version) == (3, True, False, 7)
    assert found.told == ("False", "WaitingForQuota", "m")
    assert seen(suspend=False).suspended is False
    for end in ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"):
        assert seen(status={"conditions": [{"type": end, "status": "True"}]}).ended
    assert not seen(status={"conditions": [{"type": "Suspended", "status": "True"}]}).ended


def test_the_condition_of_the_job_controller_says_that_it_was_suspended() -> None:
    for status in ("True", "False"):
        conditions = [{"type": "Suspended", "status": status}]
        assert seen(suspend=False, status={"conditions": conditions}).was_suspended
    assert not seen(suspend=False).was_suspended


@pytest.mark.parametrize(
    ("change", "of"),
    [
        ({}, "default/u"),
        ({"kind": "JobSet"}, ""),
        ({"apiVersion": "example.com/v1"}, ""),
        ({"controller": False}, ""),
        ({"controller": None}, ""),
    ],
)
def test_the_job_of_a_pod_is_the_one_that_controls_it_in_its_namespace(
    change: dict[str, Any], of: str
) -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
    meta = {"name": "p", "namespace": "default", "ownerReferences": [owner | change]}
    pod = msgspec.json.decode(msgspec.json.encode({"metadata": meta}), type=Pod)
    assert job_of(pod) == of
    meta["namespace"] = "elsewhere"
    pod = msgspec.json.decode(msgspec.json.encode({"metadata": meta}), type=Pod)
    assert job_of(pod) == of.replace("default", "elsewhere")
    assert seen().owner == "default/u"


def test_its_own_label_for_a_queue_is_seen_as_it_has_no_generation() -> None:
    other = {QUEUE_LABEL: "b"}
    text = queue_problem(seen(labels=other), read(labels=other))
    assert "pods are in the queue of their own label" in text
    assert queue_problem(seen(labels={QUEUE_LABEL: "a"}), read()) == ""
    labelled = job_seen(job(labels={QUEUE_LABEL: "b"}), version=7)
    assert (labelled.queue, seen().queue) == ("b", None)
