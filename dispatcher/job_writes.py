"""The writes to Jobs: which are to be made, which are in flight, and what came of them.

Naive form: mark the Job admitted when the write is answered. Its fault: an answer that does not
come says nothing. The form chosen: from the moment the write is ordered the Job holds its promise,
until the watch shows a later version of it, which says what became of the write. A write names the
version that it was decided on, so at most one is ever carried out.
"""

from __future__ import annotations

from collections.abc import Callable

from dispatcher.job_records import JobOrder, JobRecord, JobResult
from stretto.model.jobs import AdmissionCondition

TELL_EVERY_S = 5.0
"""At most so often the reason of one Job's condition."""
IN_FLIGHT = 20
"""Writes to Jobs at once."""
REFUSED_PAUSE_S = 30.0
"""After one that the API server will not have."""


class JobWrites:
    """See the module docstring."""

    def __init__(self, says: Callable[[JobRecord], AdmissionCondition | None]) -> None:
        """``says`` what the condition of a Job is to say; None: nothing (yet)."""
        self._says = says
        self._untold: dict[str, JobRecord] = {}
        self._in_flight = 0
        self.admitted = 0
        """Jobs that were resumed."""

    @property
    def room(self) -> bool:
        """Another write may be ordered."""
        return self._in_flight < IN_FLIGHT

    def look_at(self, job: JobRecord) -> None:
        """What a Job is to be told may have changed."""
        self._untold[job.seen.uid] = job

    def forget(self, uid: str) -> None:
        """A Job is gone."""
        self._untold.pop(uid, None)

    # -------------------------------------------------------------------------------------- ordered
    def resume(self, job: JobRecord, orders: list[JobOrder]) -> None:
        """A Job has its room."""
        assert job.ordered == job.seen.version, f"{job.seen.key} is resumed as what it was"
        self._order(job, None, orders)

    def take(self, orders: list[JobOrder], now: float) -> None:
        """What there is room for besides: resumes whose answer is lost, and conditions."""
        self._resume_again(orders, now)
        self._tell(orders, now)

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
            says = self._says(job)
            if says is None or says == job.told:
                del self._untold[uid]
            elif not self.room:
                break
            elif job.tell_after <= now or (job.told and job.told.status != says.status):
                self._order(job, says, orders)

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

    # ------------------------------------------------------------------------------------- answered
    def answered(
        self, order: JobOrder, job: JobRecord | None, result: JobResult, *, now: float,
        pause_s: float,
    ) -> bool:  # fmt: skip
        """A write was answered, or was not; True if the API server does not let the Job be resumed
        as it is. ``job`` is what it was for, None if that is gone."""
        self._in_flight -= 1
        if job is None or not job.in_flight:
            return False
        job.in_flight = False
        if order.condition is not None:
            self._told(job, order.condition, result, now=now, pause_s=pause_s)
            return False
        job.not_before = now + pause_s
        self.look_at(job)
        if result is JobResult.WRITTEN:
            self.admitted += 1
            job.not_before = float("inf")  # the watch will show it
        elif result is JobResult.STALE:
            # The watch shows what it has become; if it has not changed, the same again is safe.
            job.not_before = now + REFUSED_PAUSE_S
        elif result is JobResult.REFUSED and job.ordered:
            job.ordered = 0
            job.not_before = now + REFUSED_PAUSE_S
            return True
        return False

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
        self.look_at(job)

    def validate(self, jobs: dict[str, JobRecord]) -> None:
        """Check that no more is in flight than was counted."""
        flying = sum(job.in_flight for job in jobs.values())
        assert flying <= self._in_flight, "writes are miscounted"
