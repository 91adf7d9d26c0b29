"""A Binder's brain beside a ledger twin and an API server in memory, driven step by step.

The API server follows the answers of a real one (reliability §2.4a): a bind is a compare-and-swap
on uid and resourceVersion, does not look whether the node exists, and may be carried out although
its sender never hears of it, at once or much later. The watch is a queue that the test delivers
from.
"""

from __future__ import annotations

import dataclasses
import enum
from collections import deque
from dataclasses import dataclass, field

from binder.bindings import Action, ActionKind, Binding, Read, Stage
from binder.effects import Effects
from binder.machine import Machine
from binder.placed import PodFacts
from binder.pod_labels import Labels
from binder.proposals import Batch, Incoming, Settled
from stretto.ledger.twin import LedgerTwin
from stretto.ledger.types import LedgerOp, ReserveReply
from stretto.model.shape import Shape
from stretto.model.unit import (
    Attempt,
    Member,
    Outcome,
    PodUid,
    Proposal,
    Unit,
    UnitId,
    Verdict,
)
from stretto.placement.profiles import Profiles
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import NodeRow, Taint

EPOCH = 7
DISPATCHER = 3


def shape_of(cpu: int = 1000, *, priority: int = 0, **fields: object) -> Shape:
    """A shape that asks for some cpu (milli)."""
    return Shape(
        profile="stretto",
        namespace="default",
        priority=priority,
        requests=(("cpu", cpu),),
        nonzero_cpu_milli=cpu,
        nonzero_memory=200 << 20,
        score_requests=(cpu, 0),
        **fields,  # type: ignore[arg-type]
    )


def node_of(
    name: str,
    *,
    uid: str = "",
    cpu: int = 4000,
    pods: int = 10,
    taints: tuple[Taint, ...] = (),
    labels: Labels = (),
    unschedulable: bool = False,
) -> NodeRow:
    """A node with some room."""
    room = (("cpu", cpu), ("pods", pods))
    return NodeRow(
        name=name,
        uid=uid or f"{name}-uid",
        allocatable=room,
        taints=taints,
        labels=labels,
        unschedulable=unschedulable,
    )


@dataclass
class ApiPod:
    """A pod object of the API server."""

    uid: str
    name: str
    version: int
    shape: Shape
    node: str = ""
    foreign: bool = False
    labels: Labels = ()
    """All of them; the shape has those under its label keys."""


class Fate(enum.Enum):
    """What becomes of a request."""

    DONE = 1
    LOST_REPLY = 2
    """Carried out; the answer does not arrive."""
    LOST_REQUEST = 3
    """Not carried out, and nobody tells."""
    LATE = 4
    """As LOST_REQUEST for the sender; carried out when the test says so."""
    NOT_SENT = 5
    """The connection could not be opened."""


@dataclass
class Post:
    """A bind on its way."""

    uid: str
    name: str
    version: int
    node: str


