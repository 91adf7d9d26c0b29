"""A brain with Jobs that ask for admission, the API that they stand in, and the Binder's log."""

from __future__ import annotations

import msgspec

from dispatcher.cluster_events import EventSource
from dispatcher.job_records import JobOrder, JobResult
from stretto.model.jobs import AdmissionCondition, JobSeen, Template, owner_key
from stretto.model.shape import Shape
from stretto.model.unit import Version
from stretto.quota.rows import QUEUE, QUOTA_API, USAGE, QueueRow, UsageRow, encode_quota
from stretto.snapshot.delta import API_SERVED, Delta, ObjectRow
from tests.dispatcher.brain import BINDER, Brain


def limit(cpu: int) -> tuple[tuple[str, int], ...]:
    return (("cpu", cpu),)


def members(queue: str = "", cpu: int = 100) -> Shape:
    """What a member asks for."""
    return Shape(profile="stretto", namespace="default", queue=queue, requests=(("cpu", cpu),))


class JobField:
    """See the module docstring. ``jobs`` is what the API holds."""

    def __init__(self, *, served: bool = True, **queues: QueueRow) -> None:
        self.queues = queues
        self.served = served
        self.jobs: dict[str, JobSeen] = {}
        self.templates: dict[str, Template] = {}
        self.version = 100
        self.on: dict[str, Shape] = {}
        """Pods on nodes."""
        self.orders: list[JobOrder] = []
        """Writes that were ordered and not answered."""
        self.start()

    def start(self) -> None:
        """A dispatcher starts and reads everything."""
        self.brain = Brain()
        self.source = EventSource()
        self.sequence = 1
        self.orders = []
        machine = self.brain.machine
        machine.quota.totals = {"cpu": 10_000}
        rows = [ObjectRow(API_SERVED, QUOTA_API)] if self.served else []
        for name, row in self.queues.items():
            rows.append(ObjectRow(QUEUE, name, payload=encode_quota(row)))
            rows.append(ObjectRow(USAGE, name, payload=encode_quota(self.usage(name))))
        for job in self.jobs.values():
            machine.admission.seen(job, self.templates[job.uid])
        machine.admission.synced()
        self.source.learn(Delta(epoch=BINDER, sequence=1, objects=rows))
        machine.quota.promises.log_anew(machine.quota.promises.followed(self.on))
        machine.quota_anew(rows)
        machine.validate()

    def usage(self, name: str) -> UsageRow:
        """What the pods of a queue and of those below it take."""
        used = 0
        for shape in self.on.values():
            each = shape.queue
            while each and each != name:
                each = self.queues[each].parent
            used += dict(shape.requests)["cpu"] if each else 0
        return UsageRow(used=limit(used) if used else ())

    # ------------------------------------------------------------------------------------- the log
    def step(self, *, came: dict[str, Shape] | None = None, left: tuple[str, ...] = ()) -> None:
        """Pods come to nodes and leave them."""
        before = {name: self.usage(name) for name in self.queues}
        self.on |= came or {}
        for uid in left:
            del self.on[uid]
        after = {name: self.usage(name) for name in self.queues}
        rows = [
            ObjectRow(USAGE, name, payload=encode_quota(row))
            for name, row in after.items()
            if row != before[name]
        ]
        self.tell(
            *rows, uids=[*(came or {}), *left], signs=[1] * len(came or {}) + [-1] * len(left)
        )

    def tell(
        self, *rows: ObjectRow, uids: list[str] | None = None, signs: list[int] | None = None
    ) -> None:
        """A step of the log as the dispatcher hears it."""
        self.sequence += 1
        machine = self.brain.machine
        delta = Delta(epoch=BINDER, sequence=self.sequence, objects=list(rows))
        events = self.source.events(delta)
        delta.pod_uid, delta.pod_sign = uids or [], signs or []
        machine.quota.promises.log(delta.pod_uid, delta.pod_sign)
        machine.quota_step(delta)
        machine.events(events, version=Version(BINDER, self.sequence), now=self.brain.now)
        machine.validate()

    def queue(self, name: str, row: QueueRow | None) -> None:
        """A queue comes, changes or goes."""
        self.queues.pop(name, None)
        if row is not None:
            self.queues[name] = row
        payload = encode_quota(row) if row is not None else b""
        self.tell(ObjectRow(QUEUE, name, removed=row is None, payload=payload))

    # ------------------------------------------------------------------------------------ the Jobs
    def job(
        self,
        uid: str,
        queue: str = "",
        count: int = 1,
        *,
        cpu: int = 100,
        priority: int | None = None,
        template: Template | None = None,
        **fields: object,
    ) -> None:
        """A Job is created, suspended unless it is said otherwise."""
        self.version += 1
        fields = {"suspended": True, "created": f"{self.version:06}", "generation": 1} | fields
        fields = {"was_suspended": fields["suspended"]} | fields
        self.jobs[uid] = JobSeen(uid, "default", uid, self.version, count=count, **fields)  # type: ignore[arg-type]
        self.templates[uid] = template or Template(shape=members(queue, cpu), priority=priority)
        self.show(uid)

    def pod(self, uid: str, shape: Shape, *, job: str = "", namespace: str = "default") -> None:
        """A pod that a Job, or nobody, has made."""
        self.brain.pod(uid, shape, job=owner_key(namespace, job) if job else "")

    def change(self, uid: str, *, show: bool = True, **fields: object) -> None:
        """The object changes; ``show``: the watch says so at once."""
        self.version += 1
        self.jobs[uid] = msgspec.structs.replace(self.jobs[uid], version=self.version, **fields)
        if show:
            self.show(uid)

    def show(self, uid: str) -> None:
        """The watch shows a Job as it is."""
        admission = self.brain.machine.admission
        admission.seen(self.jobs[uid], self.templates[uid])
        self.brain.machine.validate()

    def end(self, uid: str) -> None:
        """A Job is gone from the watch."""
        del self.jobs[uid]
        self.brain.machine.admission.gone(uid)
        self.brain.machine.validate()

    # ---------------------------------------------------------------------------------- the writes
    def writes(self, seconds: float = 1.0) -> list[JobOrder]:
        """What is ordered after a while."""
        self.brain.wait(seconds)
        found = self.brain.machine.job_writes(self.brain.now)
        self.orders += found
        self.brain.machine.validate()
        return found

    def carry_out(self, order: JobOrder, *, show: bool = True, answered: bool = True) -> None:
        """The API server gets a write."""
        self.orders.remove(order)
        job, result = self.jobs.get(order.uid), JobResult.STALE
        if job is not None and order.condition is not None:
            self.change(order.uid, show=show, told=order.condition)
            result = JobResult.WRITTEN
        elif job is not None and job.version == order.version:
            self.change(order.uid, show=show, suspended=False)
            result = JobResult.WRITTEN
        self.reply(order, result if answered else JobResult.UNKNOWN)

    def reply(self, order: JobOrder, result: JobResult) -> None:
        """The dispatcher hears what came of a write."""
        self.brain.machine.admission.reply(order, result, now=self.brain.now, text="403 no")
        self.brain.machine.validate()

    def resumed(self, *, rounds: int = 3) -> list[str]:
        """Carry out all writes until there are none; the Jobs that were resumed, in order."""
        found: list[str] = []
        for _ in range(rounds):
            for order in self.writes():
                found += [] if order.condition is not None else [order.uid]
                self.carry_out(order)
        return found

    def told(self, uid: str) -> AdmissionCondition | None:
        """The condition in the API."""
        return self.jobs[uid].told

    def amount(self, uid: str) -> int:
        """Members that a Job is promised beside its pods."""
        return self.brain.machine.quota.promises.amount(owner_key("default", uid))
