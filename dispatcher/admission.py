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
order too, before Jobs of their priority. Equal Jobs (namespace, queue and resources) share a line
(:mod:`dispatcher.job_lines`), and only its head is looked at. What is written to Jobs, and what
came of it, is the business of :mod:`dispatcher.job_writes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from dispatcher.admission_look import Look
from dispatcher.job_lines import JobLines, Line
from dispatcher.job_priorities import JobPriorities
from dispatcher.job_records import (
    INVALID,
    NOT_SUSPENDED,
    WAITS,
    JobOrder,
    JobRecord,
    JobResult,
    Waiting,
)
from dispatcher.job_writes import JobWrites
from dispatcher.patching import PAUSE_S
from dispatcher.quota import QuotaGate
from dispatcher.shapes import ShapeTable
from stretto.model.jobs import AdmissionCondition, JobSeen, Template, queue_problem
from stretto.quota.tree import Tree

LOOK_EVERY_S = 0.25
LOOK_ANYWAY_S = 5.0
"""Also if nothing is known to have changed."""
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
        self.lines = JobLines()
        self.writes = JobWrites(self.says)
        self._priorities = JobPriorities()
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

    # ------------------------------------------------------------------------------- what is known
    def synced(self) -> None:
        """All Jobs that there are have been told."""
        self._synced = True

    def classes(self, values: Mapping[str, int] | None, *, default: int = 0) -> None:
        """The PriorityClasses, and the priority of pods that name none; None: they cannot be
        read."""
        self._priorities.tell(values, default=default)
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
        self.writes.forget(uid)
        self._paused.pop(uid, None)
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
                self.lines.add(job, shape, priority=self._priorities.of(job.template))
                self._unchecked[seen.uid] = job
        self.writes.look_at(job)

    def _unline(self, job: JobRecord) -> None:
        self.lines.remove(job)
        self._unchecked.pop(job.seen.uid, None)

    def problem_of(self, job: JobRecord) -> str:
        """Why a Job is never resumed as it is."""
        template = job.template
        problem = job.seen.problem or template.problem or queue_problem(job.seen, template)
        return problem or job.problem or self._priorities.problem(template)

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
        self.writes.take(orders, now)
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
        for job in self.jobs.values():
            if not job.runs:
                continue
            owner, came = job.seen.owner, promises.came(job.seen.owner)
            waits = not job.seen.suspended and promises.to_come(owner) > 0
            if not waits or came != job.came:
                job.came, job.missed_since = came, now
            elif now - job.missed_since >= self._limits.promise_s:
                promises.lapse(owner)
            if self.says(job) != job.told:
                self.writes.look_at(job)

    def take_unchecked(self) -> list[JobRecord]:
        """Jobs in lines of which it is not known whether a limit allows so much; told once."""
        unchecked, self._unchecked = self._unchecked, {}
        return list(unchecked.values())

    def resume(self, job: JobRecord, orders: list[JobOrder]) -> None:
        """Promise a Job its room, and order the write."""
        job.ordered = job.seen.version
        self._place(job)
        self.writes.resume(job, orders)

    def says(self, job: JobRecord) -> AdmissionCondition | None:
        """What the condition of a Job is to say; None: nothing (yet)."""
        if job.runs:
            if job.ordered:
                return None
            lapsed = self._gate.promises.lapsed(job.seen.owner)
            return RUNS if not job.ever_suspended else self._lapsed if lapsed else ADMITTED
        if problem := self.problem_of(job):
            return AdmissionCondition("False", INVALID, problem)
        why = self.lines.why(job)
        return AdmissionCondition("False", WAITS, why) if why else None

    def wait(self, line: Line, why: str, now: float) -> None:
        """All in a line wait for this."""
        if line.why != why:
            line.why, line.since = why, now
            for order in line.orders:
                self.writes.look_at(self.jobs[order[2]])

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
        """A write was answered, or was not; ``text`` says why it was refused."""
        job = self.jobs.get(order.uid)
        refused = self.writes.answered(order, job, result, now=now, pause_s=pause_s)
        if refused and job is not None:
            job.problem = f"the API server does not let it be resumed: {text}"
            self._paused[order.uid] = job
            self._place(job)

    # ---------------------------------------------------------------------------------- for people
    def waiting(self) -> Iterator[Waiting]:
        """The members that wait in queues before they exist."""
        for (namespace, label, _), line in self.lines.by_key.items():
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
        self.lines.validate(self.jobs)
        self.writes.validate(self.jobs)
        for uid, job in self.jobs.items():
            if job.runs:
                assert job.line is None, f"{job.seen.key} runs and waits"
            elif job.line is None:
                assert self.problem_of(job) or uid in self._paused, f"{job.seen.key} is lost"
