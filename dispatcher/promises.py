"""What admitted Jobs are promised, and how a promise turns into the charges of pods.

A Job that runs is promised room for all members that run at once. A member that is in flight, or
that the Binder's log shows on a node, is charged as every pod is, so the promise is for the others:

    promise = count of the Job - its pods that are charged

A pod that leaves its node gives its room back to its Job, until the Job needs less: a pod that
fails is replaced, and nobody else is let in between. All follows from the API alone: after a
restart the pods that were on nodes before are known by the Job's ``status.active`` only.

A promise *lapses* for members whose pods do not appear: their room is for others. When such a pod
does come it waits as one that was promised nothing, and once it is charged its room is its Job's.
Jobs are known by :func:`stretto.model.jobs.owner_key`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from stretto.model.shape import Shape
from stretto.quota.view import QuotaView

HERE = 1
"""A pod without a node that the watch shows."""
OUT = 2
"""It is with a shard or the Binder, and counted as in flight."""
PLACED = 4
"""The Binder's log shows it on a node."""
LEFT = 8
"""The log has shown it leave its node."""
BOUND = 16
"""The watch has shown it bound; the log may not yet, and then its room is promised still."""
CHARGED = OUT | PLACED


class _Pods:
    """The pods of one owner."""

    __slots__ = ("came", "charged", "flags")

    def __init__(self) -> None:
        self.flags: dict[str, int] = {}
        self.came = 0
        """So many have appeared."""
        self.charged = 0


class _Promise:
    """Of one Job."""

    __slots__ = ("active", "count", "elders", "known", "lapsed", "shape", "told")

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.count = 0
        self.active = 0
        self.elders = 0
        """Pods it had when it was first seen, at most; they are known by number only."""
        self.known = 0
        """Of ``active``, the pods that are known by name, at most: one that has gone since is in
        that number until the Job is seen again, and no elder takes its place there."""
        self.lapsed = 0
        """Members that are promised nothing any more, as no pod of theirs appeared."""
        self.told = 0
        """Members that the view has been told of."""


_NO_PODS = _Pods()


