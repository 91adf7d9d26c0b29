"""Opening: what a new Binder does before the first commit, and how a broken ledger is made whole.

Trust goes API server > memory > ledger. At start the watches' consistent lists say what is bound.
Entries of the ledger whose pod is bound where they say stay entries; every other entry belongs to a
bind of an earlier Binder that may still be in flight, so its pod is *fenced* by a changing patch if
it is unbound, before the entry is freed (reliability §2.4, cases o to q). If the ledger does not
prove what was in flight there are no entries to go by: then every pending pod of ours is fenced,
unless the Lease says that the last Binder ended with nothing in flight (design §12.8). It proves it
if it is open, its server has run on since the last Binder took it (a server that was started again
may have lost acknowledged writes at the end, which nobody who knew of them is left to notice), and
the last Binder that the Lease tells of has taken it. That there is no Lease proves nothing: it may
have been deleted. Pods of ours that are bound and have no entry get one.

The order matters. The pending pods are listed *before* the bound ones: a late bind that lands in
between then shows in the second list, and one that lands after it fails at the fence, or is found
there and waited for in the watch. In the other order it would show in neither.

While the Binder works, a ledger that gave no answer or lost writes is opened again under the same
epoch and compared with memory: entries that memory does not know were never sent to be bound and
are freed, entries that the ledger lacks are written again. A ledger whose sums cannot be right is
emptied and written anew.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from binder.claim_fences import ClaimFences, PendingSpec, PendingStatus, claim_keys
from binder.executor import Executor
from binder.machine import Machine
from stretto.kube.backoff import spread
from stretto.kube.client import KubeClient
from stretto.kube.errors import KubeError
from stretto.kube.lease import Tenure
from stretto.ledger.client import Ledger
from stretto.ledger.types import Charge, InstallReply, LedgerEntry, LedgerOp, sums_of_entries
from stretto.telemetry.audit_log import AuditLog, AuditRecord

logger = logging.getLogger(__name__)

PAGE = 500
FENCES_IN_FLIGHT = 16
FENCES_UNDER_WAY = 512
"""With those that the API server has put off: while three in ten are, for a second each, so many
keep those in flight busy up to a thousand a second."""
RETRY_S = 0.5
SEEN_RETRY_S = 0.1
"""Between looks whether the watch has caught up with a bind that a read has shown."""
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
    spec: PendingSpec = PendingSpec()
    status: PendingStatus = PendingStatus()


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """Where the next page begins."""

    continue_: str = msgspec.field(default="", name="continue")


class PendingList(msgspec.Struct, frozen=True):
    """A page of pending pods."""

    items: list[PendingPod] = []
    metadata: ListMeta = ListMeta()


async def pending_pods(client: KubeClient, scheduler_names: Iterable[str]) -> dict[str, PendingPod]:
    """Every unbound pod of ours by uid, from consistent lists; tries until the API answers."""
    found: dict[str, PendingPod] = {}
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
                await asyncio.sleep(answer.retry_after or RETRY_S)
                continue
            page = msgspec.json.decode(answer.body, type=PendingList)
            found |= {pod.metadata.uid: pod for pod in page.items}
            token = page.metadata.continue_
            if not token:
                break
    return found


def doubt(found: InstallReply, tenure: Tenure) -> str:
    """Why binds may be in flight that the ledger does not name; "" if none can be."""
    if tenure.clean:
        return ""
    if not found.intact:
        return "the ledger is new"
    if found.restarted:
        return "the ledger's server was started again and may have lost its last writes"
    if found.previous_epoch < tenure.previous_epoch:
        return (
            f"the ledger was last taken in epoch {found.previous_epoch}, the last binder led in "
            f"epoch {tenure.previous_epoch}"
        )
    return ""


class Opening:
    """The steps to "open": :meth:`prepare`, then the watches' lists, then :meth:`finish`."""

    def __init__(
        self,
        machine: Machine,
        ledger: Ledger,
        client: KubeClient,
        *,
        executor: Executor,
        scheduler_names: Iterable[str],
        audit: AuditLog,
        rng: random.Random | None = None,
    ) -> None:
        self._audit = audit
        self._rng = rng or random.Random()
        self._machine = machine
        self._ledger = ledger
        self._client = client
        self._executor = executor
        self._scheduler_names = tuple(scheduler_names)
        self._entries: list[LedgerEntry] = []
        self._pending: dict[str, PendingPod] = {}
        self._doubt = ""
        self.fenced = 0
        """Pods that were fenced, for tests and logs."""
        self.adopted = 0
        """Bound pods of ours that got an entry, likewise."""

    async def prepare(self, found: InstallReply, tenure: Tenure) -> None:
        """Read what may be in flight; the lists of bound pods must begin after this."""
        self._doubt = doubt(found, tenure)
        self._entries = await self._ledger.entries() if found.intact else []
        if self._entries or self._doubt:
            self._pending = await pending_pods(self._client, self._scheduler_names)

    async def finish(self, names: Mapping[str, tuple[str, str]]) -> None:
        """Resolve what was in flight and make the ledger's accounts those of the API.

        ``names``: uid → (namespace, name) of the bound pods.
        """
        machine = self._machine
        unbound = [e.pod_uid for e in self._entries if not machine.cluster.knows(e.pod_uid)]
        uids = self._pending if self._doubt else unbound
        suspects = [self._pending[uid] for uid in uids if uid in self._pending]
        if self._doubt and suspects:
            logger.warning("%s: fencing %d pending pods", self._doubt, len(suspects))
        elif unbound:
            logger.info("resolving %d reservations of an earlier epoch", len(unbound))
        await self._fence([pod.metadata for pod in suspects])
        fences = ClaimFences(machine, self._client)
        if fences.left_behind() and not self._pending:
            self._pending = await pending_pods(self._client, self._scheduler_names)
        claims = [
            key
            for pod in suspects
            for key in claim_keys(pod.metadata.namespace, pod.spec, pod.status)
        ]
        await fences.fence(claims, pending=self._pending)
        self._adopt(names)
        await self._write_accounts()
        await self._ledger.transition(machine.book.take_ops())
        if not await self._sums_agree():
            logger.error("the ledger's sums are not those of its entries; rebuilding it")
            await rebuild(machine, self._ledger)
        await self._ledger.opened()

    def _adopt(self, names: Mapping[str, tuple[str, str]]) -> None:
        """Pods of ours that are bound are entries, the ledger's others are freed."""
        machine, nobody = self._machine, ("", "")
        for entry in self._entries:
            namespace, name = names.get(entry.pod_uid, nobody)
            if machine.book.adopt_entry(entry, namespace=namespace, name=name) is None:
                machine.book.ops.append(LedgerOp.free(entry.pod_uid))
        ours = frozenset(self._scheduler_names)
        cluster = machine.cluster
        for uid in cluster.pods.keys() - machine.bindings.keys():
            if cluster.shape(cluster.pods[uid].shape_id).profile in ours:
                namespace, name = names.get(uid, nobody)
                machine.book.adopt_bound(uid, namespace=namespace, name=name)
                self.adopted += 1
        if self.adopted:
            logger.warning("%d bound pods of ours had no entry in the ledger", self.adopted)

    async def _write_accounts(self) -> None:
        machine = self._machine
        known = await self._ledger.sums()
        accounts = machine.book.all_accounts()
        wanted = {account.uid for account in accounts}
        await self._ledger.set_accounts(accounts, [uid for uid in known if uid not in wanted])

    async def _fence(self, pods: list[PendingMeta]) -> None:
        """Fence pods, some at a time, each until it is fenced, bound or gone."""
        began = time.monotonic()
        self._done = 0
        in_flight = asyncio.Semaphore(FENCES_IN_FLIGHT)

        async def work(queue: Iterator[PendingMeta]) -> None:
            for pod in queue:
                await self._fence_one(pod, in_flight)
                self._done += 1
                if self._done % PROGRESS_EVERY == 0:
                    logger.warning("fenced %d of %d pods", self._done, len(pods))

        queue = iter(pods)  # of all workers
        async with asyncio.TaskGroup() as group:
            for _ in range(min(FENCES_UNDER_WAY, len(pods))):
                group.create_task(work(queue))
        if pods:
            logger.info("fenced %d pods in %.1f s", len(pods), time.monotonic() - began)

    async def _fence_one(self, pod: PendingMeta, in_flight: asyncio.Semaphore) -> None:
        """Until the pod is fenced, or gone, or bound and seen to be so by the watch. Only what is
        on its way counts as in flight: a pod that is put off holds up no other."""
        version = int(pod.resource_version)
        while True:
            patch = self._executor.fence_patch(pod.uid, version)
            try:
                async with in_flight:
                    answer = await self._client.patch_pod_status(pod.namespace, pod.name, patch)
            except KubeError as error:
                logger.warning("fencing %s/%s: %s", pod.namespace, pod.name, error)
                await asyncio.sleep(RETRY_S)
                continue
            if answer.ok:
                self.fenced += 1
                self._audit.note(AuditRecord("fenced", uid=pod.uid))
                return
            if answer.status in (404, 422):
                return
            if answer.status != 409:
                text = f"{answer.status} {answer.text}"
                logger.warning("fencing %s/%s: %s", pod.namespace, pod.name, text)
                await asyncio.sleep(spread(answer.retry_after or RETRY_S, self._rng))
                continue
            seen = await self._read_until_settled(pod)
            if seen is None:
                return
            version = int(seen.metadata.resource_version)

    async def _read_until_settled(self, pod: PendingMeta) -> SeenPod | None:
        """The pod as it is, if it is unbound; None if it is gone, or bound and known to be so."""
        while not self._machine.cluster.knows(pod.uid):
            wait_s = 0.0
            try:
                answer = await self._client.get_pod(pod.namespace, pod.name)
            except KubeError as error:
                logger.warning("reading %s/%s: %s", pod.namespace, pod.name, error)
            else:
                if answer.status == 404:
                    return None
                if answer.ok:
                    seen = msgspec.json.decode(answer.body, type=SeenPod)
                    if seen.metadata.uid != pod.uid:
                        return None
                    if not seen.spec.node_name:
                        return seen
                wait_s = spread(answer.retry_after or 0.0, self._rng)
            await asyncio.sleep(max(SEEN_RETRY_S, wait_s))
        return None

    async def _sums_agree(self) -> bool:
        """Whether the ledger's sums are those of its entries."""
        expected = sums_of_entries(await self._ledger.entries())
        found = await self._ledger.sums()
        return expected == {uid: sums for uid, sums in found.items() if sums}


class SeenSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Where a pod is."""

    node_name: str = ""


class SeenPod(msgspec.Struct):
    """A pod as resolving reads it."""

    metadata: PendingMeta
    spec: SeenSpec = SeenSpec()


async def rebuild(machine: Machine, ledger: Ledger) -> None:
    """Empty the ledger and write it anew from memory.

    What the watches change meanwhile gathers in the machine's operations and accounts and is
    written in the next round. A Binder that dies in the middle leaves a ledger that says so.
    """
    machine.book.take_ops()
    await ledger.rebuild(accounts=machine.book.all_accounts(), entries=machine.book.entries())


class Repair:
    """Make the ledger equal to memory, while commits stand still."""

    def __init__(self, machine: Machine, ledger: Ledger) -> None:
        self._machine = machine
        self._ledger = ledger

    async def rebuild(self) -> None:
        """After drift: the sums cannot be trusted. Frozen nodes go on afterwards.

        Raises:
            LedgerUnavailable, LedgerGap: not whole.
            LedgerFenced: a successor has it.
        """
        await rebuild(self._machine, self._ledger)
        self._machine.book.thaw()
        logger.warning("the ledger has been rebuilt from memory after drift")

    async def __call__(self) -> None:
        """One try.

        Raises:
            LedgerUnavailable, LedgerGap: not whole yet.
            LedgerFenced: a successor has it.
        """
        machine = self._machine
        found = await self._ledger.install(machine.cluster.epoch)
        entries = {entry.pod_uid: entry for entry in await self._ledger.entries()}
        known = await self._ledger.sums()
        # From here on memory as it is now is written; what the watches change meanwhile gathers
        # in the machine's operations and accounts and is written in the next round.
        accounts = machine.book.all_accounts()
        machine.book.take_ops()
        uids = {account.uid for account in accounts}
        wanted = {entry.pod_uid: entry for entry in machine.book.entries()}
        ops = [LedgerOp.free(uid) for uid in entries if uid not in wanted]
        ops += [
            LedgerOp.adopting(entry)
            for uid, entry in wanted.items()
            if uid not in entries or not same(entries[uid], entry)
        ]
        await self._ledger.set_accounts(accounts, [uid for uid in known if uid not in uids])
        await self._ledger.transition(ops)
        await self._ledger.opened()
        logger.warning(
            "ledger compared with memory: %s, %d operations, %d accounts",
            "intact" if found.intact else "it was empty", len(ops), len(accounts),
        )  # fmt: skip


def same(found: LedgerEntry, wanted: LedgerEntry) -> bool:
    """Whether an entry says what it ought to; epochs and the order of lines do not matter."""
    return (
        (found.node_uid, found.resource_version, found.state)
        == (wanted.node_uid, wanted.resource_version, wanted.state)
    ) and sorted(map(_sorted, found.holds())) == sorted(map(_sorted, wanted.holds()))


def _sorted(charge: Charge) -> tuple[str, list[tuple[str, int]]]:
    return charge.account, sorted(charge.lines)
