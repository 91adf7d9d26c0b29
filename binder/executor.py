"""The pool that sends binds and resolves what came back unclear. It decides nothing.

W workers take pods whose turn it is; each carries out the actions that the pod's
:class:`Binding` asks for, one after the other, until there is nothing to do. Immediately before
every write the Lease is asked: a Binder that may have been succeeded sends nothing.

A pod that the API server puts off (429) keeps its reservation and gives its worker back; when the
time that was asked for is over, and a bit more, so that those put off together do not come back
together, it is the next in the queue. So what is refused costs its own attempt and holds up nobody:
of W workers' requests a share p that is refused leaves 1 - p of the binds (reliability R15).
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from binder.bindings import Action, ActionKind, Binding, Read, Stage
from binder.extender_binds import ExtenderBinds
from binder.machine import Machine
from stretto.kube.answers import BindAnswer, BindKind, Response
from stretto.kube.backoff import spread
from stretto.kube.client import KubeClient
from stretto.kube.errors import KubeError
from stretto.model.errors import OperatorError
from stretto.model.objects import Pod, decode_pod
from stretto.model.shape import Shape
from stretto.model.shaping import ShapeMaker
from stretto.telemetry.audit_log import AuditLog, AuditRecord
from stretto.telemetry.binder_metrics import BinderMetrics

FENCE = "stretto.io/BindFence"
"""Condition type of the patch that makes a late bind fail (design §12.19)."""
UNAUTHORIZED_RETRY_S = 2.0
LONG_DELAY_S = 0.05
"""An action due later than this does not keep a worker."""


class Executor:
    """Carries out the actions of bindings; ``run`` is its task."""

    def __init__(
        self,
        machine: Machine,
        client: KubeClient,
        *,
        workers: int,
        may_act: Callable[[], bool],
        changed: Callable[[], None],
        rebase: Callable[[str, int], asyncio.Future[bool]],
        metrics: BinderMetrics,
        audit: AuditLog,
        extenders: ExtenderBinds | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._machine = machine
        self._client = client
        self._workers = workers
        self._may_act = may_act
        self._changed = changed
        self._rebase = rebase
        self._metrics = metrics
        self._audit = audit
        self._extenders = extenders
        self._rng = rng or random.Random()
        self._maker = ShapeMaker()
        self._queue: deque[tuple[Binding, Action | None]] = deque()
        self._filled = asyncio.Event()
        self._later: set[asyncio.TimerHandle] = set()
        self._busy = 0
        self._fences = itertools.count(1)
        self._counts = {kind: metrics.binds.labels(kind.name.lower()) for kind in BindKind}

    @property
    def waiting(self) -> int:
        """Pods in the queue or in a worker's hands."""
        return len(self._queue) + self._busy + len(self._later)

    def put(self, binding: Binding, action: Action | None = None) -> None:
        """A pod's turn; ``action`` where one is due already, else its bind."""
        self._queue.append((binding, action))
        self._filled.set()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._work())

    async def drain(self, timeout_s: float) -> bool:
        """Wait until nothing is waiting; False if that took too long."""
        deadline = time.monotonic() + timeout_s
        while self.waiting:
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.02)
        return True

    async def _work(self) -> None:
        while True:
            while not self._queue:
                self._filled.clear()
                await self._filled.wait()
            binding, action = self._queue.popleft()
            self._busy += 1
            try:
                await self._advance(binding, action or binding.send())
            finally:
                self._busy -= 1

    async def _advance(self, binding: Binding, action: Action) -> None:
        """Carry out one action after the other; a long wait gives the worker back."""
        while action.kind is not ActionKind.NOTHING:
            if action.delay_s > LONG_DELAY_S:
                self._put_later(binding, action)
                return
            if action.delay_s:
                await asyncio.sleep(action.delay_s)
            if not self._may_act():
                self._put_later(binding, delayed(action, delay_s=1.0))
                return
            action = await self._perform(binding, action)
            self._machine.endings.stepped(binding)
            self._changed()

    def _put_later(self, binding: Binding, action: Action) -> None:
        def due() -> None:
            self._later.discard(handle)
            self._queue.appendleft((binding, delayed(action, delay_s=0.0)))
            self._filled.set()

        handle = asyncio.get_running_loop().call_later(action.delay_s, due)
        self._later.add(handle)

    async def _perform(self, binding: Binding, action: Action) -> Action:
        if action.kind is ActionKind.POST:
            return await self._post(binding)
        if action.kind is ActionKind.READ:
            return await self._read(binding)
        if action.kind is ActionKind.FENCE:
            return await self._fence(binding, action.resource_version)
        accepted = await self.rebase(binding.uid, action.resource_version)
        return binding.rebased(action.resource_version, accepted=accepted)

    async def rebase(self, uid: str, resource_version: int) -> bool:
        """Have the ledger accept a pod's newer version; False: it holds nothing for the pod."""
        accepted = await self._rebase(uid, resource_version)
        if accepted:
            self._audit.note(AuditRecord("rebased", uid=uid, rv=resource_version))
        return accepted

    # ----------------------------------------------------------------------------------- requests
    async def _post(self, binding: Binding) -> Action:
        if binding.over:
            return binding.send()
        reservation = binding.reservation
        if reservation.node_uid not in self._machine.cluster.nodes and not binding.unsure:
            # The API server would bind to a node that is gone (reliability case j).
            binding.stage = Stage.RESERVED
            return binding.withdraw()
        member = reservation.member
        if self._audit.on:
            self._audit.note(
                AuditRecord(
                    "post", uid=member.uid, node=reservation.node_name,
                    rv=binding.resource_version,
                )
            )  # fmt: skip
        began = time.perf_counter()
        answer = await self._bind(binding)
        self._metrics.bind_duration.observe(time.perf_counter() - began)
        self._counts[answer.kind].inc()
        if self._audit.on:
            kind = answer.kind.name.lower() if answer.sent else "not_sent"
            self._audit.note(AuditRecord("answer", uid=member.uid, cause=kind))
        return self._answered(binding, answer)

    async def _bind(self, binding: Binding) -> BindAnswer:
        """Send the bind, or have the extender send it that wants to."""
        reservation = binding.reservation
        member, node = reservation.member, reservation.node_name
        if self._extenders is not None:
            extender = self._extenders.of(reservation.shape)
            if extender is not None:
                return await self._extenders.bind(extender, member=member, node=node)
        return await self._client.bind(
            namespace=member.namespace,
            name=member.name,
            uid=member.uid,
            resource_version=binding.resource_version,
            node=node,
        )

    def _answered(self, binding: Binding, answer: BindAnswer) -> Action:
        kind = answer.kind
        if kind is BindKind.BOUND:
            return binding.posted()
        if kind is BindKind.GONE:
            return binding.not_found()
        if kind is BindKind.CONFLICT:
            return binding.conflict()
        if kind is BindKind.THROTTLED:
            return binding.throttled(spread(answer.retry_after or 1.0, self._rng))
        if kind is BindKind.UNAUTHORIZED:
            return binding.throttled(UNAUTHORIZED_RETRY_S)
        if kind in (BindKind.FORBIDDEN, BindKind.INVALID):
            return binding.refused(f"the API server refused the bind: {answer.text}")
        return binding.unknown() if answer.sent else binding.not_sent()

    async def _read(self, binding: Binding) -> Action:
        member = binding.reservation.member
        try:
            answer = await self._client.get_pod(member.namespace, member.name)
        except KubeError:
            return binding.read(None)
        if not answer.ok and answer.status != 404:
            return binding.read(None, retry_after_s=spread(answer.retry_after or 0.0, self._rng))
        return binding.read(self._seen(answer, binding))

    def _seen(self, answer: Response, binding: Binding) -> Read | None:
        """What a read showed; None if it cannot be understood."""
        if answer.status == 404:
            return Read(found=False)
        try:
            pod = decode_pod(answer.body)
        except (OperatorError, msgspec.DecodeError):
            return None
        meta = pod.metadata
        return Read(
            found=True,
            uid=meta.uid,
            node_name=pod.spec.node_name or "",
            resource_version=int(meta.resource_version or 0),
            leaving=pod.leaving,
            same_shape=self._same_shape(pod, binding),
        )

    def _same_shape(self, pod: Pod, binding: Binding) -> bool:
        placed = binding.reservation.shape
        try:
            shape = self._maker.shape_of(pod, label_keys=placed.label_keys)
        except OperatorError:
            return False
        # Where it is nominated may be of our own making, and changes nothing about where it fits.
        return not pod.gates and unnominated(shape) == unnominated(placed)

    async def _fence(self, binding: Binding, resource_version: int) -> Action:
        member = binding.reservation.member
        try:
            answer = await self._client.patch_pod_status(
                member.namespace, member.name, self.fence_patch(member.uid, resource_version)
            )
        except KubeError:
            return binding.fence_failed(gone=False)
        if answer.ok:
            version = version_of(answer.body)
            self._audit.note(AuditRecord("fenced", uid=member.uid, rv=version))
            return binding.fenced(version)
        return binding.fence_failed(
            gone=answer.status in (404, 422),
            retry_after_s=spread(answer.retry_after or 0.0, self._rng),
        )

    def fence_patch(self, uid: str, resource_version: int) -> dict[str, Any]:
        """A patch that changes something each time, and only if the pod is as it was read."""
        epoch, number = self._machine.cluster.epoch, next(self._fences)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {
            "type": FENCE,
            "status": "True",
            "reason": "BindResolved",
            "message": f"epoch {epoch}, fence {number}: no earlier bind can take effect",
            "lastTransitionTime": now,
        }
        metadata = {"uid": uid, "resourceVersion": str(resource_version)}
        return {"metadata": metadata, "status": {"conditions": [condition]}}


def unnominated(shape: Shape) -> bytes:
    """The digest of a shape without its nomination."""
    if not shape.nominated_node:
        return shape.digest
    return msgspec.structs.replace(shape, nominated_node="").digest


class Versioned(msgspec.Struct):
    """The version in a body."""

    metadata: dict[str, Any] = {}


def version_of(body: bytes) -> int:
    """metadata.resourceVersion of a reply, 0 if it has none."""
    try:
        found = msgspec.json.decode(body, type=Versioned).metadata.get("resourceVersion", 0)
        return int(found)
    except (msgspec.DecodeError, ValueError, TypeError):
        return 0


def delayed(action: Action, *, delay_s: float) -> Action:
    """The same action with another delay."""
    return Action(action.kind, delay_s, action.resource_version)
