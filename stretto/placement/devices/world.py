"""Everything about devices on one snapshot, followed object by object.

Slices, classes, claims and taint rules are read once each time they change. What a claim holds is
taken, also while it is only chosen (a claim row says so) or tentative (a proposal of this process).
A change of what is taken concerns the nodes that see the pool; answers for other nodes stand.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable

import msgspec

from stretto.model.devices import (
    CLAIM,
    CLASS,
    KINDS,
    SLICE,
    TAINT_RULE,
    Allocation,
    ClaimRow,
    ClassRow,
    NodeChoice,
    SliceRow,
    TaintRuleRow,
    decode_claim,
    decode_class,
    decode_slice,
    decode_taint_rule,
)
from stretto.model.shape import NodeTerm, Shape
from stretto.placement.devices.allocator import MAX_STEPS, Allocator, Chosen, Wanted
from stretto.placement.devices.inventory import (
    Device,
    DeviceId,
    Pool,
    PoolId,
    Slice,
    gather,
    tainted,
)
from stretto.placement.devices.problem import Problem
from stretto.placement.devices.selection import Selection, SelectionError
from stretto.placement.devices.usage import DeviceUsage
from stretto.placement.node_selector import Term, compile_term
from stretto.snapshot.changes import ChangeLog
from stretto.snapshot.columns import Snapshot

CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
_PROBLEMS = 256
_CONTENTS = 1 << 16
_KEY = ("devices",)


class _RowView(msgspec.Struct):
    """What a node sees."""

    pools: tuple[Pool, ...]
    ids: tuple[DeviceId, ...]
    """Devices whose being taken matters."""
    content: int
    state: tuple[object, ...] | None = None


def world_of(snapshot: Snapshot) -> DeviceWorld:
    """The one world of a snapshot, up to date."""
    found = snapshot.derived.get(_KEY)
    if not isinstance(found, DeviceWorld):
        found = snapshot.derived[_KEY] = DeviceWorld(snapshot)
    found.sync()
    return found


class DeviceWorld:
    """See the module docstring."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.changes = ChangeLog[int]()
        """Rows whose devices, or what is taken of them, changed."""
        self.slice_changes = ChangeLog[PoolId]()
        """Pools of which slices changed."""
        self.use_changes = ChangeLog[DeviceId]()
        """Devices of which more or less is taken."""
        self.version = 0
        """Grows with each change to anything here."""
        self.claims: dict[str, ClaimRow] = {}
        self.classes: dict[str, ClassRow] = {}
        self.backed: dict[str, ClassRow] = {}
        """Extended resource → the class that backs it."""
        self.usage = DeviceUsage()
        self._selection = Selection()
        self._rules: list[TaintRuleRow] = []
        self._slices: dict[str, Slice] = {}
        self._by_node: dict[str, dict[str, Slice]] = {}
        """Node name ("" for none) → slices by name."""
        self._by_pool: dict[PoolId, dict[str, Slice]] = {}
        self._views: dict[int, _RowView] = {}
        self._contents: dict[object, int] = {}
        self._numbers = itertools.count()
        self._problems: dict[tuple[Wanted, ...], Problem] = {}
        self._terms: dict[tuple[NodeTerm, ...], list[Term]] = {}
        self._tentative: dict[tuple[bytes, int], list[list[tuple[str, Allocation]]]] = {}
        self._pending: dict[str, int] = {}
        self._seen = 0
        self._nodes_seen = -1

    # --------------------------------------------------------------------------------- following
    def sync(self) -> None:
        """Take in what has changed in the snapshot."""
        snapshot = self.snapshot
        if snapshot.node_changes.stamp != self._nodes_seen:
            self._sync_nodes()
        if snapshot.object_version == self._seen:
            return
        seen, self._seen = self._seen, snapshot.object_version
        if not any(snapshot.kind_version(kind) > seen for kind in KINDS):
            return
        self.version += 1
        if snapshot.kind_version(TAINT_RULE) > seen:
            rules = snapshot.objects(TAINT_RULE)
            self._rules = [decode_taint_rule(rules[name]) for name in sorted(rules)]
            for name in list(self._slices):
                self._put_slice(name, self._slices[name].row)
        if snapshot.kind_version(CLASS) > seen:
            self._sync_classes()
        for name in self._changed(SLICE, seen, self._slices):
            payload = snapshot.object_payload(SLICE, name)
            self._put_slice(name, None if payload is None else decode_slice(payload))
        for key in self._changed(CLAIM, seen, self.claims):
            payload = snapshot.object_payload(CLAIM, key)
            self._put_claim(key, None if payload is None else decode_claim(payload))

    def _changed(self, kind: str, seen: int, known: Iterable[str]) -> Iterable[str]:
        changed = self.snapshot.objects_changed(kind, seen)
        return {*known, *self.snapshot.objects(kind)} if changed is None else changed

    def _sync_nodes(self) -> None:
        log = self.snapshot.node_changes
        changed = log.since(self._nodes_seen) if self._nodes_seen >= 0 else None
        self._nodes_seen = log.stamp
        self.version += 1
        self._forget_gone()
        if changed is None:
            self._forget_views()
            return
        for row in changed:
            self._forget_view(row)

    def _forget_gone(self) -> None:
        """Tentative pods of nodes that have left hold nothing."""
        gone = [key for key in self._tentative if self.snapshot.row_of(key[1]) is None]
        for key in gone:
            for choice in self._tentative.pop(key):
                self._count(choice, -1)

    def _sync_classes(self) -> None:
        rows = [decode_class(payload) for payload in self.snapshot.objects(CLASS).values()]
        self.classes = {row.name: row for row in rows}
        self.backed = {f"{CLASS_PREFIX}{row.name}": row for row in rows}
        # The youngest class wins, of equally old ones the first by name.
        by_name = sorted(rows, key=lambda row: row.name, reverse=True)
        for row in sorted(by_name, key=lambda row: row.created):
            if row.extended_resource:
                self.backed[row.extended_resource] = row
        self._problems.clear()
        self._forget_views()

    def _put_slice(self, name: str, row: SliceRow | None) -> None:
        old = self._slices.pop(name, None)
        if old is not None:
            del self._by_node[old.row.where.node_name][name]
            del self._by_pool[old.pool][name]
            self._forget_pool(old.pool, also=old.row.where)
            self.slice_changes.note(old.pool)
        if row is not None:
            made = self._slices[name] = self._made(row)
            self._by_node.setdefault(row.where.node_name, {})[name] = made
            self._by_pool.setdefault(made.pool, {})[name] = made
            self._forget_pool(made.pool)
            self.slice_changes.note(made.pool)

    def _made(self, row: SliceRow) -> Slice:
        devices = []
        for device in row.devices:
            id_ = DeviceId(row.driver, row.pool, device.name)
            content = self._selection.content(row.driver, device)
            taints = tainted(device, id_, self._rules)
            devices.append(Device(id_, device, taints, content, row.per_device, row.where))
        return Slice(row, tuple(devices))

    def _put_claim(self, key: str, row: ClaimRow | None) -> None:
        old = self.claims.pop(key, None)
        if row is not None:
            self.claims[key] = row
        before = None if old is None else old.allocation
        after = None if row is None else row.allocation
        if before is not None and after is not None and before.results == after.results:
            return
        if before is not None:
            self._shift(before, -1)
        if after is not None:
            self._shift(after, 1)

    def _shift(self, allocation: Allocation, sign: int) -> None:
        for pool in self.usage.shift(allocation, sign):
            for row in self._rows_of(pool):
                view = self._views.get(row)
                if view is not None:
                    view.state = None
                self.changes.note(row)
        for result in allocation.results:
            self.use_changes.note(DeviceId(result.driver, result.pool, result.device))
        self.version += 1

    def _rows_of(self, pool: PoolId) -> Iterable[int]:
        names = {each.row.where.node_name for each in self._by_pool.get(pool, {}).values()}
        if "" in names:
            return range(self.snapshot.rows)
        rows = (self.snapshot.row_of_name(name) for name in names)
        return [row for row in rows if row is not None]

    def _forget_pool(self, pool: PoolId, *, also: NodeChoice | None = None) -> None:
        rows = set(self._rows_of(pool))
        if also is not None:
            row = self.snapshot.row_of_name(also.node_name) if also.node_name else None
            rows |= set(range(self.snapshot.rows)) if not also.node_name else {row} - {None}  # type: ignore[arg-type]
        for row in rows:
            self._forget_view(row)

    def _forget_view(self, row: int) -> None:
        self._views.pop(row, None)
        self.changes.note(row)

    def _forget_views(self) -> None:
        self._views.clear()
        self.changes.note_all()

    @property
    def has_shared_pools(self) -> bool:
        """Whether some slice is not of one node alone."""
        return bool(self._by_node.get(""))

    # --------------------------------------------------------------------------------- tentative
    def pending(self, key: str) -> bool:
        """Whether a claim is being allocated: chosen, not yet written."""
        if key in self._pending:
            return True
        claim = self.claims.get(key)
        return claim is not None and claim.allocation is not None and claim.allocation.pending

    def assume(self, shape: Shape, row: int, choice: list[tuple[str, Allocation]]) -> None:
        """A tentative pod on a row gets these devices."""
        node_id = int(self.snapshot.node_id[row])  # the row may be another node's later
        self._tentative.setdefault((shape.digest, node_id), []).append(choice)
        self._count(choice, 1)

    def forget(self, shape: Shape, row: int) -> None:
        """Undo one :meth:`assume`; nothing if the node went away meanwhile."""
        key = shape.digest, int(self.snapshot.node_id[row])
        choices = self._tentative.get(key)
        if choices:
            self._count(choices.pop(), -1)
        if not choices:
            self._tentative.pop(key, None)

    def _count(self, choice: list[tuple[str, Allocation]], sign: int) -> None:
        for key, allocation in choice:
            self._shift(allocation, sign)
            left = self._pending.get(key, 0) + sign
            if left:
                self._pending[key] = left
            else:
                del self._pending[key]

    def pools(self) -> Iterable[PoolId]:
        """Every pool that has slices."""
        return [pool for pool, slices in self._by_pool.items() if slices]

    def slices(self, pool: PoolId) -> Iterable[Slice]:
        """The slices of a pool, wherever they are."""
        return self._by_pool.get(pool, {}).values()

    def ask_classes(self) -> None:
        """Ask each class about a device, which loads the library of selectors and compiles
        them."""
        devices = (device for each in self._slices.values() for device in each.devices)
        for some in itertools.islice(devices, 1):
            for row in self.classes.values():
                with contextlib.suppress(SelectionError):
                    self._selection.selects(row.selectors, some)

    # ------------------------------------------------------------------------------------ asking
    def problem(self, wanted: tuple[Wanted, ...]) -> Problem:
        """The problem of these claims, kept for the next pod that asks for the same."""
        found = self._problems.pop(wanted, None) or Problem(wanted, self)
        self._problems[wanted] = found
        if len(self._problems) > _PROBLEMS:
            del self._problems[next(iter(self._problems))]
        return found

    def allocate(
        self, wanted: tuple[Wanted, ...], row: int, *, steps: int = MAX_STEPS
    ) -> list[list[Chosen]] | None:
        """Search on one node; raises as :meth:`Allocator.allocate` does."""
        return Allocator(
            wanted,
            pools=self._view(row).pools,
            usage=self.usage,
            classes=self.classes,
            selection=self._selection,
            matches=lambda where: self._matches(where, row),
        ).allocate(steps=steps)

    def state_of(self, row: int) -> object:
        """Equal for nodes on which every search ends alike."""
        view = self._view(row)
        if view.state is None:
            view.state = self.usage.state(view.ids)
        return view.content, view.state

    def terms(self, selector: tuple[NodeTerm, ...]) -> list[Term]:
        """A node selector, compiled: its terms are ORed."""
        found = self._terms.get(selector)
        if found is None:
            if len(self._terms) > 4096:
                self._terms.clear()
            compiled = (compile_term(term, self.snapshot) for term in selector)
            found = self._terms[selector] = [term for term in compiled if term is not None]
        return found

    def _matches(self, where: NodeChoice, row: int) -> bool:
        if where.node_name:
            return self.snapshot.name[row] == where.node_name
        if where.all_nodes:
            return True
        if where.selector is None:
            return False
        return any(term.passes_row(row) for term in self.terms(where.selector))

    def _view(self, row: int) -> _RowView:
        view = self._views.get(row)
        if view is None:
            view = self._views[row] = self._seen_from(row)
        return view

    def _seen_from(self, row: int) -> _RowView:
        own = self._by_node.get(self.snapshot.name[row], {})
        shared = self._by_node.get("", {})
        pools = gather(
            (*own.values(), *shared.values()),
            self.slices,
            lambda where: self._matches(where, row),
        )
        ids = tuple(
            device.id
            for pool in pools
            for each in (*pool.slices, *pool.elsewhere)
            for device in each.devices
        )
        content = tuple(self._content(pool, row) for pool in pools)
        number = self._contents.get(content)
        if number is None:
            if len(self._contents) >= _CONTENTS:
                self._contents.clear()  # numbers are not used again, so this costs work only
            number = self._contents[content] = next(self._numbers)
        return _RowView(pools, ids, number)

    def _content(self, pool: Pool, row: int) -> object:
        def of(each: Slice) -> object:
            return tuple(
                (device.content, device.taints,
                 device.per_device and self._matches(device.row.where, row))
                for device in each.devices
            )  # fmt: skip

        counters = tuple(
            (name, tuple(amounts.items())) for name, amounts in (pool.counters or {}).items()
        )
        slices = tuple(map(of, pool.slices)), tuple(map(of, pool.elsewhere))
        return pool.incomplete, pool.invalid, counters, slices