class Promises:
    """See the module docstring."""

    def __init__(self) -> None:
        self._view: QuotaView | None = None
        self._owner: dict[str, str] = {}
        """Pod → the Job that made it."""
        self._pods: dict[str, _Pods] = {}
        self._promises: dict[str, _Promise] = {}
        self._waiting: dict[tuple[str, str], dict[str, None]] = {}
        """(namespace, queue label) → pods there that are not charged, of Jobs with a promise."""
        self.version = 0
        """Grows with each change of what is promised."""
        self.shrunk = False
        """A promise has become smaller without a pod that took its place."""

    def counted_in(self, view: QuotaView) -> None:
        """All that is promised is told to this view, which has been told nothing yet."""
        self._view = view if view.on else None
        for job, promise in self._promises.items():
            promise.told = 0
            self._tell(job)

    # ---------------------------------------------------------------------------------------- Jobs
    def promise(
        self, job: str, shape: Shape, *, count: int, active: int, new: bool = False
    ) -> None:
        """A Job runs ``count`` members at once and has ``active`` pods; ``new``: it has none that
        are on nodes already."""
        found = self._promises.get(job)
        if found is None or found.shape != shape:
            elders = found.elders if found is not None else 0 if new else active
            self.drop(job)
            found = self._promises[job] = _Promise(shape)
            found.elders = elders
            self._line_up(job)
            self.shrunk |= job in self._pods  # they may have been refused, and are not any more
        known = len(self._pods.get(job, _NO_PODS).flags)
        if (found.count, found.active, found.known) != (count, active, known):
            found.count, found.active, found.known = count, active, known
            self._tell(job)

    def drop(self, job: str) -> None:
        """A Job is promised nothing (any more)."""
        if (found := self._promises.get(job)) is not None:
            found.count = 0
            self._tell(job)
            del self._promises[job]
            for uid in self._pods.get(job, _NO_PODS).flags:
                self._wait(found, uid, waits=False)

    def lapse(self, job: str) -> None:
        """Members without a pod are promised nothing any more."""
        self._promises[job].lapsed += self.to_come(job)
        self._tell(job)

    def lapsed(self, job: str) -> int:
        """Members that lost their promise, and have no pod that is charged."""
        promise = self._promises.get(job)
        return promise.lapsed if promise is not None else 0

    def came(self, job: str) -> int:
        """Another number when another pod of a Job has appeared."""
        return self._pods.get(job, _NO_PODS).came

    def forget(self, job: str) -> None:
        """A Job is gone; its pods are nobody's."""
        self.drop(job)
        for uid, flags in list(self._pods.get(job, _NO_PODS).flags.items()):
            if not flags & HERE:
                self._set(uid, 0)

    def __bool__(self) -> bool:
        return bool(self._promises)

    def has(self, uid: str) -> bool:
        """Whether a pod that is not charged yet is one of those that were promised room."""
        job = self._owner.get(uid)
        return job in self._promises and not self._flags(uid) & CHARGED and self.amount(job) > 0

    def keeps(self, uid: str) -> bool:
        """Whether the room of a pod is its Job's when it is not charged, see :data:`BOUND`."""
        return self._owner.get(uid) in self._promises

    def amount(self, job: str) -> int:
        """Members that a Job is promised beside the pods that are charged."""
        promise = self._promises.get(job)
        if promise is None:
            return 0
        return max(0, self._uncharged(job, promise) - promise.lapsed)

    def _uncharged(self, job: str, promise: _Promise) -> int:
        """Members whose pods are not charged, or not there."""
        pods = self._pods.get(job, _NO_PODS)
        elders = min(promise.elders, max(0, promise.active - promise.known))
        return max(0, promise.count - pods.charged - elders)

    def waiting_in(self, shape: Shape) -> Collection[str]:
        """Pods that are not charged, in the namespace and queue of a shape, whose Job has a
        promise."""
        return self._waiting.get((shape.namespace, shape.queue), ())

    def to_come(self, job: str) -> int:
        """Members of the promise that have no pod yet."""
        pods = self._pods.get(job, _NO_PODS)
        return max(0, self.amount(job) - (len(pods.flags) - pods.charged))

    def _tell(self, job: str) -> None:
        promise = self._promises.get(job)
        if promise is None:
            return
        # A member that is charged after all has its room again: its Job's, if it fails.
        promise.lapsed = min(promise.lapsed, self._uncharged(job, promise))
        now = self.amount(job)
        if now != promise.told:
            self.version += 1
            if self._view is not None:
                self._view.promise(promise.shape, now - promise.told)
            self.shrunk |= now < promise.told
            promise.told = now

    # ---------------------------------------------------------------------------------------- pods
    def pod_seen(self, uid: str, job: str) -> None:
        """A pod without a node that this Job has made."""
        if uid not in self._owner:
            self._owner[uid] = job
            self._set(uid, HERE)
            self._pods[job].came += 1

    def out(self, uid: str) -> None:
        """A pod is about to be counted as in flight."""
        if uid in self._owner:
            shrunk = self.shrunk
            self._set(uid, self._flags(uid) | OUT)
            self.shrunk = shrunk  # the pod takes what was promised

    def back(self, uid: str) -> None:
        """A pod is in flight no longer."""
        if uid in self._owner:
            self._set(uid, self._flags(uid) & ~OUT)

    def bound(self, uid: str) -> None:
        """The watch says that a pod was bound."""
        if uid in self._owner and not (flags := self._flags(uid)) & LEFT:
            self._set(uid, flags | BOUND)

    def pod_left(self, uid: str) -> None:
        """A pod has left the watch of those without a node."""
        if uid in self._owner:
            self._set(uid, self._flags(uid) & ~(HERE | OUT))

    def log(self, uids: Sequence[str], signs: Iterable[int]) -> None:
        """A step of the Binder's log: pods that came to nodes and left them."""
        if not self._owner:
            return
        for uid, sign in zip(uids, signs, strict=False):
            if not sign or uid not in self._owner:
                continue
            flags = self._flags(uid)
            # What loses its reservation is charged nowhere, though its outcome is still to come.
            now = (flags | PLACED) & ~LEFT if sign > 0 else (flags | LEFT) & ~(CHARGED | BOUND)
            self._set(uid, now)

    def followed(self, uids: Iterable[str]) -> set[str]:
        """Those of the pods that some Job has made."""
        return {uid for uid in uids if uid in self._owner}

    def log_anew(self, placed: set[str]) -> None:
        """The log was read anew: of the pods that are followed it shows these on nodes."""
        for uid in list(self._owner):
            flags = self._flags(uid)
            self._set(uid, flags | PLACED if uid in placed else flags & ~PLACED)

    def _flags(self, uid: str) -> int:
        return self._pods[self._owner[uid]].flags.get(uid, 0)

    def _set(self, uid: str, flags: int) -> None:
        job = self._owner[uid]
        pods = self._pods.setdefault(job, _Pods())
        before = pods.flags.get(uid, 0)
        pods.charged += bool(flags & CHARGED) - bool(before & CHARGED)
        known = job in self._promises
        if flags & HERE or (flags & (CHARGED | BOUND) and known):
            pods.flags[uid] = flags
        else:
            pods.charged -= bool(flags & CHARGED)
            pods.flags.pop(uid, None)
            del self._owner[uid]
            if not pods.flags:
                del self._pods[job]
        if known:
            promise = self._promises[job]
            promise.known = max(promise.known, len(pods.flags))
            self._wait(promise, uid, waits=uid in pods.flags and not flags & CHARGED)
            self._tell(job)

    def _line_up(self, job: str) -> None:
        """The pods of a Job that is promised something now are found by their queue."""
        for uid, flags in self._pods.get(job, _NO_PODS).flags.items():
            self._wait(self._promises[job], uid, waits=not flags & CHARGED)

    def _wait(self, promise: _Promise, uid: str, *, waits: bool) -> None:
        key = promise.shape.namespace, promise.shape.queue
        there = self._waiting.setdefault(key, {})
        if waits:
            there[uid] = None
        else:
            there.pop(uid, None)
        if not there:
            del self._waiting[key]

    def validate(self) -> None:
        """Check that sums and entries agree."""
        for job, pods in self._pods.items():
            charged = sum(bool(flags & CHARGED) for flags in pods.flags.values())
            assert pods.charged == charged, f"{job}: {pods.charged} charged, {charged} are"
            assert all(self._owner.get(uid) == job for uid in pods.flags)
        assert len(self._owner) == sum(len(pods.flags) for pods in self._pods.values())
        waiting = {uid for there in self._waiting.values() for uid in there}
        assert len(waiting) == sum(map(len, self._waiting.values())), "a pod waits twice"
        for job, promise in self._promises.items():
            assert promise.told == self.amount(job), f"{job} is promised {promise.told}"
            assert 0 <= promise.lapsed <= promise.count, f"{job}: {promise.lapsed} have lapsed"
            for uid, flags in self._pods.get(job, _NO_PODS).flags.items():
                assert (uid in waiting) == (not flags & CHARGED), f"{uid} of {job} is not found"
                waiting.discard(uid)
        assert not waiting, f"{waiting} wait for nothing"