@dataclass
class Api:
    """The API server's pods, and what the watch of bound pods has yet to tell."""

    pods: dict[str, ApiPod] = field(default_factory=dict)
    """By name."""
    version: int = 100
    watch: deque[tuple[str, ApiPod]] = field(default_factory=deque)
    """("seen" or "gone", the pod as it was then)."""
    late: list[Post] = field(default_factory=list)
    binds: dict[str, list[str]] = field(default_factory=dict)
    """Uid → nodes of its successful binds."""
    made: int = 0

    def create(self, name: str, shape: Shape, *, labels: Labels | None = None) -> ApiPod:
        """A new pending pod."""
        assert name not in self.pods
        self.made += 1
        self.version += 1
        labels = shape.labels if labels is None else labels
        pod = self.pods[name] = ApiPod(f"u{self.made}", name, self.version, shape, labels=labels)
        return pod

    def touch(self, pod: ApiPod, shape: Shape | None = None) -> None:
        """Somebody changes the pod."""
        self.version += 1
        pod.version = self.version
        if shape is not None:
            pod.labels = shape.labels if pod.labels == pod.shape.labels else pod.labels
            pod.shape = shape
        if pod.node:
            self._tell("seen", pod)

    def delete(self, pod: ApiPod) -> None:
        """The pod is removed."""
        del self.pods[pod.name]
        if pod.node:
            self._tell("gone", pod)

    def _tell(self, what: str, pod: ApiPod) -> None:
        self.watch.append((what, dataclasses.replace(pod)))

    def bind(self, post: Post) -> int:
        """The status that the request is answered with."""
        pod = self.pods.get(post.name)
        if pod is None:
            return 404
        if pod.uid != post.uid or pod.version != post.version or pod.node:
            return 409
        self.put(pod, post.node)
        self.binds.setdefault(pod.uid, []).append(post.node)
        return 201

    def put(self, pod: ApiPod, node: str, *, foreign: bool = False) -> None:
        """The pod gets its node."""
        self.version += 1
        pod.version, pod.node, pod.foreign = self.version, node, foreign
        self._tell("seen", pod)

    def read(self, name: str, shape: Shape) -> Read:
        """A consistent read."""
        pod = self.pods.get(name)
        if pod is None:
            return Read(found=False)
        same = pod.shape.digest == shape.digest
        return Read(True, pod.uid, pod.node, pod.version, same_shape=same)

    def fence(self, name: str, uid: str, version: int) -> tuple[int, int]:
        """(status, version after it) of the fencing patch."""
        pod = self.pods.get(name)
        if pod is None:
            return 404, 0
        if pod.uid != uid:
            return 422, 0
        if pod.version != version:
            return 409, 0
        self.version += 1
        pod.version = self.version
        if pod.node:
            self._tell("seen", pod)
        return 200, pod.version


