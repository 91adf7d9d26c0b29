"""Opening: what a new Binder does before the first commit, and how a broken ledger is made whole.

Trust goes API server > memory > ledger. At start the watches' consistent lists say what is bound.
Entries of the ledger whose pod is bound where they say stay entries; every other entry belongs to a
bind of an earlier Binder that may still be in flight, so its pod is read and, if unbound, *fenced*
by a changing patch before the entry is freed (reliability §2.4, cases o to q). If the ledger was
lost there are no entries to go by: then every pending pod of ours is fenced, unless the Lease says
that the last Binder ended with nothing in flight.

While the Binder works, a ledger that gave no answer or lost writes is opened again under the same
epoch and compared with memory: entries that memory does not know were never sent to be bound and
are freed, entries that the ledger lacks are written again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable

import msgspec

from binder.executor import Executor
from binder.machine import Machine, adopt
from stretto.kube.client import KubeClient
from stretto.kube.errors import KubeError
from stretto.ledger.client import Ledger
from stretto.ledger.types import InstallReply, LedgerEntry, LedgerGap, LedgerOp

logger = logging.getLogger(__name__)

PAGE = 500
FENCES_IN_FLIGHT = 16
RETRY_S = 0.5
PROGRESS_EVERY = 1_000


class PendingMeta(msgspec.Struct, frozen=True, rename="camel"):
    """Metadata of a pending pod."""

    name: str
    namespace: str
    uid: str
    resource_version: str


class PendingPod(msgspec.Struct, frozen=True):
    """A pending pod."""

    metadata: PendingMeta


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """Where the next page begins."""

    continue_: str = msgspec.field(default="", name="continue")


class PendingList(msgspec.Struct, frozen=True):
    """A page of pending pods."""

    items: list[PendingPod] = []
    metadata: ListMeta = ListMeta()


async def pending_pods(
    client: KubeClient, scheduler_names: Iterable[str]
) -> dict[str, PendingMeta]:
    """Every unbound pod of ours by uid, from consistent lists; tries until the API answers."""
    found: dict[str, PendingMeta] = {}
    for name in scheduler_names:
        params = {"fieldSelector": f"spec.nodeName=,spec.schedulerName={name}"}
        token = ""
        while True:
            try:
                answer = await client.list_page(
                    "/api/v1/pods", params, limit=PAGE, continue_token=token
                )
            except KubeError as error:
                logger.warning("listing pending pods: %s; trying again", error)
                await asyncio.sleep(RETRY_S)
                continue
            if answer.status == 410:
                token = ""
                continue
            if not answer.ok:
                logger.warning("listing pending pods: %d %s", answer.status, answer.text)
                await asyncio.sleep(RETRY_S)
                continue
            page = msgspec.json.decode(answer.body, type=PendingList)
            found |= {pod.metadata.uid: pod.metadata for pod in page.items}
            token = page.metadata.continue_
            if not token:
                break
    return found


class Opening:
    """The steps from "the lists are complete" to "open"."""

    def __init__(
        self,
        machine: Machine,
        ledger: Ledger,
        client: KubeClient,
        *,
        executor: Executor,
        scheduler_names: Iterable[str],
    ) -> None:
        self._machine = machine
        self._ledger = ledger
        self._client = client
        self._executor = executor
        self._scheduler_names = tuple(scheduler_names)
        self._done = 0

    async def run(
        self, found: InstallReply, *, clean: bool, names: dict[str, tuple[str, str]]
    ) -> None:
        """Resolve what was in flight, make the ledger's accounts those of the API, verify."""
        machine = self._machine
        entries = await self._ledger.entries() if found.intact else []
        await self._write_nodes()
        unresolved = [entry for entry in entries if not self._adopt(entry, names)]
        if not found.intact and not clean:
            await self._fence_all("the ledger is new")
        elif unresolved:
            await self._resolve(unresolved)
        await self._ledger.transition(machine.take_ops())
        await self._verify()
        await self._ledger.opened()

    def _adopt(self, entry: LedgerEntry, names: dict[str, tuple[str, str]]) -> bool:
        namespace, name = names.get(entry.pod_uid, ("", ""))
        if not name:
            return False
        return self._machine.adopt_entry(entry, namespace=namespace, name=name) is not None

    async def _write_nodes(self) -> None:
        machine = self._machine
        known = await self._ledger.node_sums()
        machine.accounts()
        nodes = machine.cluster.nodes
        accounts = [machine.account(uid) for uid in nodes]
        await self._ledger.set_nodes(accounts, [uid for uid in known if uid not in nodes])

    async def _resolve(self, entries: list[LedgerEntry]) -> None:
        """Entries whose pod is not bound where they say: fence the unbound, then free them all."""
        pending = await pending_pods(self._client, self._scheduler_names)
        logger.info("resolving %d reservations of an earlier epoch", len(entries))
        unbound = [pending[entry.pod_uid] for entry in entries if entry.pod_uid in pending]
        await self._fence(unbound)
        self._machine.ops += [LedgerOp.free(entry.pod_uid) for entry in entries]

    async def _fence_all(self, why: str) -> None:
        pending = await pending_pods(self._client, self._scheduler_names)
        if pending:
            logger.warning("%s: fencing %d pending pods before the first bind", why, len(pending))
        await self._fence(list(pending.values()))

    async def _fence(self, pods: list[PendingMeta]) -> None:
        """Fence pods, some at a time, each until it is fenced, bound or gone."""
        began = time.monotonic()
        self._done = 0
        queue = list(reversed(pods))

        async def work() -> None:
            while queue:
                await self._fence_one(queue.pop())
                self._done += 1
                if self._done % PROGRESS_EVERY == 0:
                    logger.warning("fenced %d of %d pods", self._done, len(pods))

        async with asyncio.TaskGroup() as group:
            for _ in range(min(FENCES_IN_FLIGHT, len(pods))):
                group.create_task(work())
        if pods:
            logger.info("fenced %d pods in %.1f s", len(pods), time.monotonic() - began)

    async def _fence_one(self, pod: PendingMeta) -> None:
        version = int(pod.resource_version)
        while True:
            try:
                patch = self._executor.fence_patch(pod.uid, version)
                answer = await self._client.patch_pod_status(pod.namespace, pod.name, patch)
                if answer.ok or answer.status in (404, 422):
                    return
                if answer.status == 409:
                    read = await self._client.get_pod(pod.namespace, pod.name)
                    if read.status == 404:
                        return
                    if read.ok:
                        seen = msgspec.json.decode(read.body, type=SeenPod)
                        if seen.metadata.uid != pod.uid or seen.spec.node_name:
                            return
                        version = int(seen.metadata.resource_version)
                        continue
                logger.warning(
                    "fencing %s/%s: %d %s", pod.namespace, pod.name, answer.status, answer.text
                )
            except KubeError as error:
                logger.warning("fencing %s/%s: %s", pod.namespace, pod.name, error)
            await asyncio.sleep(RETRY_S)

    async def _verify(self) -> None:
        """The ledger's sums are those of its entries.

        Raises:
            LedgerGap: they are not: it must be rebuilt.
        """
        expected: dict[str, dict[str, int]] = {}
        for entry in await self._ledger.entries():
            sums = expected.setdefault(entry.node_uid, {})
            for name, amount in entry.lines:
                sums[name] = sums.get(name, 0) + amount
        for uid, sums in (await self._ledger.node_sums()).items():
            wanted = {name: amount for name, amount in expected.get(uid, {}).items() if amount}
            if sums != wanted:
                raise LedgerGap(f"the ledger's sums of node {uid} are not those of its entries")


class SeenSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Where a pod is."""

    node_name: str = ""


class SeenPod(msgspec.Struct, frozen=True):
    """A pod as resolving reads it."""

    metadata: PendingMeta
    spec: SeenSpec = SeenSpec()


class Repair:
    """Make the ledger equal to memory, while commits stand still."""

    def __init__(self, machine: Machine, ledger: Ledger) -> None:
        self._machine = machine
        self._ledger = ledger

    async def __call__(self) -> None:
        """One try.

        Raises:
            LedgerUnavailable, LedgerGap: not whole yet.
            LedgerFenced: a successor has it.
        """
        machine = self._machine
        found = await self._ledger.install(machine.cluster.epoch)
        entries = {entry.pod_uid: entry for entry in await self._ledger.entries()}
        known = await self._ledger.node_sums()
        machine.accounts()
        # From here on memory as it is now is written; what the watches change meanwhile gathers
        # in `ops` and `accounts` and is written in the next round.
        machine.take_ops()
        nodes = machine.cluster.nodes
        ops: list[LedgerOp] = []
        for uid, entry in entries.items():
            if uid not in machine.bindings:
                # Of a reserve call whose answer was lost: its batch is asked again, as if never.
                ops += (LedgerOp.free(uid), LedgerOp.forget_unit(entry.unit_id))
        for uid, binding in machine.bindings.items():
            known_as = entries.get(uid)
            wanted = adopt(binding)
            same = (wanted.node_uid, wanted.lines)
            if known_as is None or (known_as.node_uid, known_as.lines) != same:
                ops.append(wanted)
        accounts = [machine.account(uid) for uid in nodes]
        removed = [uid for uid in known if uid not in nodes]
        await self._ledger.set_nodes(accounts, removed)
        await self._ledger.transition(ops)
        await self._ledger.opened()
        logger.warning(
            "ledger compared with memory: %s, %d operations, %d nodes",
            "intact" if found.intact else "it was empty", len(ops), len(accounts),
        )  # fmt: skip
