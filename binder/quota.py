"""What every queue has used: the Binder's book, of which the log shows the sums.

A pod counts from its reservation (or from when it is seen bound, whoever bound it) until it is
gone. The cluster *touches* a pod whenever something about it changes; when a step of the log is
closed, the touched ones are looked at and what follows goes into that very step: sums of queues,
and flags of pods. So the usage at a version contains every commit up to it, exactly.

A pod's level (see :mod:`stretto.quota.accounts`) is found when it comes, oldest first, and only
rises, when a guarantee above it has room again.

When queues or namespaces change, pods are counted again whose way to the root is another one or
whose guarantee is not what it was, the oldest first; for all others the sums stand. Naive form:
count all pods anew. Its fault: with 100,000 of them the Binder stands still for seconds because
somebody has added a queue.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from binder.quota_hopes import Hopes, by_order
from binder.quota_pods import Counted, Placed, Source
from binder.quota_told import ToldSums
from stretto.quota.accounts import NO_LEVEL, Accounts
from stretto.quota.rows import QueueRow, UsageRow, asked
from stretto.quota.tree import QueueNode, Tree, covers_no_less, has_grown

AGES_SLACK = 64
"""Pods that went before they came of age and are still in the heap, beside as many as there are."""


class QuotaBook:
    """See the module docstring. ``placed`` tells of a pod, or that it is on no node; ``all_pods``
    names every pod that is on one."""

    def __init__(
        self, *, placed: Callable[[str], Placed | None], all_pods: Callable[[], Iterable[str]]
    ) -> None:
        self.on = False
        """The API of queues is served."""
        self._placed = placed
        self._all_pods = all_pods
        self._rows: dict[str, QueueRow] = {}
        self._namespaces: dict[str, str] = {}
        self._tree: Tree | None = None
        """None: nothing is counted yet."""
        self._changed = False
        """The tree is not of these rows and namespaces."""
        self._accounts = Accounts()
        self._sources: dict[tuple[str, str], Source] = {}
        self._pods: dict[str, Counted] = {}
        self._touched: dict[str, None] = {}
        self._hopes = Hopes()
        self._told = ToldSums()
        self._freed: set[str] = set()
        """Roots under which something that was guaranteed has ended."""
        self._flags: dict[str, int] = {}
        """By uid, what the log says."""
        self._ages: list[tuple[int, str]] = []
        """(when it has run for the minimum, uid)."""
        self._now_s = 0
        self._orders = 0

    # --------------------------------------------------------------------------------- what happens
    def served(self, served: bool) -> None:
        """Whether the API server serves queues."""
        self.on = served
        self._tree = None

    def queue(self, name: str, row: QueueRow | None) -> None:
        """A queue is so, or is gone."""
        before = self._rows.pop(name, None)
        if row is not None:
            self._rows[name] = row
        if before is None or row is None or before.asks != row.asks:
            self._changed = True

    def usage(self, name: str, row: UsageRow | None) -> None:
        """Nobody but the book itself says so."""

    def namespace(self, name: str, label: str) -> None:
        """A namespace has this queue label, or none ("")."""
        if self._namespaces.get(name, "") != label:
            self._namespaces[name] = label
            self._changed = True

    def touch(self, uid: str) -> None:
        """Something about a pod has changed."""
        self._touched[uid] = None

    def tick(self, now_s: int) -> bool:
        """It is so late (seconds since 1970); True if a pod has come of age."""
        self._now_s = now_s
        return bool(self._ages) and self._ages[0][0] <= now_s

    @property
    def pending(self) -> bool:
        """There is something to settle."""
        due = bool(self._ages) and self._ages[0][0] <= self._now_s
        counted = self._tree is not None and not self._changed
        return self.on and (due or not counted or bool(self._touched))

    @property
    def unaccounted(self) -> int:
        """Pods on nodes whose label, or that of their namespace, names no queue that is there,
        and that count nowhere."""
        return sum(
            len(source.pods)
            for source in self._sources.values()
            if source.queue is None and (source.label or self._namespaces.get(source.namespace))
        )

    def flags_of(self, uid: str) -> int:
        """What the log says of a pod beside the flags of the API."""
        return self._flags.get(uid, 0)

    # ------------------------------------------------------------------------------------- settling
    def settle(self) -> tuple[list[tuple[str, UsageRow | None]], list[str]]:
        """(queues whose usage changed, None for those that are gone; uids of placed pods whose
        flags changed) since the last call."""
        if self._tree is None:
            self._anew()
        elif self._changed:
            self._regroup(self._tree)
        self._changed = False
        touched, self._touched = self._touched, {}
        before = {uid: self._flags.get(uid, 0) for uid in touched}
        for uid in touched:
            self._look_at(uid)
        for counted in self._grown_up():
            before.setdefault(counted.uid, self._flags.get(counted.uid, 0))
        for counted in self._raised():
            before.setdefault(counted.uid, self._flags.get(counted.uid, 0))
        changed = []
        for uid, flags in before.items():
            found = self._pods.get(uid)
            now = found.flags if found is not None and found.source.queue is not None else 0
            if now:
                self._flags[uid] = now
            else:
                self._flags.pop(uid, None)
            if now != flags and self._placed(uid) is not None:
                changed.append(uid)
        assert self._tree is not None
        return self._told.changes(self._tree, self._accounts), changed

    def settled(self) -> None:
        """What was shown of flags is in the log; that is no news."""
        self._touched.clear()

    def _anew(self) -> None:
        """Nothing is counted yet: every pod is looked at, the oldest first."""
        self._tree = Tree(self._rows, self._namespaces)
        self._accounts = Accounts()
        old, self._pods = self._pods, {}
        self._ages, self._freed, self._sources = [], set(), {}
        self._hopes = Hopes()
        self._told.move_all(self._tree.nodes)
        names = list(self._all_pods())
        first = {uid: counted.order for uid, counted in old.items()}
        placed = {uid: self._placed(uid) for uid in names}
        starts = {uid: p.start_s or (1 << 40) for uid, p in placed.items() if p is not None}
        names.sort(key=lambda uid: (first.get(uid, 1 << 60), starts.get(uid, 0), uid))
        since = {uid: counted.since_s for uid, counted in old.items()}
        self._touched = dict.fromkeys([*names, *old, *self._touched])
        for uid in names:
            self._come(uid, placed[uid], since_s=since.get(uid, 0))

    def _regroup(self, old: Tree) -> None:
        """Other queues, or other namespaces: see the module docstring."""
        new = Tree(self._rows, self._namespaces)
        self._told.move_all(new.nodes)
        there = {key: new.charged(*key) for key in self._sources}
        again: dict[str, Counted] = {}
        for key, source in self._sources.items():
            queue = there[key]
            way = () if queue is None else tuple(each.name for each in queue.path)
            if way != source.way:
                again |= source.pods
            elif queue is not None:
                again |= self._shaken(source, queue)
        for counted in again.values():
            self._exit(counted)
        for key, source in self._sources.items():
            source.queue = there[key]
        self._tree = new
        self._accounts.keep(new.nodes)
        # A guarantee that is larger now may cover those that hoped for it.
        self._freed |= {n.name for n in new if not n.problem and n.root is n and has_grown(n, old)}
        for counted in sorted(again.values(), key=by_order):
            self._enter(counted)
            self._touched[counted.uid] = None
        self._hopes.sort({c.likes for c in again.values() if c.source.queue is not None})

    def _shaken(self, source: Source, new: QueueNode) -> dict[str, Counted]:
        """Pods whose way to the root is as it was: those of them whose guarantee is less than it
        was, or whose queue has another minimum to run."""
        was = source.queue
        assert was is not None
        if was.row.min_runtime_s != new.row.min_runtime_s:
            return source.pods
        less = {
            each.depth
            for each, before in zip(new.path, was.path, strict=True)
            if not covers_no_less(each, before)
        }
        return {uid: c for uid, c in source.pods.items() if c.level in less} if less else {}

    def _look_at(self, uid: str) -> None:
        placed, known = self._placed(uid), self._pods.get(uid)
        if placed is not None and known is not None:
            source, shape = known.source, placed.shape
            same = (source.namespace, source.label) == (shape.namespace, shape.queue)
            if same and asked(shape) == known.amounts:
                self._left(known, leaving=placed.leaving)
                return
        since_s = known.since_s if known is not None else 0
        if known is not None:
            self._go(known)
        self._come(uid, placed, since_s=since_s)

    def _come(self, uid: str, placed: Placed | None, *, since_s: int) -> None:
        if placed is None:
            return
        assert self._tree is not None
        assert uid not in self._pods, f"{uid} is counted twice"
        key = placed.shape.namespace, placed.shape.queue
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = Source(*key, self._tree.charged(*key))
        self._orders += 1
        counted = Counted(uid, source, asked(placed.shape), self._orders)
        counted.since_s = placed.start_s or since_s or self._now_s
        self._pods[uid] = source.pods[uid] = counted
        self._enter(counted)
        self._left(counted, leaving=placed.leaving)

    def _enter(self, counted: Counted) -> None:
        """Count a pod in its queue, if it is in one."""
        queue, amounts = counted.source.queue, counted.amounts
        if queue is None:
            return
        counted.level = self._accounts.level(queue, amounts)
        assert NO_LEVEL <= counted.level <= queue.depth, "a guarantee of no queue above it"
        self._accounts.use(queue, amounts)
        self._accounts.hold(queue, counted.level, amounts)
        if counted.leaving:
            self._accounts.leave(queue, amounts)
        self._hopes.add(counted)
        self._told.move(queue)
        due = counted.since_s + queue.row.min_runtime_s
        if due <= self._now_s:
            self._mark(counted, aged=True)
        else:
            heapq.heappush(self._ages, (due, counted.uid))
            if len(self._ages) > 2 * len(self._pods) + AGES_SLACK:
                self._ages = sorted({each for each in self._ages if self._awaited(*each)})

    def _awaited(self, due: int, uid: str) -> bool:
        """Whether a pod comes of age then; it may be gone, or have come of age."""
        counted = self._pods.get(uid)
        if counted is None or counted.aged or counted.source.queue is None:
            return False
        return counted.since_s + counted.queue.row.min_runtime_s == due

    def _go(self, counted: Counted) -> None:
        assert self._pods.get(counted.uid) is counted, f"{counted.uid} ends twice"
        self._left(counted, leaving=False)
        self._exit(counted)
        source = counted.source
        del self._pods[counted.uid], source.pods[counted.uid]
        if not source.pods:
            del self._sources[source.namespace, source.label]

    def _exit(self, counted: Counted) -> None:
        """Take a pod out of the sums of its queue, if it is in one."""
        queue, amounts = counted.source.queue, counted.amounts
        if queue is None:
            return
        self._mark(counted, aged=False)
        assert not counted.reclaimable, f"{counted.uid} is gone and may be reclaimed"
        self._accounts.use(queue, amounts, -1)
        self._accounts.hold(queue, counted.level, amounts, -1)
        if counted.leaving:
            self._accounts.leave(queue, amounts, -1)
        account = self._accounts.of(queue)
        assert all(n >= 0 for n in account.used.values()), f"{queue!r} uses less than nothing"
        assert all(n >= 0 for n in account.held.values()), f"{queue!r} holds less than nothing"
        if counted.level != NO_LEVEL:
            self._freed.add(queue.root.name)
        self._hopes.drop(counted)
        self._told.move(queue)
        counted.level = NO_LEVEL

    def _left(self, counted: Counted, *, leaving: bool) -> None:
        if counted.leaving != leaving:
            counted.leaving = leaving
            if counted.source.queue is None:
                return
            self._told.move(counted.queue)
            self._accounts.leave(counted.queue, counted.amounts, 1 if leaving else -1)

    def _mark(self, counted: Counted, *, aged: bool, level: int | None = None) -> None:
        """Its age, or its level, is another one: count it among those that may be reclaimed."""
        before = counted.reclaimable
        counted.aged = aged
        if level is not None:
            counted.level = level
        if counted.reclaimable != before:
            self._told.move(counted.queue)
            for each in counted.queue.path:
                account = self._accounts.of(each)
                account.aged += 1 if counted.reclaimable else -1
                assert account.aged >= 0, f"fewer than no pods of {each!r} have come of age"

    def _grown_up(self) -> list[Counted]:
        """Pods that have run for the minimum by now."""
        found = []
        while self._ages and self._ages[0][0] <= self._now_s:
            due, uid = heapq.heappop(self._ages)
            if self._awaited(due, uid):
                counted = self._pods[uid]
                assert not counted.aged, f"{uid} comes of age twice"
                self._mark(counted, aged=True)
                found.append(counted)
        return found

    def _raised(self) -> list[Counted]:
        """Pods that a guarantee has room for now."""
        freed, self._freed = self._freed, set()
        raised = self._hopes.fulfilled(freed, self._accounts)
        for counted, level in raised:
            assert level > counted.level, "a guarantee is taken away"
            self._hopes.drop(counted)
            self._mark(counted, aged=counted.aged, level=level)
            self._hopes.add(counted)
            self._told.move(counted.queue)
        self._hopes.sort({c.likes for c, _ in raised})
        return [counted for counted, _ in raised]

    def validate(self) -> None:
        """Assert that the sums are those of the pods."""
        if not self.on or self._tree is None or self._changed:
            return
        sums = Accounts()
        for uid, counted in self._pods.items():
            placed, source = self._placed(uid), counted.source
            assert placed is not None or uid in self._touched, f"{uid} is counted and on no node"
            assert source.pods[uid] is counted, f"{uid} is filed elsewhere"
            assert source is self._sources[source.namespace, source.label], f"{uid} is nowhere"
            if source.queue is not None:
                sums.use(counted.queue, counted.amounts)
                sums.hold(counted.queue, counted.level, counted.amounts)
                if counted.leaving:
                    sums.leave(counted.queue, counted.amounts)
                for each in counted.queue.path:
                    sums.of(each).aged += counted.reclaimable
        assert len(self._pods) == sum(len(each.pods) for each in self._sources.values())
        for (namespace, label), source in self._sources.items():
            assert source.queue is self._tree.charged(namespace, label), f"{label} counts elsewhere"
        for node in self._tree:
            mine, its = self._accounts.of(node), sums.of(node)
            assert (mine.used, mine.held) == (its.used, its.held), f"{node!r} used, held"
            assert (mine.leaving, mine.aged) == (its.leaving, its.aged), f"{node!r} leaving, aged"
            self._told.validate(node, self._accounts)
        self._hopes.validate([c for c in self._pods.values() if c.source.queue is not None])
