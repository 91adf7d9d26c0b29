"""A cluster of a few nodes on which pods of queues come, run, are reclaimed and come again.

The parts are the real ones: the Binder's cluster with its book, the snapshot with its view, the
kernel with its preemption. What stands in is the way between them: a minute is a step, whoever
waits is decided in the order of the queues, and victims are gone in the next minute.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from binder.cluster import Cluster
from binder.placed import PodFacts
from stretto.model.quantity import MAX_AMOUNT
from stretto.model.shape import Shape
from stretto.model.unit import Version
from stretto.placement.kernel import Kernel
from stretto.placement.profiles import Profiles
from stretto.quota.accounts import NO_LEVEL, Accounts
from stretto.quota.rows import QUEUE, QUOTA_API, QueueRow, asked, encode_quota
from stretto.quota.tree import QueueNode
from stretto.quota.view import level_of
from stretto.snapshot.delta import NodeRow
from stretto.snapshot.pod_records import PREEMPTED


def shape_of(queue: str, cpu: int, *, priority: int = 0) -> Shape:
    """A pod of a queue."""
    return Shape(
        profile="stretto",
        namespace="default",
        priority=priority,
        requests=(("cpu", cpu),),
        nonzero_cpu_milli=cpu,
        score_requests=(cpu, 0),
        queue=queue,
    )


@dataclass
class Market:
    """See the module docstring."""

    rng: random.Random
    nodes: int = 3
    node_cpu: int = 8000
    minute: int = 0
    waiting: dict[str, Shape] = field(default_factory=dict)
    running: dict[str, Shape] = field(default_factory=dict)
    leaving: list[str] = field(default_factory=list)
    evicted: list[tuple[int, str, str]] = field(default_factory=list)
    """(minute, victim, for whom)."""
    made: int = 0

    def __post_init__(self) -> None:
        self.cluster = Cluster(epoch=1)
        self.cluster.api_served(QUOTA_API)
        for number in range(self.nodes):
            room = (("cpu", self.node_cpu), ("pods", 110))
            name = f"n{number}"
            self.cluster.node_seen(NodeRow(name=name, uid=f"{name}-uid", allocatable=room))
        self.cluster.flush()
        self.kernel = Kernel(self.cluster.snapshot, Profiles.default(("stretto",)))

    def queue(self, name: str, row: QueueRow | None) -> None:
        """A queue is written, or deleted."""
        self.cluster.object_seen(QUEUE, name, None if row is None else encode_quota(row))
        self.cluster.flush()

    def create(self, shape: Shape) -> str:
        """A pod comes."""
        self.made += 1
        uid = f"u{self.made}"
        self.waiting[uid] = shape
        return uid

    def end(self, uid: str) -> None:
        """A pod has ended."""
        del self.running[uid]
        self.cluster.remove(uid)
        self.cluster.denominate(uid)
        self.cluster.forget(uid)
        self.cluster.flush()

    def step(self) -> None:
        """A minute passes."""
        self.minute += 1
        self.cluster.quota.tick(self.minute * 60)
        for uid in self.leaving:
            shape = self.running[uid]
            self.end(uid)
            self.create(shape)  # its controller makes it anew
        self.leaving = []
        self.cluster.flush()
        hopeless: set[bytes] = set()
        for uid in sorted(self.waiting, key=self._turn):
            shape = self.waiting[uid]
            if shape.digest not in hopeless and not self._decide(uid, shape):
                hopeless.add(shape.digest)
        self.check()

    def _turn(self, uid: str) -> tuple[bool, float, int, int]:
        quota = self.cluster.snapshot.quota
        shape = self.waiting[uid]
        queue, level = quota.standing(shape)
        share = 0.0 if queue is None else quota.accounts.share(queue, {"cpu": 1000})
        return level == NO_LEVEL, share, -shape.priority, int(uid[1:])

    def _decide(self, uid: str, shape: Shape) -> bool:
        snapshot = self.cluster.snapshot
        nominated = self.cluster.nominated.get(uid)
        wanted = shape
        if nominated is not None:
            wanted = Shape(
                **{f: getattr(shape, f) for f in shape.__struct_fields__}
                | {"nominated_node": nominated[0]}
            )
        rows = self.kernel.place(wanted, 1, seed=self.rng.getrandbits(32)).rows
        if rows:
            snapshot.remove_pod(wanted, rows[0])
            self.cluster.describe(uid, PodFacts("default", uid))
            self.cluster.place(uid, shape=shape, node_uid=snapshot.node_uid[rows[0]])
            self.cluster.denominate(uid)
            self.cluster.flush()
            self.running[uid] = self.waiting.pop(uid)
            return True
        found = self.kernel.post_filter(wanted, seed=self.rng.getrandbits(32))
        if found.victims and found.nominate:
            for victim in found.victims:
                if victim not in self.leaving:
                    self.leaving.append(victim)
                    self.evicted.append((self.minute, victim, uid))
                self.cluster.mark(victim, flags=PREEMPTED)
            self.cluster.nominate(uid, node=found.nominate, shape=shape)
            self.cluster.flush()
            return True
        return False

    # ------------------------------------------------------------------------------------- judging
    def used(self) -> Accounts:
        """What queues have used, added up from the pods."""
        quota, found = self.cluster.snapshot.quota, Accounts()
        for shape in self.running.values():
            queue = quota.assigned(shape).queue
            if queue is not None:
                found.use(queue, asked(shape))
        return found

    def check(self) -> None:
        """No queue is over its limit; the log says what is so."""
        quota, used = self.cluster.snapshot.quota, self.used()
        for node in quota.tree:
            sums = used.of(node).used
            assert dict(quota.usage_of(node.name).used) == sums, f"{node!r}: the log is wrong"
            for name, most in node.limit.items():
                assert sums.get(name, 0) <= most, f"{node!r} overspends {name}"
            for name, held in quota.usage_of(node.name).held:
                assert held <= most_held(node, name), f"{node!r} holds too much {name}"
        self.cluster.quota.validate()
        assert self.cluster.snapshot.version == Version(1, self.cluster.sequence)

    def guaranteed(self, uid: str) -> int:
        """The level at which a running pod is guaranteed."""
        return level_of(self.cluster.quota.flags_of(uid))


def most_held(node: QueueNode, name: str) -> int:
    """What may be held at a queue: its own guarantee beside those below it."""
    own = node.guaranteed.get(name, MAX_AMOUNT if name == "pods" else 0)
    return own + sum(most_held(child, name) for child in node.children)
