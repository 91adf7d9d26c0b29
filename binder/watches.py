"""The Binder's watches: nodes, pods that are on nodes, namespaces; decoded and told to the
machine."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

import msgspec

from binder.bindings import Binding
from binder.bulky_reads import BulkyReads
from binder.kinds import KINDS
from binder.machine import Machine
from binder.object_watches import ObjectWatch
from binder.placed import PodFacts
from binder.pod_labels import Labels
from binder.rejections import unstarted
from stretto.kube.client import KubeClient
from stretto.kube.reflections import Event, EventKind
from stretto.kube.reflector import Reflector
from stretto.model.errors import OperatorError
from stretto.model.objects import Node, ObjectMeta, Pod, seconds_of
from stretto.model.shape import Shape
from stretto.model.shaping import ShapeMaker
from stretto.snapshot.budgets import PodDisruptionBudget
from stretto.snapshot.node_rows import node_row_of
from stretto.snapshot.pod_records import flags_of

logger = logging.getLogger(__name__)

MAX_SILENCE_S = 30.0
"""On a picture that is older nothing is committed. A little more than the silence after which a
reflector takes its connection for broken and asks anew, so that a quiet cluster is no old one."""
LABEL_SETS = 16_384
"""Different label sets remembered."""
NOMINATED_PODS = "spec.nodeName=,status.nominatedNodeName!="
BOUND_PODS = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


class _Place(msgspec.Struct):
    node_name: str = msgspec.field(name="nodeName", default="")


class _Somewhere(msgspec.Struct):
    spec: _Place


class Namespace(msgspec.Struct):
    """A namespace: name and labels."""

    metadata: ObjectMeta = ObjectMeta()


class Watches:
    """See the module docstring; ``run`` is its task."""

    unstarted: Callable[[str, str, str], None] | None = None
    """Called with (namespace, name, uid) of a pod of ours that left and had not run."""

    def __init__(
        self,
        machine: Machine,
        client: KubeClient,
        *,
        changed: Callable[[], None],
        resolve: Callable[[Binding], None],
    ) -> None:
        self._machine = machine
        self.changed = changed
        """Called after each batch; a standby that begins to lead replaces it."""
        self.resolve = resolve
        """Called with reservations whose node has left."""
        self._maker = ShapeMaker()
        self._bulky = BulkyReads(machine, self._maker)
        self._label_sets: dict[Labels, Labels] = {}
        """Equal label sets share memory."""
        self.bound_names: dict[str, tuple[str, str]] | None = {}
        """Uid → (namespace, name) of bound pods until the Binder has opened; None after."""
        self.begin = asyncio.Event()
        """Set when the lists may begin."""
        self.synced = asyncio.Event()
        """All first lists are complete."""
        self.pods_listed = 0
        """Lists of bound pods that were completed."""
        self._objects = [
            ObjectWatch(
                kind,
                client=client,
                cluster=machine.cluster,
                changed=self._objects_changed,
                synced=self._one_synced,
            )
            for kind in KINDS
        ]
        self._unsynced = 5 + len(self._objects)
        self._nodes: Reflector[Node] = Reflector(client, "/api/v1/nodes", kind=Node)
        self._pods: Reflector[Pod] = Reflector(
            client, "/api/v1/pods", kind=Pod, params={"fieldSelector": BOUND_PODS}
        )
        self._namespaces: Reflector[Namespace] = Reflector(
            client, "/api/v1/namespaces", kind=Namespace
        )

        self._nominated: Reflector[Pod] = Reflector(
            client, "/api/v1/pods", kind=Pod, params={"fieldSelector": NOMINATED_PODS}
        )
        self._budgets: Reflector[PodDisruptionBudget] = Reflector(
            client, "/apis/policy/v1/poddisruptionbudgets", kind=PodDisruptionBudget
        )

    def _reflectors(self) -> tuple[Reflector, ...]:  # type: ignore[type-arg]
        return self._nodes, self._pods, self._namespaces, self._nominated, self._budgets

    def _objects_changed(self) -> None:
        self.changed()  # looked up each time: it is replaced when a standby begins to lead

    async def confirm(self) -> None:
        """Wait until all that a consistent read shows by now has been told to the machine.

        What a standby has watched may lag behind; before the first commit it must not.

        Raises:
            WatchStaleError: a watch does not catch up; lists of a new process would.
        """
        await self.synced.wait()
        await asyncio.gather(
            *(reflector.confirm() for reflector in self._reflectors()),
            *(watch.confirm() for watch in self._objects),
        )

    @property
    def healthy(self) -> bool:
        """Every watch is heard, so that memory is not old."""
        reflectors = self._reflectors()
        heard = self.silence_s() < MAX_SILENCE_S and not any(r.problem for r in reflectors)
        return heard and all(watch.healthy for watch in self._objects)

    @property
    def losses(self) -> int:
        """Times that a watch had lost something."""
        lost = sum(reflector.losses for reflector in self._reflectors())
        return lost + sum(watch.losses for watch in self._objects)

    def silence_s(self) -> float:
        """Seconds since the quietest watch was heard."""
        reflectors = self._reflectors()
        heard = [reflector.heard_at for reflector in reflectors]
        return time.monotonic() - min(*heard, *(watch.heard_at() for watch in self._objects))

    async def run(self) -> None:
        """Watch until cancelled, once :attr:`begin` is set."""
        await self.begin.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(self._nodes, self._node))
            group.create_task(
                self._follow(self._pods, self._pod, self._broken_pod, before=self._bulky.read)
            )
            group.create_task(self._follow(self._namespaces, self._namespace))
            group.create_task(self._follow(self._nominated, self._nominee))
            group.create_task(self._follow(self._budgets, self._budget))
            for watch in self._objects:
                group.create_task(watch.run())
                if watch.kind.label_keys is None:  # workloads are many, and only rank nodes
                    group.create_task(watch.recheck())
            for reflector in (self._nodes, self._pods):  # what capacity hangs on
                group.create_task(reflector.recheck())

    def _one_synced(self) -> None:
        self._unsynced -= 1
        if not self._unsynced:
            self.synced.set()

    async def _follow(
        self,
        reflector: Reflector,  # type: ignore[type-arg]
        take: Callable[[Event], None],  # type: ignore[type-arg]
        unreadable: Callable[[Event], None] | None = None,  # type: ignore[type-arg]
        *,
        before: Callable[[list[Event]], Awaitable[None]] | None = None,  # type: ignore[type-arg]
    ) -> None:
        first = True
        async for batch in reflector.run():
            if before is not None:
                await before(batch)
            for event in batch:
                if event.kind is EventKind.SYNCED:
                    self.pods_listed += reflector is self._pods
                    if reflector is self._nominated:
                        self._machine.preemptions.nominees_listed(event.resource_version)
                    if first:
                        first = False
                        self._one_synced()
                elif event.kind is EventKind.UNREADABLE:
                    logger.warning("%s %s: %s", event.namespace, event.name, event.problem)
                    if unreadable is not None:
                        unreadable(event)
                else:
                    take(event)
            self.changed()

    def _node(self, event: Event[Node]) -> None:
        machine = self._machine
        if event.kind is EventKind.DELETED:
            orphans = machine.node_gone(event.uid)
        else:
            assert event.new is not None
            try:
                orphans = machine.node_seen(node_row_of(event.new))
            except OperatorError as error:
                logger.warning("node %s takes no pods: %s", event.name, error)
                orphans = machine.node_gone(event.uid)
        for binding in orphans:
            self.resolve(binding)

    def _pod(self, event: Event[Pod]) -> None:
        pod, uid = event.new, event.uid
        if event.kind is EventKind.DELETED or pod is None or pod.ended:
            if self.unstarted and pod and unstarted(pod) and uid in self._machine.bindings:
                self.unstarted(event.namespace, event.name, uid)
            self._pod_gone(uid)
            return
        node_name = pod.spec.node_name or ""
        if not node_name:
            return
        if self.bound_names is not None:
            self.bound_names[uid] = (event.namespace, event.name)
        shape: Shape | None = None
        if self._machine.needs_shape(uid, node_name):
            try:
                shape = self._bulky.shape_of(event, pod)
            except OperatorError as error:
                logger.warning("pod %s/%s: %s", event.namespace, event.name, error)
                self._machine.book.pod_unreadable(uid, node_name=node_name)
                return
        self._machine.book.pod_readable(uid)
        self._machine.pod_seen(uid, node_name=node_name, shape=shape, facts=self._facts(pod))

    def _broken_pod(self, event: Event[Pod]) -> None:
        """A pod on a node that cannot be decoded: what was known of it stands, and as long as it
        is there its node takes nothing more. Nothing but a node's name is read of it."""
        try:
            node_name = msgspec.json.decode(event.raw, type=_Somewhere).spec.node_name
        except (msgspec.DecodeError, RecursionError):
            node_name = ""
        if node_name:
            self._machine.book.pod_unreadable(event.uid, node_name=node_name)
        else:
            logger.error("pod %s/%s: its node is not known", event.namespace, event.name)

    def _facts(self, pod: Pod) -> PodFacts:
        meta = pod.metadata
        labels = tuple(sorted(meta.labels.items())) if meta.labels else ()
        shared = self._label_sets.setdefault(labels, labels)
        if len(self._label_sets) > LABEL_SETS:
            self._label_sets.clear()
        start_s = seconds_of(pod.status.start_time)
        return PodFacts(meta.namespace, meta.name, start_s, flags_of(pod), shared)

    def _pod_gone(self, uid: str) -> None:
        self._machine.book.pod_readable(uid)
        self._machine.pod_gone(uid)
        if self.bound_names is not None:
            self.bound_names.pop(uid, None)

    def _nominee(self, event: Event[Pod]) -> None:
        pod, uid, version = event.new, event.uid, event.resource_version
        if event.kind is EventKind.DELETED or pod is None or pod.leaving:
            self._machine.preemptions.nominee_gone(uid, version=version)
            return
        try:
            keys = self._machine.cluster.label_keys
            shape = self._maker.shape_of(pod, label_keys=keys, placed=True)
        except OperatorError as error:
            logger.warning("nominated pod %s/%s: %s", event.namespace, event.name, error)
            return
        self._machine.preemptions.nominee_seen(
            uid,
            name=(event.namespace, event.name),
            version=version,
            node=pod.status.nominated_node_name or "",
            shape=shape,
        )

    def _budget(self, event: Event[PodDisruptionBudget]) -> None:
        if event.kind is EventKind.DELETED or event.new is None:
            self._machine.budgets.gone(f"{event.namespace}/{event.name}")
        else:
            self._machine.budgets.seen(event.new)

    def _namespace(self, event: Event[Namespace]) -> None:
        if event.kind is EventKind.DELETED:
            self._machine.cluster.namespace_gone(event.name)
        elif event.new is not None:
            labels = event.new.metadata.labels or {}
            self._machine.cluster.namespace_seen(event.name, labels)
