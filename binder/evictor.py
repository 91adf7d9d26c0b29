"""Carries out claims: the nominations, then the evictions. It decides nothing.

A few claims at a time, each from its first write to its outcome; immediately before every write the
Lease is asked. Victims whose leaving violates a disruption budget are deleted, as kube-scheduler
does (preemptionPDB: upstream), and so are those under several budgets, whom the Eviction API does
not take; all others are evicted, so that the API server holds their budgets at the moment of truth.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from binder.executor import version_of
from binder.machine import Machine
from binder.preemption_claims import Claim, ClaimStage, Leaving, Seat
from stretto.kube.answers import Response
from stretto.kube.client import KubeClient, pod_path
from stretto.kube.errors import KubeError
from stretto.kube.events import EventWriter, PodEvent
from stretto.model.errors import OperatorError
from stretto.model.objects import Pod, decode_pod
from stretto.model.unit import Cause
from stretto.telemetry.audit_log import AuditLog, AuditRecord
from stretto.telemetry.binder_metrics import BinderMetrics

logger = logging.getLogger(__name__)

CLAIMS_IN_FLIGHT = 16
NOMINATIONS_IN_FLIGHT = 16
"""Of one claim."""
RETRY_S = 0.5
BUDGET_RETRY_S = 2.0
BUDGET_PATIENCE_S = 60.0
"""How long a claim waits for a budget that another disruption has spent (reliability §2.8)."""
LATER = "later"
"""Victims were refused, or others ask them: the claim waits, without a worker."""
UNKNOWN_TRIES = 20
"""Answers that prove nothing, in a row, before a claim is taken back."""


class Evictor:
    """See the module docstring; ``run`` is its task."""

    def __init__(
        self,
        machine: Machine,
        client: KubeClient,
        *,
        may_act: Callable[[], bool],
        changed: Callable[[], None],
        events: EventWriter | None,
        metrics: BinderMetrics,
        audit: AuditLog,
    ) -> None:
        self._machine = machine
        self._client = client
        self._may_act = may_act
        self._changed = changed
        self._events = events
        self._queue: asyncio.Queue[Claim] = asyncio.Queue()
        self._deadlines: dict[str, float] = {}
        """Claims whose victims were refused: until when they are asked again."""
        self._evictions = metrics.evictions
        self._audit = audit

    def put(self, claim: Claim) -> None:
        """A claim to carry out."""
        self._queue.put_nowait(claim)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(CLAIMS_IN_FLIGHT):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            claim = await self._queue.get()
            await self._carry_out(claim)
            self._changed()

    async def _carry_out(self, claim: Claim) -> None:
        preemptions = self._machine.preemptions
        if claim.stage is ClaimStage.NOMINATING:
            await self._nominate(claim)
        if claim.stage is not ClaimStage.EVICTING:
            if len(claim.seats) > 1:
                await self._clear_all(seat for seat in claim.seats if seat.written)
            return
        problem = await self._evict_all(claim)
        if problem == LATER:
            asyncio.get_running_loop().call_later(BUDGET_RETRY_S, self.put, claim)
            return
        self._deadlines.pop(claim.name, None)
        if problem is None:
            await self._clear_lower(claim)
            preemptions.done(claim)
            return
        cause = Cause.POD_GONE if claim.withdrawn else Cause.VICTIMS
        if not claim.withdrawn or len(claim.seats) > 1:
            await self._clear_all(claim.seats)
        preemptions.failed(claim, cause, problem)

    # ------------------------------------------------------------------------------- nominating
    async def _nominate(self, claim: Claim) -> None:
        """Until all nominations are known to be written, or one is known to be impossible."""
        for first in range(0, len(claim.seats), NOMINATIONS_IN_FLIGHT):
            if claim.stage is not ClaimStage.NOMINATING:
                return
            some = claim.seats[first : first + NOMINATIONS_IN_FLIGHT]
            await asyncio.gather(*(self._nominate_one(claim, seat) for seat in some))

    async def _nominate_one(self, claim: Claim, seat: Seat) -> None:
        member, preemptions = seat.member, self._machine.preemptions
        patch = {
            "metadata": {"uid": member.uid, "resourceVersion": str(seat.resource_version)},
            "status": {"nominatedNodeName": seat.node_name},
        }
        for _ in range(UNKNOWN_TRIES):
            await self._turn()
            if claim.withdrawn:
                break
            answer = await self._try(
                self._client.patch_pod_status(member.namespace, member.name, patch)
            )
            if answer is not None and answer.ok:
                preemptions.nominated(claim, seat, version_of(answer.body))
                return
            if answer is not None and answer.status in (404, 422):
                preemptions.failed(claim, Cause.POD_GONE, "the pod is gone")
                return
            pod = await self._read(member.namespace, member.name)
            if pod is None:
                await asyncio.sleep(RETRY_S)
                continue
            version = int(pod.metadata.resource_version or 0)
            if pod.metadata.uid != member.uid or pod.leaving or pod.spec.node_name:
                preemptions.failed(claim, Cause.POD_GONE, "the pod is gone, or bound")
                return
            if pod.status.nominated_node_name == seat.node_name:
                preemptions.nominated(claim, seat, version)
                return
            if version != seat.resource_version:
                preemptions.failed(claim, Cause.POD_CHANGED, "the pod has changed meanwhile")
                return
        preemptions.failed(claim, Cause.VICTIMS, "the nomination could not be written")

    async def _read(self, namespace: str, name: str) -> Pod | None:
        """The pod of that name, one without a uid if there is none; None: no answer."""
        answer = await self._try(self._client.get_pod(namespace, name))
        if answer is None or not (answer.ok or answer.status == 404):
            return None
        if answer.status == 404:
            return Pod()
        try:
            return decode_pod(answer.body)
        except (OperatorError, msgspec.DecodeError):
            return None

    # --------------------------------------------------------------------------------- evicting
    async def _evict_all(self, claim: Claim) -> str | None:
        """Ask every victim to go; None: all were asked; LATER, or why not."""
        preemptions = self._machine.preemptions
        while True:
            await self._turn()
            victims = preemptions.next_victims(claim)
            if victims is None:
                return "the pod would not fit any more, even without the victims"
            if not victims:
                return LATER if claim.waits else None
            problems = await asyncio.gather(*(self._evict(claim, each) for each in victims))
            problem = next((text for text in problems if text), None)
            self._changed()
            if problem is None:
                continue
            now = time.monotonic()
            until = self._deadlines.setdefault(claim.name, now + BUDGET_PATIENCE_S)
            return problem if now > until else LATER

    async def _evict(self, claim: Claim, victim: Leaving) -> str:
        """Ask one victim to go; '' if it goes, or is gone."""
        if victim.deleted:
            await self._try(self._mark(claim, victim))
            options = {"preconditions": {"uid": victim.uid}}
            path = pod_path(victim.namespace, victim.name)
            answer = await self._try(self._client.delete(path, options))
        else:
            answer = await self._try(
                self._client.evict(victim.namespace, victim.name, uid=victim.uid)
            )
        kind = _kind_of(answer)
        self._evictions.labels(kind).inc()
        self._audit.note(AuditRecord("evict", uid=victim.uid, cause=kind))
        if answer is None:
            return f"no answer to the eviction of {victim.namespace}/{victim.name}"
        if answer.status == 404 or (answer.status == 409 and await self._is_leaving(victim)):
            self._machine.preemptions.asked(victim)
            return ""
        if not answer.ok:
            return f"{victim.namespace}/{victim.name} is not evicted: {answer.status} {answer.text}"
        self._machine.preemptions.asked(victim)
        if not victim.deleted:
            await self._try(self._mark(claim, victim))
        self._tell(claim, victim)
        return ""

    async def _is_leaving(self, victim: Leaving) -> bool:
        """Whether a 409 means that the victim goes or is gone, with perhaps a namesake there.
        Others mean nothing: somebody wrote the pod or its budget at the same moment."""
        pod = await self._read(victim.namespace, victim.name)
        return pod is not None and (pod.metadata.uid != victim.uid or pod.leaving)

    async def _mark(self, claim: Claim, victim: Leaving) -> Response:
        """The condition that says who ended the pod. The Eviction API writes one of its own, so for
        an evicted pod this comes after it."""
        profile = claim.seats[0].shape.profile
        whom = "podgroup" if len(claim.seats) > 1 else "pod"
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": f"{profile}: preempting to accommodate a higher priority {whom}",
            "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        patch: dict[str, Any] = {
            "metadata": {"uid": victim.uid}, "status": {"conditions": [condition]},
        }  # fmt: skip
        return await self._client.patch(pod_path(victim.namespace, victim.name) + "/status", patch)

    def _tell(self, claim: Claim, victim: Leaving) -> None:
        if self._events is not None:
            seat, group = claim.seats[0], self._machine.preemptions.group_of(claim)
            note = f"Preempted by pod {seat.member.uid} on node {seat.node_name}"
            if len(claim.seats) > 1:
                note = f"Preempted by podgroup {group} on node cluster"
            self._events.offer(
                PodEvent(victim.namespace, victim.name, victim.uid, "Preempted", "Preempting", note)
            )

    # --------------------------------------------------------------------------------- clearing
    async def _clear_lower(self, claim: Claim) -> None:
        for uid, namespace, name in self._machine.preemptions.lower_nominations(claim):
            await self._clear(uid, namespace, name)

    async def _clear_all(self, seats: Iterable[Seat]) -> None:
        for seat in seats:
            await self._clear(seat.member.uid, seat.member.namespace, seat.member.name)

    async def _clear(self, uid: str, namespace: str, name: str) -> None:
        """Take a nomination out of a pod's status. A failure is not serious: whoever decides on the
        pod next clears it."""
        patch = {"metadata": {"uid": uid}, "status": {"nominatedNodeName": None}}
        answer = await self._try(self._client.patch(pod_path(namespace, name) + "/status", patch))
        if answer is None or not (answer.ok or answer.status in (404, 409, 422)):
            logger.warning("nomination of %s/%s could not be cleared", namespace, name)

    # ---------------------------------------------------------------------------------- requests
    async def _turn(self) -> None:
        """Wait until writing is allowed."""
        while not self._may_act():  # noqa: ASYNC110  the Lease tells nobody when it is renewed
            await asyncio.sleep(1.0)

    async def _try(self, call: Any) -> Response | None:
        """The answer, None if there is none; server errors and throttling are waited out a bit."""
        try:
            answer: Response = await call
        except KubeError:
            await asyncio.sleep(RETRY_S)
            return None
        if answer.status >= 500 or answer.status == 429:
            await asyncio.sleep(min(answer.retry_after or RETRY_S, BUDGET_RETRY_S))
        return answer


def _kind_of(answer: Response | None) -> str:
    """What an answer to an eviction says, for the metric."""
    if answer is None:
        return "unanswered"
    if answer.ok:
        return "accepted"
    return {404: "gone", 409: "conflict"}.get(answer.status, "refused")
