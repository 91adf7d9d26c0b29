"""Acquires a Lease, keeps it, gives it up: the I/O around
:class:`~stretto.kube.lease.LeaseMachine`.

It runs on the process's own event loop on purpose: a loop that is wedged cannot renew, so a process
that no longer works cannot stay the leader, and finds out that it is not valid when it goes on.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import socket
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from stretto.kube.answers import Response
from stretto.kube.client import KubeClient, path_part
from stretto.kube.errors import KubeError, KubeRefused
from stretto.kube.lease import (
    ADDRESS,
    CLEAN,
    EPOCH,
    Leader,
    LeaseMachine,
    LeaseRecord,
    LeaseSettings,
    Step,
    Tenure,
)

log = logging.getLogger(__name__)


def fresh_identity() -> str:
    """An identity for one start of a process: where it runs, and a part that never repeats."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class LeaseKeeper:
    """One process's hold on one Lease: ``acquire``, then ``run`` as a task, at the end
    ``release``."""

    def __init__(
        self,
        client: KubeClient,
        settings: LeaseSettings,
        *,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not settings.identity:
            settings = msgspec.structs.replace(settings, identity=fresh_identity())
        self.lost = asyncio.Event()
        """Set when another may lead: the process has to end without any further effect."""
        self.announced = asyncio.Event()
        """Set when our epoch stands in the Lease; :meth:`run` sees to it."""
        self.problem = ""
        """What keeps the Lease from being read or written, or ''."""
        self._client = client
        self._machine = LeaseMachine(settings)
        self._rng = rng or random.Random()
        self._clock = clock
        self._object: dict[str, Any] = {}
        namespace = path_part(settings.namespace)
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path = f"{self._folder}/{path_part(settings.name)}"

    @property
    def identity(self) -> str:
        """Who we are in the Lease."""
        return self._machine.settings.identity

    @property
    def leader(self) -> Leader | None:
        """Whom the Lease named when it was read last; for the "not leader" answer of a standby."""
        return self._machine.leader

    def valid(self) -> bool:
        """Whether we may act right now. Ask immediately before each effect."""
        return self._machine.valid(self._clock())

    def left_s(self) -> float:
        """Seconds for which we may act without a further renewal; 0 if we may not."""
        return self._machine.left_s(self._clock())

    async def acquire(self) -> Tenure:
        """Wait, as a standby if need be, until we lead.

        A process that stands still while its acquiring write is answered may find that its tenure
        has passed to another before it knew of it. Nothing was done in it, so it stands by again.
        """
        while not self.valid():
            await self._advance()
            if self._machine.lost:
                log.warning("lease %s: lost to %s before it was held", self._path, self.leader)
                self._machine = LeaseMachine(self._machine.settings)
                self.announced.clear()
        tenure = self._machine.tenure
        assert tenure is not None, "valid without a tenure"
        log.info("lease %s: acquired, epoch %d", self._path, tenure.epoch)
        return tenure

    async def run(self) -> None:
        """Renew until cancelled, or until the Lease is lost (then sets :attr:`lost` and
        returns)."""
        assert self._machine.tenure is not None, "renewing what was not acquired"
        while not self._machine.lost:
            await self._advance()
        log.error("lease %s: lost to %s", self._path, self.leader)
        self.lost.set()

    async def release(self, *, clean: bool) -> None:
        """Blank the holder, after all guarded work has ended and :meth:`run` was cancelled.

        ``clean`` says that no effect is in flight. Best effort: if it fails, standbys wait for the
        Lease to stand still.
        """
        if self._machine.tenure is None or self._machine.lost:
            return
        self._machine.lost = True
        try:
            problem = await self._blank(clean=clean)
            if problem:
                # A renewal that was cancelled in flight may have been carried out.
                await self._read()
                record = self._machine.record
                if record is not None and record.holder == self.identity:
                    problem = await self._blank(clean=clean)
        except KubeError as error:
            problem = str(error)
        if problem:
            log.warning("lease %s: not released: %s", self._path, problem)

    async def _blank(self, *, clean: bool) -> str:
        """Write the Lease without a holder; the refusal, or ''."""
        answer = await self._write(holder="", clean=clean)
        return "" if answer.ok else f"{answer.status} {answer.text}"

    async def _advance(self) -> None:
        """Take one step."""
        step = self._machine.next_step(self._clock())
        if step is Step.WAIT:
            await self._sleep(self._machine.pause_s(self._clock()))
            self._machine.waited()
            return
        try:
            if step is Step.READ:
                await self._read()
            elif step is not Step.LOST:
                await self._try_write(step)
        except KubeError as error:
            self._machine.failed()
            await self._trouble(error)
        else:
            self.problem = ""

    async def _read(self) -> None:
        answer = await self._client.get(self._path)
        if answer.status == 404:
            self._object = {}
            self._machine.observed(None, self._clock())
            return
        self._machine.observed(self._take(answer), self._clock())

    async def _try_write(self, step: Step) -> None:
        started = self._clock()
        answer = await self._write(holder=self.identity, clean=False, take=step is not Step.RENEW)
        if answer.status == 409 or (answer.status == 404 and self._object):
            self._machine.failed()  # another was faster, or it was deleted: read again
            return
        self._machine.wrote(self._take(answer), started=started)
        if self._machine.announced:
            self.announced.set()

    async def _write(self, *, holder: str, clean: bool, take: bool = False) -> Response:
        body = self._body(holder=holder, clean=clean, take=take)
        if self._object:
            return await self._client.put(self._path, body)
        return await self._client.post(self._folder, body)

    def _body(self, *, holder: str, clean: bool, take: bool) -> dict[str, Any]:
        settings = self._machine.settings
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        old_spec = self._object.get("spec") or {}
        metadata = dict(self._object.get("metadata") or {})
        metadata |= {"name": settings.name, "namespace": settings.namespace}
        metadata["annotations"] = {
            **(metadata.get("annotations") or {}),
            CLEAN: "true" if clean else "false",
            ADDRESS: settings.address if holder else "",
        }
        if self._machine.tenure is not None:
            metadata["annotations"][EPOCH] = str(self._machine.tenure.epoch)
        spec = {
            **old_spec,
            "holderIdentity": holder,
            "leaseDurationSeconds": math.ceil(settings.duration_s),
            "renewTime": now,
        }
        if take:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = int(old_spec.get("leaseTransitions") or 0) + 1
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": spec,
        }

    def _take(self, answer: Response) -> LeaseRecord:
        """Remember the Lease that an answer shows. Raises :class:`KubeRefused` if it shows none."""
        if not answer.ok:
            raise KubeRefused(
                f"lease {self._path}: {answer.status} {answer.text}",
                status=answer.status,
                retry_after_s=answer.retry_after,
            )
        try:
            lease = msgspec.json.decode(answer.body, type=dict[str, Any])
            metadata, spec = lease["metadata"], lease.get("spec") or {}
            annotations = metadata.get("annotations") or {}
            record = LeaseRecord(
                version=int(metadata["resourceVersion"]),
                holder=str(spec.get("holderIdentity") or ""),
                address=str(annotations.get(ADDRESS, "")),
                clean=annotations.get(CLEAN) == "true",
                transitions=int(spec.get("leaseTransitions") or 0),
                epoch=int(annotations.get(EPOCH) or 0),
            )
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise KubeRefused(f"lease {self._path}: no lease came back", status=200) from error
        self._object = lease
        return record

    async def _trouble(self, error: KubeError) -> None:
        if str(error) != self.problem:
            log.warning("%s", error)
            self.problem = str(error)
        await self._sleep(self._machine.settings.retry_s)

    async def _sleep(self, at_most_s: float) -> None:
        await asyncio.sleep(at_most_s * (0.8 + 0.2 * self._rng.random()))
