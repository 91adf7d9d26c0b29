"""Claims to devices at the opening: allocations of an earlier Binder that may still arrive.

Nothing in the API keeps two claims from having one device. So before the first commit the claims of
every pod that an earlier Binder may have been at are *fenced*: a patch makes a new version of each
that has no devices, after which an allocation that was sent for an older version is refused. A
claim that has devices by then is waited for in the watch. What was made for a pod's extended
resources is deleted: the next commit makes it anew, as kube-scheduler does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Iterable, Mapping

import msgspec

from binder.claim_bodies import fence_patch
from binder.device_writer import claim_path, delete_claim
from binder.machine import Machine
from stretto.kube.answers import Response
from stretto.kube.client import KubeClient
from stretto.kube.errors import KubeError
from stretto.model.device_objects import ResourceClaim
from stretto.model.devices import ClaimRow

logger = logging.getLogger(__name__)

IN_FLIGHT = 16
RETRY_S = 0.2


class ClaimFences:
    """See the module docstring."""

    def __init__(self, machine: Machine, client: KubeClient) -> None:
        self._machine = machine
        self._client = client

    def left_behind(self) -> list[ClaimRow]:
        """What was made for extended resources of pods that are on no node."""
        cluster = self._machine.cluster
        return [
            r for r in cluster.devices.claims() if r.extended and not cluster.knows(r.owner_uid)
        ]

    async def fence(self, claims: Iterable[str], *, pending: Container[str]) -> None:
        """Fence claims, by key; delete those left behind by unbound pods of ours, by uid."""
        keys = set(claims)
        rows = self._machine.cluster.devices.claims()
        queue = [row for row in self.left_behind() if row.owner_uid in pending]
        queue += [row for row in rows if row.allocation is None and row.key in keys]

        async def work() -> None:
            while queue:
                claim = queue.pop()
                await (self._delete(claim) if claim.extended else self._fence_one(claim))

        async with asyncio.TaskGroup() as group:
            for _ in range(min(IN_FLIGHT, len(queue))):
                group.create_task(work())

    async def _delete(self, claim: ClaimRow) -> None:
        gone = False
        while not gone:
            try:
                answer = await delete_claim(self._client, claim.key, claim.uid)
            except KubeError as error:
                logger.warning("deleting claim %s: %s", claim.key, error)
            else:
                gone = answer is None
            await asyncio.sleep(0 if gone else RETRY_S)

    async def _fence_one(self, claim: ClaimRow) -> None:
        """Until the claim is fenced, or gone, or has devices and is seen to have them by the watch.

        The patch changes nothing the second time, and so is a read.
        """
        patch = fence_patch(claim.uid, f"epoch {self._machine.cluster.epoch}")
        over = False
        while not over:
            over = self._over(claim, await self._try(claim, patch))
            await asyncio.sleep(0 if over else RETRY_S)

    def _over(self, claim: ClaimRow, answer: Response | None) -> bool:
        if answer is None or not answer.ok:
            return answer is not None
        found = msgspec.json.decode(answer.body, type=ResourceClaim)
        if found.metadata.uid != claim.uid or found.status.allocation is None:
            return True
        row = self._machine.cluster.devices.claim(claim.key)
        return row is not None and row.uid == claim.uid and row.allocation is not None

    async def _try(self, claim: ClaimRow, patch: Mapping[str, object]) -> Response | None:
        """The answer; None: none that proves anything."""
        try:
            answer = await self._client.patch(claim_path(claim.key), patch)
        except KubeError as error:
            logger.warning("fencing claim %s: %s", claim.key, error)
            return None
        if answer.ok or answer.status in (404, 422):
            return answer
        logger.warning("fencing claim %s: %d %s", claim.key, answer.status, answer.text)
        return None


class PendingClaim(msgspec.Struct, frozen=True, rename="camel"):
    """A claim in a pod's spec, or in its status where a template made it."""

    resource_claim_name: str | None = None


class PendingSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What a pending pod says of claims."""

    resource_claims: list[PendingClaim] | None = None


class PendingStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The claims that were made for a pending pod."""

    resource_claim_statuses: list[PendingClaim] | None = None


def claim_keys(namespace: str, spec: PendingSpec, status: PendingStatus) -> list[str]:
    """The keys of the claims that a pod names."""
    claims = (*(spec.resource_claims or ()), *(status.resource_claim_statuses or ()))
    names = (claim.resource_claim_name for claim in claims)
    return [f"{namespace}/{name}" for name in names if name]
