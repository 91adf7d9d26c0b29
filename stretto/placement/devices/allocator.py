"""How claims are met on one node: the first way found in upstream's order of trying.

Claims, requests of a claim, devices of a request are allocated one after the other; whenever one
cannot be, the last choice is undone and the next candidate tried. The order of candidates is that
of :mod:`stretto.placement.devices.inventory`; inside one request a device comes after the one
before it, so that sets are tried once, not in every order. Of alternatives the first that leads to
a whole solution wins. The search is exhaustive and may be exponential, so its steps are bounded:
where upstream's Filter runs into its time limit of 10 s a node, this ends with the same error.

Source: allocator_incubating.go of k8s.io/dynamic-resource-allocation 0.37.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import msgspec

from stretto.cel.quantities import signed_nano
from stretto.model.devices import (
    ClassRow,
    Constraint,
    NodeChoice,
    Request,
    SubRequest,
)
from stretto.placement.devices.capacity import CapacityError, consumption, fits
from stretto.placement.devices.constraints import Watch, attribute_of
from stretto.placement.devices.counters import Counters
from stretto.placement.devices.inventory import Device, DeviceId, Pool, PoolId
from stretto.placement.devices.selection import Selection, SelectionError
from stretto.placement.devices.taints import tainted_for
from stretto.placement.devices.usage import DeviceUsage

MAX_RESULTS = 32
"""Devices that one claim can hold (AllocationResultsMaxSize)."""
MAX_STEPS = 100_000
"""Candidates that are tried on one node: half a second or so."""
CLAIM_MARK = "\0"
"""Stands around the number of a claim in texts, for the caller to put its name there."""


_Place = tuple[int, int, int]
"""(pool, slice, device) by position: where to go on."""
_Undo = list[Callable[[], object]]


class AllocationError(ValueError):
    """The attempt must end: a claim, class or driver is at fault, not the node."""


class TimedOutError(AllocationError):
    """The search took more steps than it may; the caller names the node."""


class NodeUnusableError(ValueError):
    """Nothing on this node, and a reason that is worth saying."""


class _TooManyError(Exception):
    """A claim would hold more devices than one can; an alternative with fewer may help."""


class Wanted(msgspec.Struct, frozen=True):
    """What one claim asks for."""

    requests: tuple[Request, ...]
    constraints: tuple[Constraint, ...] = ()


class Chosen(msgspec.Struct, frozen=True):
    """A device that was chosen for a request."""

    request: str
    """Name of the request, or request/alternative."""
    device: Device
    wanted: SubRequest
    shared: bool = False
    consumed: Mapping[str, str] = msgspec.field(default_factory=dict)
    """What a share takes, as quantities."""


class _Form(msgspec.Struct):
    """A request in one of its forms."""

    request: str
    alternative: str
    """'' for an exact request."""
    wanted: SubRequest
    class_row: ClassRow
    count: int = 0
    everything: list[Device] | None = None
    """Mode All: the devices that match."""


class Allocator:
    """One search; see the module docstring. Made for one node and one set of claims."""

    def __init__(
        self,
        claims: tuple[Wanted, ...],
        *,
        pools: tuple[Pool, ...],
        usage: DeviceUsage,
        classes: Mapping[str, ClassRow],
        selection: Selection,
        matches: Callable[[NodeChoice], bool],
    ) -> None:
        self._claims = claims
        self._pools = pools
        self._usage = usage
        self._classes = classes
        self._selection = selection
        self._matches = matches
        self._counters = Counters(usage)
        self._pool_of = {pool.id: pool for pool in pools}
        self._selectable: dict[tuple[int, DeviceId], bool] = {}
        self._seen: dict[object, object] = {}
        self._attributes = sorted({c.attribute for claim in claims for c in claim.constraints})
        """Those that constraints read."""
        self._forms: list[list[list[_Form]]] = []
        self._watches: list[list[Watch]] = []
        self._allocating: dict[DeviceId, list[int]] = {}
        self._shares: dict[DeviceId, list[Mapping[str, str]]] = {}
        self._found: list[list[Chosen]] = [[] for _ in claims]
        self._steps = MAX_STEPS
        self._by_name = (0, 0)
        """(claim, request) before which equal devices do not stand for each other: a request for
        all devices under a constraint fails the attempt at the first in the way, whichever it
        is."""

    def allocate(self, *, steps: int = MAX_STEPS) -> list[list[Chosen]] | None:
        """Devices for each claim, in order; None: they cannot all be met here.

        Raises:
            AllocationError: the attempt fails whatever the node; claims appear by number.
            NodeUnusableError: this node cannot, for a reason of its own.
        """
        self._steps = steps
        least = 0
        for number, claim in enumerate(self._claims):
            least += self._prepare(number, claim)
        depth = 4 * (least + MAX_RESULTS) + 1000
        if depth > sys.getrecursionlimit():
            sys.setrecursionlimit(depth)
        try:
            done = self._request(0, 0)
        except _TooManyError:
            raise AllocationError("allocation max size exceeded") from None
        if done:
            return self._found
        if any(pool.invalid for pool in self._pools):
            raise NodeUnusableError("invalid resource pools were encountered")
        return None

    # ---------------------------------------------------------------------------- before the search
    def _prepare(self, number: int, claim: Wanted) -> int:
        """Look at the requests of a claim; the least number of devices it needs."""
        forms, least = [], 0
        for request in claim.requests:
            if request.exactly is not None:
                made = [self._form(number, request.name, "", request.exactly)]
            else:
                subs = request.alternatives
                made = [self._form(number, request.name, sub.name, sub) for sub in subs]
            if not made:
                raise AllocationError(f"{_claim(number)}, request {request.name}: unknown type")
            fewest = min(form.count for form in made)
            if fewest > MAX_RESULTS - least:
                raise AllocationError(
                    f"{_claim(number)}, request {request.name}: adding {fewest} devices exceeds "
                    f"the claim limit of {MAX_RESULTS}, with {least} already accounted for"
                )
            least += fewest
            forms.append(made)
        self._forms.append(forms)
        if claim.constraints:
            for index, made in enumerate(forms):
                if any(form.everything is not None for form in made):
                    self._by_name = number, index
        self._watches.append([Watch(constraint) for constraint in claim.constraints])
        return least

    def _form(self, number: int, request: str, alternative: str, wanted: SubRequest) -> _Form:
        where = f"{_claim(number)}, request {wanted.name}"
        for i, expression in enumerate(wanted.selectors):
            if not expression:
                raise AllocationError(
                    f"{where}, selector #{i}: CEL expression empty (unsupported selector type?)"
                )
        class_row = self._classes.get(wanted.class_name)
        if class_row is None:
            raise AllocationError(
                f"{where}: could not retrieve device class {wanted.class_name}: "
                f'deviceclass.resource.k8s.io "{wanted.class_name}" not found'
            )
        form = _Form(request, alternative, wanted, class_row, wanted.count)
        if wanted.mode == "All":
            form.everything = self._all(form, number, where)
            form.count = len(form.everything)
        elif wanted.mode != "ExactCount":
            raise AllocationError(f"{where}: unsupported count mode {wanted.mode}")
        return form

    def _all(self, form: _Form, number: int, where: str) -> list[Device]:
        found = []
        for pool in self._pools:
            if not pool.usable:
                state = "being updated" if pool.incomplete else "invalid"
                raise AllocationError(
                    f"{where}: asks for all devices, but resource pool {pool.id} is currently "
                    f"{state}"
                )
            found += [
                device
                for each in pool.slices
                for device in each.devices
                if self._selects(form, number, device)
                and self._has_room(form, device, where, consumed={}, allocating={})
            ]
        return found

    # ----------------------------------------------------------------------------- the search
    def _request(self, claim: int, request: int) -> bool:
        """Allocate from this request on."""
        if claim == len(self._claims):
            return True
        if request == len(self._claims[claim].requests):
            try:
                return self._request(claim + 1, 0)
            except _TooManyError:
                return False  # a choice for an earlier claim may leave more to this one
        forms = self._forms[claim][request]
        if not forms[0].alternative:
            return self._devices(forms[0], claim, request, 0, (0, 0, 0))
        exceeded = True
        for form in forms:
            try:
                if self._devices(form, claim, request, 0, (0, 0, 0)):
                    return True
                exceeded = False
            except _TooManyError:
                continue
        if exceeded:
            raise _TooManyError
        return False

    def _devices(self, form: _Form, claim: int, request: int, index: int, start: _Place) -> bool:
        """Allocate the devices of one form of a request from ``index`` on, and what follows."""
        everything = form.everything
        if everything is not None and not everything:
            return False
        if index >= form.count:
            return self._request(claim, request + 1)
        if form.count - index > MAX_RESULTS - len(self._found[claim]):
            raise _TooManyError
        if everything is not None:
            return self._attempt(form, claim, request, index, everything[index], start, must=True)
        alike = (claim, request) >= self._by_name
        failed: set[object] = set()
        for device, after in self._candidates(start):
            if failed and self._kind(device) in failed:
                continue
            if not self._candidate(form, claim, device):
                continue
            if self._attempt(form, claim, request, index, device, after, must=False):
                return True
            if alike:
                failed.add(self._kind(device))
        return False

    def _kind(self, device: Device) -> object:
        """Equal for devices that can stand for each other in the rest of the search.

        When one led nowhere, so would the other: what it leaves to choose from is the same but for
        their names, or less. Skipping it changes no result and saves most of a hopeless search.
        Attributes that nobody reads (serial numbers) make no difference.
        """
        id_ = device.id
        shares = self._shares.get(id_)
        return (
            PoolId(id_.driver, id_.pool),
            self._seen_of(device),
            device.taints,
            self._usage.state((id_,)),
            tuple(self._allocating.get(id_, ())),
            None if shares is None else tuple(tuple(sorted(share.items())) for share in shares),
        )

    def _seen_of(self, device: Device) -> object:
        """What selectors, constraints, counters and capacities tell of a device; its name where a
        selector cannot be asked, since the search may end there."""
        key = device.content, device.row.where if device.per_device else None
        found = self._seen.get(key)
        if found is None:
            row = device.row
            try:
                selected = tuple(
                    self._selects(form, number, device)
                    for number, forms in enumerate(self._forms)
                    for form in itertools.chain.from_iterable(forms)
                )
            except AllocationError:
                return device.id
            values = tuple(attribute_of(device, name) for name in self._attributes)
            found = selected, values, row.capacity, row.allow_multiple, row.consumes
            self._seen[key] = found
        return found

    def _candidates(self, start: _Place) -> Iterator[tuple[Device, _Place]]:
        first_pool, first_slice, first_device = start
        for p in range(first_pool, len(self._pools)):
            pool = self._pools[p]
            if not pool.usable:
                continue
            for s in range(first_slice if p == first_pool else 0, len(pool.slices)):
                devices = pool.slices[s].devices
                begin = first_device if (p, s) == (first_pool, first_slice) else 0
                for d in range(begin, len(devices)):
                    yield devices[d], (p, s, d + 1)

    def _candidate(self, form: _Form, claim: int, device: Device) -> bool:
        """The cheap checks."""
        self._steps -= 1
        if self._steps < 0:
            raise TimedOutError("timed out trying to allocate devices")
        if form.wanted.admin and claim in self._allocating.get(device.id, ()):
            return False
        if not self._free(form.wanted, claim, device):
            return False
        return self._selects(form, claim, device) and self._has_room_now(form, claim, device)

    def _attempt(
        self,
        form: _Form,
        claim: int,
        request: int,
        index: int,
        device: Device,
        start: _Place,
        *,
        must: bool,
    ) -> bool:
        """Take a device if it can be taken and go on; give it back if that leads nowhere."""
        undo = self._take(form, claim, device, must=must)
        if undo is None:
            return False
        done = False
        try:
            done = self._devices(form, claim, request, index + 1, start)
        finally:
            if not done:
                _undo(undo)
        return done

    def _take(self, form: _Form, claim: int, device: Device, *, must: bool) -> _Undo | None:
        """Count a device as chosen; None if it cannot be. Returns what undoes it.

        ``must``: no other device would do, so a constraint in the way is an error of the claim.
        """
        if not self._free(form.wanted, claim, device):
            return None
        undo: _Undo = []
        id_ = device.id
        again = device.row.allow_multiple and (id_ in self._usage.shares or id_ in self._shares)
        if device.row.consumes and not again:
            pool = self._pool_of[PoolId(id_.driver, id_.pool)]
            if not self._counters.take(pool, device):
                return None
            undo.append(partial(self._counters.give_back, pool, device))
        if tainted_for(device, form.wanted):
            _undo(undo)
            return None
        for watch in self._watches[claim]:
            if watch.add(form.request, form.alternative, device):
                undo.append(partial(watch.remove, form.request, form.alternative))
                continue
            _undo(undo)
            if must:
                raise AllocationError(
                    f"{_claim(claim)}, request {form.wanted.name}: cannot add device {id_} because "
                    "a claim constraint would not be satisfied"
                )
            return None
        if not self._has_room_now(form, claim, device):
            _undo(undo)
            return None
        self._record(form, claim, device, undo)
        return undo

    def _free(self, wanted: SubRequest, claim: int, device: Device) -> bool:
        """Whether nobody has the device who would be in the way; admin access shares with anyone,
        once a claim."""
        if wanted.admin:
            return device.row.allow_multiple or claim not in self._allocating.get(device.id, ())
        return device.id not in self._usage.whole and not self._allocating.get(device.id)

    def _record(self, form: _Form, claim: int, device: Device, undo: _Undo) -> None:
        id_, shared = device.id, device.row.allow_multiple
        consumed: dict[str, str] = {}
        if shared:
            consumed = consumption(device.row.capacity, form.wanted.capacity)
            self._shares.setdefault(id_, []).append(consumed)
            undo.append(partial(self._unshare, id_))
        else:
            holders = self._allocating.setdefault(id_, [])
            holders.append(claim)
            undo.append(holders.pop)
        name = f"{form.request}/{form.alternative}" if form.alternative else form.request
        found = self._found[claim]
        found.append(Chosen(name, device, form.wanted, shared, consumed))
        undo.append(found.pop)

    def _unshare(self, id_: DeviceId) -> None:
        shares = self._shares[id_]
        shares.pop()
        if not shares:
            del self._shares[id_]

    # ----------------------------------------------------------------------------- small parts
    def _selects(self, form: _Form, claim: int, device: Device) -> bool:
        key = (id(form), device.id)
        known = self._selectable.get(key)
        if known is None:
            known = self._selectable[key] = self._asks(form, claim, device)
        return known

    def _asks(self, form: _Form, claim: int, device: Device) -> bool:
        class_row = form.class_row
        owner = f"class {class_row.name}"
        try:
            if self._selection.selects(class_row.selectors, device) >= 0:
                return False
            owner = _claim(claim)
            if self._selection.selects(form.wanted.selectors, device) >= 0:
                return False
        except SelectionError as error:
            raise AllocationError(f"{owner}: {error}") from None
        return not device.per_device or self._matches(device.row.where)

    def _has_room_now(self, form: _Form, claim: int, device: Device) -> bool:
        """With what is taken already and what this search has taken so far."""
        row = device.row
        if not row.capacity and not form.wanted.capacity:
            return True
        return self._has_room(
            form,
            device,
            f"{_claim(claim)}, request {form.wanted.name}",
            consumed=self._usage.consumed.get(device.id, {}),
            allocating=self._sum_of_shares(device.id),
        )

    def _has_room(
        self,
        form: _Form,
        device: Device,
        where: str,
        *,
        consumed: Mapping[str, int],
        allocating: Mapping[str, int],
    ) -> bool:
        row = device.row
        if not row.capacity and not form.wanted.capacity:
            return True
        try:
            return fits(
                row.capacity, form.wanted.capacity, consumed=consumed, allocating=allocating
            )
        except CapacityError as error:
            raise AllocationError(
                f"{where}: checking capacity for device {device.id}: {error}"
            ) from None

    def _sum_of_shares(self, id_: DeviceId) -> dict[str, int]:
        total: dict[str, int] = {}
        for share in self._shares.get(id_, ()):
            for name, text in share.items():
                total[name] = total.get(name, 0) + signed_nano(text)
        return total


def _claim(number: int) -> str:
    return f"claim {CLAIM_MARK}{number}{CLAIM_MARK}"


def _undo(steps: _Undo) -> None:
    for step in reversed(steps):
        step()