class World:
    """See the module docstring."""

    def __init__(self, profiles: Profiles | None = None) -> None:
        profiles = profiles or Profiles.default(("stretto",))
        self.machine = Machine(epoch=EPOCH, profiles=profiles)
        self.machine.subscribed(DISPATCHER)
        self.twin = LedgerTwin()
        self.twin.install(EPOCH)
        self.api = Api()
        self.todo: dict[str, Action] = {}
        """What the shell has to do next for a pod; only what is not NOTHING."""
        self.rebases: dict[str, int] = {}
        self.verdicts: list[Verdict] = []
        self.proposed: list[Incoming] = []
        self.follower = Snapshot()
        self.follower_deltas = 0
        self.batch: Batch | None = None
        self.replies: list[ReserveReply] = []
        self.attempts = 0

    # ------------------------------------------------------------------------------------ cluster
    def node(self, name: str, **options: object) -> NodeRow:
        """The watch shows a node."""
        row = node_of(name, **options)  # type: ignore[arg-type]
        self.resolve(self.machine.node_seen(row))
        return row

    def drop_node(self, uid: str) -> None:
        """The watch shows that a node is gone."""
        self.resolve(self.machine.node_gone(uid))

    def resolve(self, bindings: list[Binding]) -> None:
        """As the shell: what has not been sent is looked at, not sent."""
        for binding in bindings:
            self.follow(binding, binding.withdraw())

    def id_of(self, name: str) -> int:
        """The log's number of a node."""
        cluster = self.machine.cluster
        return cluster.nodes[cluster.node_uid_of(name)].node_id

    # ----------------------------------------------------------------------------------- proposing
    def incoming(
        self,
        *pods: ApiPod,
        nodes: tuple[str, ...],
        spares: tuple[str, ...] = (),
        attempt: Attempt | None = None,
        unit_id: str = "",
        epoch: int = EPOCH,
        shapes: tuple[Shape, ...] = (),
    ) -> Incoming:
        """A shard's proposal for a unit of these pods."""
        if attempt is None:
            self.attempts += 1
            attempt = Attempt(DISPATCHER, self.attempts)
        members = tuple(Member(PodUid(p.uid), "default", p.name, p.version, 1) for p in pods)
        unit = Unit(UnitId(unit_id or pods[0].uid), attempt, members)
        proposal = Proposal(unit, tuple(map(self.id_of, nodes)), tuple(map(self.id_of, spares)))
        return Incoming("shard-1", 1, epoch, proposal, shapes or tuple(p.shape for p in pods))

    def propose(self, *incoming: Incoming) -> list[Verdict]:
        """Proposals, one whole round of the committer, their verdicts."""
        before = len(self.verdicts)
        self.proposed += incoming
        self.begin()
        self.finish()
        return self.verdicts[before:]

    def begin(self) -> None:
        """The first half of a round: publish, write, check, call the ledger."""
        assert self.batch is None
        self.publish()
        self.write()
        taken, self.proposed = self.proposed, []
        self.batch = self.machine.take(taken)
        self.replies = self.twin.reserve(self.batch.units) if self.batch.units else []

    def finish(self) -> None:
        """The second half: the ledger's reply is here."""
        assert self.batch is not None
        self.conclude(self.machine.settle(self.batch, self.replies))
        self.batch = None

    def conclude(self, settled: Settled) -> None:
        """Publish, verdicts, binds."""
        self.publish()
        self.verdicts += [verdict for _, verdict in settled.verdicts]
        for reservation in settled.reservations:
            self.todo[reservation.member.uid] = Action(ActionKind.POST)
        self.publish()

    def round(self) -> None:
        """A round without proposals."""
        self.publish()
        self.write()

    def publish(self) -> Effects:
        """Close the open step; a follower applies it."""
        effects = self.machine.effects()
        for delta in effects.deltas:
            self.follower.apply(delta)
        return effects

    def write(self) -> None:
        """Write pending accounts and operations to the ledger."""
        accounts, removed = self.machine.book.accounts()
        if accounts or removed:
            self.twin.set_accounts(accounts, removed)
        ops = self.machine.book.take_ops()
        rebases, self.rebases = self.rebases, {}
        calls = [*ops, *(LedgerOp.rebase(uid, version) for uid, version in rebases.items())]
        if calls:
            replies = self.twin.transition(calls)
            for (uid, version), accepted in zip(rebases.items(), replies[len(ops) :], strict=True):
                binding = self.machine.bindings.get(uid)
                if binding is not None:
                    self.follow(binding, binding.rebased(version, accepted=accepted))

    # ------------------------------------------------------------------------------------- binding
    def follow(self, binding: Binding, action: Action) -> None:
        """Note what a binding wants next."""
        uid = binding.uid
        if action.kind is ActionKind.REBASE:
            self.rebases[uid] = action.resource_version
        elif action.kind is not ActionKind.NOTHING:
            self.todo[uid] = action
        self.machine.endings.stepped(binding)

    def act(self, uid: str, fate: Fate = Fate.DONE) -> None:
        """Carry out the next action for a pod."""
        action = self.todo.pop(uid)
        binding = self.machine.bindings.get(uid)
        if binding is None or binding.over:
            return
        if action.kind is ActionKind.POST:
            following = self._post(binding, fate)
        elif action.kind is ActionKind.READ:
            following = self._read(binding, fate)
        else:
            following = self._fence(binding, action, fate)
        self.follow(binding, following)

    def _post(self, binding: Binding, fate: Fate) -> Action:
        if binding.stage is Stage.RESERVED:
            first = binding.send()
            assert first.kind is ActionKind.POST
        reservation = binding.reservation
        if reservation.node_uid not in self.machine.cluster.nodes and not binding.unsure:
            binding.stage = Stage.RESERVED
            return binding.withdraw()
        member = reservation.member
        post = Post(binding.uid, member.name, binding.resource_version, reservation.node_name)
        entry = {e.pod_uid: e for e in self.twin.entries()}[binding.uid]
        assert entry.node_uid == reservation.node_uid, "a bind without its entry"
        assert entry.resource_version == post.version, "a version the ledger does not know"
        if fate is Fate.NOT_SENT:
            return binding.not_sent()
        if fate is Fate.LATE:
            self.api.late.append(post)
            return binding.unknown()
        if fate is Fate.LOST_REQUEST:
            return binding.unknown()
        status = self.api.bind(post)
        if fate is Fate.LOST_REPLY:
            return binding.unknown()
        return {201: binding.posted, 404: binding.not_found, 409: binding.conflict}[status]()

    def _read(self, binding: Binding, fate: Fate) -> Action:
        if fate is not Fate.DONE:
            return binding.read(None)
        member = binding.reservation.member
        return binding.read(self.api.read(member.name, binding.reservation.shape))

    def _fence(self, binding: Binding, action: Action, fate: Fate) -> Action:
        member = binding.reservation.member
        if fate in (Fate.NOT_SENT, Fate.LOST_REQUEST, Fate.LATE):
            return binding.fence_failed(gone=False)
        status, version = self.api.fence(member.name, binding.uid, action.resource_version)
        if fate is Fate.LOST_REPLY:
            return binding.fence_failed(gone=False)
        if status == 200:
            return binding.fenced(version)
        return binding.fence_failed(gone=status in (404, 422))

    def deliver_late(self, index: int = 0) -> int:
        """A bind that had been held back reaches the API server."""
        return self.api.bind(self.api.late.pop(index))

    def deliver(self, count: int = 1) -> None:
        """The watch tells of the next changes."""
        for _ in range(min(count, len(self.api.watch))):
            what, pod = self.api.watch.popleft()
            if what == "gone":
                self.machine.pod_gone(pod.uid)
            else:
                whole = self.machine.needs_shape(pod.uid, pod.node)
                shape = pod.shape if whole else None
                facts = PodFacts("default", pod.name, labels=pod.labels)
                self.machine.pod_seen(pod.uid, node_name=pod.node, shape=shape, facts=facts)

    def bound(self, pod: ApiPod, node: str) -> None:
        """Propose, commit, bind, see it."""
        self.propose(self.incoming(pod, nodes=(node,)))
        self.act(pod.uid)
        self.deliver(99)
        self.round()

    # ------------------------------------------------------------------------------------- looking
    def outcomes(self) -> list[Outcome]:
        """Every outcome that is not acknowledged."""
        self.publish()
        return self.machine.outcomes.after(0, limit=10_000)[1]

    def stage(self, pod: ApiPod) -> Stage | None:
        """Where a pod's reservation is; None: it holds none."""
        binding = self.machine.bindings.get(pod.uid)
        return None if binding is None else binding.stage

    def used(self, name: str) -> dict[str, int]:
        """What the ledger says entries use on a node."""
        return self.twin.sums()[self.machine.cluster.node_uid_of(name)]

    def check(self) -> None:
        """What must hold at any time."""
        self.machine.validate()
        self.twin.validate()

    def settle_all(self, limit: int = 200) -> None:
        """Faults have stopped: go on until nothing is left to do."""
        if self.batch is not None:
            self.finish()
        for _ in range(limit):
            while self.api.late:
                self.deliver_late()
            self.deliver(99)
            self.round()
            if not (self.todo or self.rebases or self.api.watch or self.proposed):
                break
            if self.proposed:
                self.begin()
                self.finish()
            for uid in list(self.todo):
                self.act(uid)
        else:
            raise AssertionError("never comes to rest")
        self.round()

    def check_at_rest(self) -> None:
        """Ledger = projection of the API; nothing is left over (reliability I24)."""
        self.check()
        names = self.machine.cluster.node_uid_of
        live = {pod.uid: names(pod.node) for pod in self.api.pods.values() if pod.node}
        placed = {uid: row.node_uid for uid, row in self.machine.cluster.pods.items()}
        assert placed == {uid: node for uid, node in live.items() if node}
        entries = {entry.pod_uid: entry for entry in self.twin.entries()}
        assert set(entries) == set(self.machine.bindings)
        for uid, binding in self.machine.bindings.items():
            assert binding.stage is Stage.BOUND, f"{uid} is left at {binding.stage.name}"
            assert uid in live
        assert self.follower.version.sequence == self.machine.cluster.sequence
