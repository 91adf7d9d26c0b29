"""Admission by shape: a suspended Job stands in the queue as one entry, and no pod of it exists.

An entry is (what a member asks for, how many run at once). It waits in its queue by priority and
age. When the queue and all above it have room for the whole of it, the Job is promised that room
(:mod:`dispatcher.promises`) and resumed, by one write. The state is that of the API: a Job that is
not suspended has been admitted, whoever did it, and what has no pod yet is promised. So a restart
has nothing to remember.

Order: of the queues the one whose turn it is by share, as for pods, and in a queue by priority,
then age. What finds no room holds back all that comes after it and asks for the resource that is
short, in the queue that is full and below it: so a large Job is not overtaken for ever by small
ones, and one that asks for something else goes on. Pods that wait for room in a queue stand in that
order too, before Jobs of their priority. Equal Jobs (namespace, queue and resources) share a line,
and only its head is looked at.

Naive form: mark the Job admitted when the write is answered. Its fault: an answer that does not
come says nothing. The form chosen: from the moment the write is ordered the Job holds its promise,
until the watch shows a later version of it, which says what became of the write. A write names the
version that it was decided on, so at most one is ever carried out.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping

import msgspec

from dispatcher.admission_look import Line, Look
from dispatcher.job_records import (
    INVALID,
    NOT_SUSPENDED,
    WAITS,
    JobOrder,
    JobRecord,
    JobResult,
    LineKey,
    Waiting,
)
from dispatcher.quota import QuotaGate
from dispatcher.shapes import ShapeTable
from stretto.model.jobs import AdmissionCondition, JobSeen, Template, queue_problem
from stretto.model.shape import Shape
from stretto.quota.rows import asked
from stretto.quota.tree import Tree

LOOK_EVERY_S = 0.25
LOOK_ANYWAY_S = 5.0
"""Also if nothing is known to have changed."""
TELL_EVERY_S = 5.0
"""At most so often the reason of one Job's condition."""
IN_FLIGHT = 20
"""Writes to Jobs at once."""
PAUSE_S = 1.0
"""After a write that failed or is unknown."""
REFUSED_PAUSE_S = 30.0
"""After one that the API server will not have."""
LAPSES_EVERY_S = 5.0
"""How often it is looked which pods do not appear."""
ADMITTED = AdmissionCondition("True", "Admitted", "")
RUNS = AdmissionCondition(
    "False",
    NOT_SUSPENDED,
    "it was created without spec.suspend, so nobody has admitted it: its pods wait for quota one "
    "by one; suspend it to have it admitted as a whole",
)


class AdmissionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Times of admission."""

    promise_s: float = 660.0
    """How long room is kept for pods of an admitted Job while none of them appears; 0: for ever."""


class Admission:
    """See the module docstring."""

    def __init__(
        self, gate: QuotaGate, shapes: ShapeTable, limits: AdmissionLimits | None = None
    ) -> None:
        self._gate = gate
        self._shapes = shapes
        self._limits = limits or AdmissionLimits()
        says = f"no pod of it appeared for {self._limits.promise_s:g} s while some were missing"
        self._lapsed = AdmissionCondition(
            "True",
            "PodsMissing",
            f"{says}: room for these is not kept any more, and they wait for quota one by one",
        )
        self.jobs: dict[str, JobRecord] = {}
        self._lines: dict[LineKey, Line] = {}
        self._classes: Mapping[str, int] | None = None
        self._default = 0
        self._untold: dict[str, JobRecord] = {}
        self._paused: dict[str, JobRecord] = {}
        self._unchecked: dict[str, JobRecord] = {}
        """New in a line, or the queues have changed: they may ask for more than is ever there."""
        self._lapses_at = 0.0
        self._synced = False
        self._serial = 0
        self._looked: tuple[object, ...] = ()
        """What was known at the last look that came to its end."""
        self._looked_at = 0.0
        self._taken_at = 0.0
        self._tree: Tree | None = None
        self._in_flight = 0
        self.admitted = 0
        """Jobs that were resumed."""

    # ------------------------------------------------------------------------------- what is known
    def synced(self) -> None:
        """All Jobs that there are have been told."""
        self._synced = True

    def classes(self, values: Mapping[str, int] | None, *, default: int = 0) -> None:
        """The PriorityClasses, and the priority of pods that name none; None: they cannot be
        read."""
        self._classes, self._default = values, default
        for job in self.jobs.values():
            self._place(job)

    def knows(self, seen: JobSeen) -> bool:
        """Whether the template of a Job was told as it is now."""
        job = self.jobs.get(seen.uid)
        if job is None:
            return False
        return job.seen.generation == seen.generation

    def seen(self, seen: JobSeen, template: Template | None) -> None:
        """A Job is so; ``template`` None: as before."""
        job = self.jobs.get(seen.uid)
        if seen.ended:
            self.gone(seen.uid)
            return
        if job is None:
            if template is None:
                return
            job = self.jobs[seen.uid] = JobRecord(seen, template)
        else:
            if seen.version <= job.seen.version:
                return
            job.seen, job.template = seen, template or job.template
            if not job.in_flight:
                job.told = seen.told
        if job.ordered and seen.version > job.ordered:
            job.ordered = 0  # whatever became of the write, this is what came of it
        if seen.uid not in self._paused:
            job.problem = ""
        self._place(job)

    def gone(self, uid: str) -> None:
        """A Job is no more, or asks no more for admission."""
        job = self.jobs.pop(uid, None)
        if job is None:
            return
        self._serial += 1
        self._unline(job)
        self._untold.pop(uid, None)
        self._paused.pop(uid, None)
        self._unchecked.pop(uid, None)
        self._gate.promises.forget(job.seen.owner)

    def _place(self, job: JobRecord) -> None:
        """Put a Job where it belongs: into a line, among those that run, or aside."""
        self._serial += 1
        self._unline(job)
        seen, promises = job.seen, self._gate.promises
        shape = job.template.shape
        if job.runs:
            if shape is not None and job.ever_suspended:
                new = job.was_suspended
                promises.promise(seen.owner, shape, count=seen.count, active=seen.active, new=new)
        else:
            job.was_suspended, job.came = True, -1
            promises.drop(seen.owner)
            if not self.problem_of(job) and shape is not None and seen.uid not in self._paused:
                self._line_up(job, shape)
        self._untold[seen.uid] = job

    def _line_up(self, job: JobRecord, shape: Shape) -> None:
        names = tuple(name for name, amount in asked(shape) if amount)
        job.line = shape.namespace, shape.queue, names
        job.order = -self.priority_of(job), job.seen.created, job.seen.uid
        line = self._lines.setdefault(job.line, Line())
        bisect.insort(line.orders, job.order)
        self._unchecked[job.seen.uid] = job

    def _unline(self, job: JobRecord) -> None:
        if job.line is not None:
            line = self._lines[job.line]
            del line.orders[bisect.bisect_left(line.orders, job.order)]
            if not line.orders:
                del self._lines[job.line]
            job.line = None
            self._unchecked.pop(job.seen.uid, None)

    def problem_of(self, job: JobRecord) -> str:
        """Why a Job is never resumed as it is."""
        name = job.template.priority_class
        template = job.template
        problem = job.seen.problem or template.problem or queue_problem(job.seen, template)
        problem = problem or job.problem
        if not problem and name and self._classes is not None and name not in self._classes:
            problem = f"spec.template names a PriorityClass {name}, which does not exist"
        return problem

    def priority_of(self, job: JobRecord) -> int:
        """The priority that its pods will have."""
        template = job.template
        if template.priority is not None:
            return template.priority
        if not template.priority_class:
            return self._default
        return (self._classes or {}).get(template.priority_class, 0)

    # ------------------------------------------------------------------------------------ deciding
    def take(self, now: float) -> list[JobOrder]:
        """The writes to make now; each in flight until :meth:`reply`."""
        orders: list[JobOrder] = []
        if not self.jobs or not self._synced or not self._gate.read:
            return orders
        if now - self._taken_at < LOOK_EVERY_S:
            return orders
        self._taken_at = now
        for uid, job in list(self._paused.items()):
            if job.not_before <= now:
                del self._paused[uid]
                job.problem = ""
                self._place(job)
        self._lapse(now)
        self._look(orders, now)
        self._resume_again(orders, now)
        self._tell(orders, now)
        return orders

    def _look(self, orders: list[JobOrder], now: float) -> None:
        gate = self._gate
        if gate.view.tree is not self._tree:
            self._tree = gate.view.tree
            self._look_anew()
        known = self._serial, gate.version, gate.promises.version, gate.view.version
        if known == self._looked and now - self._looked_at < LOOK_ANYWAY_S:
            return
        self._looked_at = now
        done = Look(self, gate, self._shapes, now=now).run(orders)
        self._looked = known if done else ()

    def _lapse(self, now: float) -> None:
        """Room is not kept for ever for pods that nobody makes."""
        if now - self._lapses_at < LAPSES_EVERY_S or not self._limits.promise_s:
            return
        self._lapses_at = now
        promises = self._gate.promises
        for uid, job in self.jobs.items():
            if not job.runs:
                continue
            owner, came = job.seen.owner, promises.came(job.seen.owner)
            waits = not job.seen.suspended and promises.to_come(owner) > 0
            if not waits or came != job.came:
                job.came, job.missed_since = came, now
            elif now - job.missed_since >= self._limits.promise_s:
                promises.lapse(owner)
            if self.says(job) != job.told:
                self._untold[uid] = job

    def take_unchecked(self) -> list[JobRecord]:
        """Jobs in lines of which it is not known whether a limit allows so much; told once."""
        unchecked, self._unchecked = self._unchecked, {}
        return list(unchecked.values())

    def lines(self) -> dict[LineKey, Line]:
        """All lines, each with a Job at least."""
        return self._lines

    @property
    def room(self) -> bool:
        """Another write may be ordered."""
        return self._in_flight < IN_FLIGHT

    def resume(self, job: JobRecord, orders: list[JobOrder]) -> None:
        """Promise a Job its room, and order the write."""
        job.ordered = job.seen.version
        self._place(job)
        self._order(job, None, orders)

    def _order(
        self, job: JobRecord, condition: AdmissionCondition | None, orders: list[JobOrder]
    ) -> None:
        seen, told = job.seen, job.told
        transition = condition is not None and (told is None or told.status != condition.status)
        orders.append(
            JobOrder(seen.uid, seen.namespace, seen.name, seen.version, condition, transition)
        )
        job.in_flight = True
        self._in_flight += 1

    def _resume_again(self, orders: list[JobOrder], now: float) -> None:
        """What came of a write is not known: the same again, which does nothing if it was made."""
        for job in list(self._untold.values()):
            again = job.ordered and job.seen.suspended and not job.in_flight
            if again and job.not_before <= now and self.room:
                self._order(job, None, orders)

    def _tell(self, orders: list[JobOrder], now: float) -> None:
        for uid, job in list(self._untold.items()):
            if job.in_flight or job.ordered:
                continue
            says = self.says(job)
            if says is None or says == job.told:
                del self._untold[uid]
            elif not self.room:
                break
            elif job.tell_after <= now or (job.told and job.told.status != says.status):
                self._order(job, says, orders)

    def says(self, job: JobRecord) -> AdmissionCondition | None:
        """What the condition of a Job is to say; None: nothing (yet)."""
        if job.runs:
            if job.ordered:
                return None
            lapsed = self._gate.promises.lapsed(job.seen.owner)
            return RUNS if not job.ever_suspended else self._lapsed if lapsed else ADMITTED
        if problem := self.problem_of(job):
            return AdmissionCondition("False", INVALID, problem)
        line = self._lines.get(job.line) if job.line is not None else None
        return AdmissionCondition("False", WAITS, line.why) if line and line.why else None

    def wait(self, line: Line, why: str, now: float) -> None:
        """All in a line wait for this."""
        if line.why != why:
            line.why, line.since = why, now
            for order in line.orders:
                self._untold[order[2]] = self.jobs[order[2]]

    def set_aside(self, job: JobRecord, problem: str) -> None:
        """A Job is out of its line until it or its queue changes."""
        job.problem = problem
        self._place(job)

    def _look_anew(self) -> None:
        """The queues have changed: what was set aside may fit."""
        for uid, job in self.jobs.items():
            if job.line is not None:
                self._unchecked[uid] = job
            if job.problem and job.seen.uid not in self._paused:
                job.problem = ""
                self._place(job)

    # -------------------------------------------------------------------------------------- writes
    def reply(
        self, order: JobOrder, result: JobResult, *, now: float, text: str = "",
        pause_s: float = PAUSE_S,
    ) -> None:  # fmt: skip
        """A write was answered, or was not."""
        self._in_flight -= 1
        job = self.jobs.get(order.uid)
        if job is None or not job.in_flight:
            return
        job.in_flight = False
        if order.condition is not None:
            self._told(job, order.condition, result, now=now, pause_s=pause_s)
            return
        job.not_before = now + pause_s
        self._untold[order.uid] = job
        if result is JobResult.WRITTEN:
            self.admitted += 1
            job.not_before = float("inf")  # the watch will show it
        elif result is JobResult.STALE:
            # The watch shows what it has become; if it has not changed, the same again is safe.
            job.not_before = now + REFUSED_PAUSE_S
        elif result is JobResult.REFUSED and job.ordered:
            job.ordered = 0
            job.not_before = now + REFUSED_PAUSE_S
            job.problem = f"the API server does not let it be resumed: {text}"
            self._paused[order.uid] = job
            self._place(job)

    def _told(
        self, job: JobRecord, condition: AdmissionCondition, result: JobResult, *, now: float,
        pause_s: float,
    ) -> None:  # fmt: skip
        job.tell_after = now + TELL_EVERY_S
        job.told = condition if result is JobResult.WRITTEN else job.seen.told
        if result is JobResult.STALE:
            return  # it is gone
        if result is JobResult.REFUSED:
            job.tell_after = now + REFUSED_PAUSE_S
        elif result is JobResult.UNKNOWN:
            job.tell_after = now + pause_s
        self._untold[job.seen.uid] = job

    # ---------------------------------------------------------------------------------- for people
    def waiting(self) -> Iterator[Waiting]:
        """The members that wait in queues before they exist."""
        for (namespace, label, _), line in self._lines.items():
            queue = self._gate.view.tree.assigned(namespace, label).queue
            if queue is not None:
                members = sum(self.jobs[uid].seen.count for _, _, uid in line.orders)
                yield Waiting(queue, members, line.why, line.since)
        for job in self.jobs.values():
            to_come = self._gate.promises.to_come(job.seen.owner)
            shape = job.template.shape
            queue = self._gate.view.assigned(shape).queue if shape is not None else None
            if to_come and queue is not None:
                yield Waiting(queue, to_come, "", 0.0)

    def counts(self) -> dict[str, tuple[int, int]]:
        """State → (Jobs, members of them)."""
        found = dict.fromkeys(("waiting", "invalid", "admitted", "unadmitted"), (0, 0))
        for job in self.jobs.values():
            if job.runs:
                name = "admitted" if job.ever_suspended else "unadmitted"
            else:
                name = "waiting" if job.line is not None else "invalid"
            jobs, members = found[name]
            found[name] = jobs + 1, members + job.seen.count
        return found

    def validate(self) -> None:
        """Check that every Job is where something will find it."""
        lined = {order[2]: key for key, line in self._lines.items() for order in line.orders}
        for uid, job in self.jobs.items():
            assert (lined.pop(uid, None)) == job.line, f"{job.seen.key} stands elsewhere"
            if job.runs:
                assert job.line is None, f"{job.seen.key} runs and waits"
            elif job.line is None:
                assert self.problem_of(job) or uid in self._paused, f"{job.seen.key} is lost"
        assert not lined, f"{lined} are nobody"
        flying = sum(job.in_flight for job in self.jobs.values())
        assert flying <= self._in_flight, "writes are miscounted"
