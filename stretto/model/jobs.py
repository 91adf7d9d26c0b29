"""Jobs that wait for admission: what is read of a batch/v1 Job, and the shape of the pods to come.

A Job asks for it with the label :data:`ADMISSION_LABEL`; one without the label is nobody's business
here, suspended or not. What its pods will ask for is read from its template as the API server would
read it from a pod: a limit without a request is the request.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from stretto.model.errors import OperatorError
from stretto.model.objects import ObjectMeta, Pod
from stretto.model.shape import QUEUE_LABEL, Shape
from stretto.model.shaping import shape_of

JOBS_PATH = "/apis/batch/v1/jobs"
ADMISSION_LABEL = "scheduling.stretto.io/admission"
ADMISSION = "job"
"""The label's value: the Job is resumed, whoever suspended it, when its queue has room for it."""
KUEUE_LABEL = "kueue.x-k8s.io/queue-name"
JOB_CONTROLLER = "kubernetes.io/job-controller"
ADMITTED = "stretto.io/Admitted"
"""Type of the Job's condition that says whether it was admitted, and what it waits for."""
SUSPENDED = "Suspended"
"""The Job controller's condition: True, and False once the Job was resumed."""
_ENDS = ("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget")
"""Conditions after which a Job makes no more pods."""


def owner_key(namespace: str, uid: str) -> str:
    """What a Job and its pods are known to each other by. A reference names its owner by uid alone,
    and may name one of another namespace, which is then no owner."""
    return f"{namespace}/{uid}"


def job_of(pod: Pod) -> str:
    """The :func:`owner_key` of the Job that has made a pod, '' for none."""
    for owner in pod.metadata.owner_references or ():
        batch = owner.api_version.partition("/")[0] == "batch"
        if owner.controller and owner.kind == "Job" and batch:
            return owner_key(pod.metadata.namespace, owner.uid)
    return ""


class _Api(msgspec.Struct, frozen=True, rename="camel"):
    """camelCase on the wire."""


class _Spec(_Api, frozen=True):
    suspend: bool | None = None
    parallelism: int | None = None
    completions: int | None = None
    managed_by: str | None = None
    template: Raw = Raw(b"{}")


class _Condition(_Api, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None


class _Status(_Api, frozen=True):
    active: int | None = None
    succeeded: int | None = None
    conditions: list[_Condition] | None = None


class Job(_Api, frozen=True):
    """A Job object."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


class AdmissionCondition(NamedTuple):
    """What the condition of a Job says."""

    status: str
    reason: str
    message: str


class JobSeen(msgspec.Struct, frozen=True):
    """What the watch shows of a Job, as much as admission keeps."""

    uid: str
    namespace: str
    name: str
    version: int
    """resourceVersion: what the write that resumes it names as its precondition."""
    generation: int = 0
    created: str = ""
    suspended: bool = False
    was_suspended: bool = False
    """It has been, by the condition that the Job controller writes then and keeps."""
    ended: bool = False
    """It makes no more pods: complete, failed or being deleted."""
    count: int = 0
    """Members that run at once when it runs."""
    active: int = 0
    """Pods that it has, by its status, which may be a moment old."""
    queue: str | None = None
    """Its own label for a queue, which its pods do not have by it."""
    problem: str = ""
    """Why it is never resumed as it is, if one can tell without its template."""
    told: AdmissionCondition | None = None
    """The condition that it has."""

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def owner(self) -> str:
        """What its pods know it by."""
        return owner_key(self.namespace, self.uid)


class Template(msgspec.Struct, frozen=True):
    """What the pods of a Job will be like."""

    shape: Shape | None = None
    """Namespace, queue and requests; None: see the problem."""
    priority_class: str = ""
    priority: int | None = None
    problem: str = ""


def job_seen(job: Job, *, version: int) -> JobSeen:
    """What admission keeps of a Job."""
    meta, spec, status = job.metadata, job.spec, job.status
    parallelism = 1 if spec.parallelism is None else spec.parallelism
    left = parallelism
    if spec.completions is not None:
        left = max(0, spec.completions - (status.succeeded or 0))
    elif status.succeeded:
        left = status.active or 0  # a work queue that one has found empty: nobody is replaced
    told, ended, was_suspended = None, meta.deletion_timestamp is not None, False
    for each in status.conditions or ():
        if each.type == ADMITTED:
            told = AdmissionCondition(each.status, each.reason or "", each.message or "")
        was_suspended |= each.type == SUSPENDED
        ended |= each.type in _ENDS and each.status == "True"
    return JobSeen(
        meta.uid,
        meta.namespace,
        meta.name,
        version,
        generation=meta.generation,
        created=meta.creation_timestamp or "",
        suspended=bool(spec.suspend),
        was_suspended=was_suspended,
        ended=ended,
        count=min(parallelism, left),
        active=status.active or 0,
        queue=(meta.labels or {}).get(QUEUE_LABEL),
        problem=_problem(job, parallelism),
        told=told,
    )


def _problem(job: Job, parallelism: int) -> str:
    labels = job.metadata.labels or {}
    if KUEUE_LABEL in labels:
        return f"Kueue admits it too (label {KUEUE_LABEL}): take one of the two labels away"
    managed = job.spec.managed_by
    if managed and managed != JOB_CONTROLLER:
        return f"spec.managedBy is {managed}: only the Job controller's Jobs are admitted here"
    if parallelism <= 0:
        return "spec.parallelism is 0: there is nothing to admit"
    return ""


def queue_problem(seen: JobSeen, template: Template) -> str:
    """What is wrong if a Job's own label names another queue than that of its pods."""
    shape = template.shape
    if seen.queue is None or shape is None or seen.queue == shape.queue:
        return ""
    return (
        f"its label {QUEUE_LABEL} says {seen.queue!r}, and that of spec.template {shape.queue!r}: "
        "pods are in the queue of their own label"
    )


def template_of(job: Job, *, schedulers: Collection[str]) -> Template:
    """The pods of a Job, as its template says; ``schedulers``: the schedulerNames that are ours."""
    meta = job.metadata
    try:
        body = msgspec.json.decode(job.spec.template)
        pod = _pod_of(body, meta)
        shape = shape_of(pod)
    except (OperatorError, msgspec.MsgspecError, AttributeError, TypeError) as error:
        return Template(problem=f"spec.template cannot be read: {error}")
    if pod.spec.scheduler_name not in schedulers:
        name = pod.spec.scheduler_name
        problem = f"spec.template.spec.schedulerName is {name}, which is not served here"
    elif pod.spec.scheduling_gates:
        problem = "spec.template has schedulingGates: its pods would not run when it is resumed"
    else:
        problem = ""
    spec = body.get("spec") or {}
    return Template(
        shape=Shape(
            profile=shape.profile,
            namespace=shape.namespace,
            queue=shape.queue,
            requests=shape.requests,
        ),
        priority_class=str(spec.get("priorityClassName") or ""),
        priority=pod.spec.priority,
        problem=problem,
    )


def _pod_of(body: dict[str, Any], meta: ObjectMeta) -> Pod:
    """The pod that a template makes."""
    spec = body.get("spec") or {}
    for each in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()), spec):
        _default_requests(each.get("resources"))
    labels = (body.get("metadata") or {}).get("labels") or {}
    owned = {"name": meta.name, "namespace": meta.namespace, "labels": labels}
    return msgspec.json.decode(msgspec.json.encode({"metadata": owned, "spec": spec}), type=Pod)


def _default_requests(resources: dict[str, Any] | None) -> None:
    """What has a limit and no request asks for its limit."""
    if resources and resources.get("limits"):
        resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
