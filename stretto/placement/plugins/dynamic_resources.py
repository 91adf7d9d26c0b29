"""DynamicResources: claims to devices can be met on the node, or are met there already.

Wake-up events (upstream's): Node added, or its labels or allocatable changed; ResourceClaim
added, changed, deleted; the pod's own claim statuses; DeviceClass and ResourceSlice added or
changed.
"""

from __future__ import annotations

import numpy as np

from stretto.model.devices import CLASS, ClaimRow, Request
from stretto.model.shape import Shape
from stretto.model.unit import Cause
from stretto.placement.claim_args import DeviceArgs
from stretto.placement.devices.allocator import CLAIM_MARK, Wanted
from stretto.placement.devices.claimed import (
    Plan,
    allocations_of,
    backed_resources,
    lacking,
    plan_of,
    special_requests,
)
from stretto.placement.devices.problem import FAILED, FITS, SHORT, UNUSABLE, Problem
from stretto.placement.devices.problem import alternatives_score as score_of
from stretto.placement.devices.world import DeviceWorld, world_of
from stretto.placement.framework import (
    Bools,
    Code,
    CrossScorer,
    Filter,
    Int64s,
    Normalise,
    Plugin,
    Rejection,
    Scorer,
    Scores,
    Status,
    View,
    normalised,
)
from stretto.snapshot.columns import Snapshot

NAME = "DynamicResources"
CANNOT = "cannot allocate all claims"
ELSEWHERE = "resourceclaim not available on the node"
INVALID = "invalid resource pools were encountered"
_ERROR = f'running "{NAME}" filter plugin: '


class _Claims:
    """The claims of a shape against the world, looked at anew when the world changed."""

    def __init__(self, shape: Shape, snapshot: Snapshot) -> None:
        self.shape = shape
        self.world: DeviceWorld = world_of(snapshot)
        self.backed = backed_resources(self.world, shape)
        self._version = -1
        self._plan = Plan((), ())
        self._problems: dict[tuple[str, ...], Problem | None] = {}
        self._key: object = None

    def bind(self, shape: Shape) -> None:
        """Be about the claims of another pod, which ask for the same."""
        if shape is not self.shape:
            self.shape = shape
            self._version = -1

    def plan(self) -> Plan:
        """The claims as they are now."""
        world = self.world
        world.sync()
        if world.version != self._version:
            self._plan = plan_of(world, self.shape)
            self._problems.clear()
            self._version = world.version
        return self._plan

    def key(self) -> object:
        """Equal while answers change row by row only, as the world tells."""
        plan = self.plan()
        nodes = self.world.snapshot.node_changes.stamp if plan.allocated else 0
        return plan.missing, plan.allocated, plan.wanted, nodes

    @property
    def has_alternatives(self) -> bool:
        """Whether a request of a claim is a list."""
        plan = self.plan()
        claims = (*plan.fresh, *plan.allocated)
        return any(request.alternatives for claim in claims for request in claim.requests)

    def problem(self, resources: tuple[str, ...]) -> Problem | None:
        """What has to be solved on nodes that lack these extended resources."""
        plan = self.plan()
        if resources not in self._problems:
            special = special_requests(self.world, self.shape, resources)
            self._problems[resources] = plan.problem(self.world, special)
        return self._problems[resources]

    def problem_of_row(self, row: int) -> Problem | None:
        """The same for one row."""
        return self.problem(lacking(self.world, self.backed, row))

    def parts(self, view: View) -> list[tuple[Bools | None, Problem | None]]:
        """Problems with the rows (bool[view.size], None: all) that have them."""
        if not self.backed:
            return [(None, self.problem(()))]
        groups: dict[tuple[str, ...], list[int]] = {}
        rows = range(view.size) if view.rows is None else view.rows.tolist()
        for position, row in enumerate(rows):
            groups.setdefault(lacking(self.world, self.backed, row), []).append(position)
        found: list[tuple[Bools | None, Problem | None]] = []
        for resources, positions in groups.items():
            mask = np.zeros(view.size, dtype=np.bool_)
            mask[positions] = True
            found.append((mask, self.problem(resources)))
        return found


class DeviceFilter(Filter):
    """All claims of a pod, on each node."""

    name = NAME
    cause = Cause.DEVICES

    def __init__(self, claims: _Claims) -> None:
        self._claims = claims
        # A claim by name is met once, and pools of several nodes are seen by all of them.
        self.spans = bool(claims.shape.device_claims) or claims.world.has_shared_pools
        self.follows = claims.world.changes

    def bind(self, shape: Shape) -> None:
        """Claims are read by name."""
        self._claims.bind(shape)

    def version(self) -> object:
        """What the claims are."""
        return self._claims.key()

    def passes(self, view: View) -> Bools:
        """bool[view.size]."""
        passes = self._available(view)
        for mask, problem in self._claims.parts(view):
            if problem is None:
                continue
            fits = problem.codes(view) == FITS
            passes &= fits if mask is None else (fits | ~mask)
        return passes

    def passes_row(self, row: int) -> bool:
        """The same for one row."""
        plan = self._claims.plan()
        if plan.missing or not all(self._available_on(claim, row) for claim in plan.allocated):
            return False
        problem = self._claims.problem_of_row(row)
        return problem is None or problem.code(row) == FITS

    def rejections(self, view: View) -> list[Rejection]:
        """Failures first, then claims that cannot be met, then those that are met elsewhere."""
        found: list[Rejection] = []
        for mask, problem in self._claims.parts(view):
            if problem is None:
                continue
            codes = problem.codes(view)
            here = np.ones(view.size, dtype=np.bool_) if mask is None else mask
            found += self._failures(problem, view, here & (codes == FAILED))
            found.append(Rejection(INVALID, here & (codes == UNUSABLE), unresolvable=True))
            found.append(Rejection(CANNOT, here & (codes == SHORT), unresolvable=True))
        already = np.zeros(view.size, dtype=np.bool_)
        for rejection in found:
            already |= rejection.rows
        found.append(Rejection(ELSEWHERE, ~self._available(view) & ~already, unresolvable=True))
        return found

    def _failures(self, problem: Problem, view: View, failed: Bools) -> list[Rejection]:
        if not failed.any():
            return []
        found = []
        positions = np.flatnonzero(failed)
        rows = positions if view.rows is None else view.rows[positions]
        for position, row in zip(positions.tolist(), rows.tolist(), strict=True):
            mask = np.zeros(view.size, dtype=np.bool_)
            mask[position] = True
            text = _ERROR + self._named(problem.text(row))
            found.append(Rejection(text, mask, unresolvable=False, error=True))
        return found

    def _named(self, text: str) -> str:
        """Put the names of claims where their numbers are."""
        parts = text.split(CLAIM_MARK)
        plan, namespace = self._claims.plan(), self._claims.shape.namespace
        parts[1::2] = [plan.name(int(number), namespace) for number in parts[1::2]]
        return "".join(parts)

    def failing_rows(self) -> tuple[int, ...]:
        """Rows that make the whole attempt fail, of those that were asked."""
        problems = (problem for _, problem in self._claims.parts(View(self._claims.world.snapshot)))
        return tuple(row for p in problems if p is not None for row in p.failing_rows)

    def releasable(self, view: View, alive: Bools, *, pod: str) -> tuple[ClaimRow, ...]:
        """Claims that are allocated, unusable on a row (of ``alive``) where all else of the plugin
        is well, and reserved for nobody else than the pod with this uid."""
        claims = self._claims
        well = alive.copy()
        for mask, problem in claims.parts(view):
            if problem is not None:
                fits = problem.codes(view) == FITS
                well &= fits if mask is None else (fits | ~mask)
        return tuple(
            claim
            for claim in claims.plan().allocated
            if claim.reserved_for in ((), (pod,)) and (well & ~self._usable(claim, view)).any()
        )

    def _available(self, view: View) -> Bools:
        """Where every claim that is allocated can be used."""
        plan = self._claims.plan()
        passes = np.full(view.size, not plan.missing, dtype=np.bool_)
        for claim in plan.allocated:
            passes &= self._usable(claim, view)
        return passes

    def _usable(self, claim: ClaimRow, view: View) -> Bools:
        """Where a claim that is allocated can be used."""
        passes = np.full(view.size, not _binding_failed(claim), dtype=np.bool_)
        selector = None if claim.allocation is None else claim.allocation.selector
        if selector is not None:
            somewhere = np.zeros(view.size, dtype=np.bool_)
            for term in self._claims.world.terms(selector):
                somewhere |= term.passes(view)
            passes &= somewhere
        return passes

    def _available_on(self, claim: ClaimRow, row: int) -> bool:
        selector = None if claim.allocation is None else claim.allocation.selector
        if _binding_failed(claim):
            return False
        terms = self._claims.world.terms(selector) if selector is not None else None
        return terms is None or any(term.passes_row(row) for term in terms)


def _binding_failed(claim: ClaimRow) -> bool:
    """Whether a device of a claim says that it cannot be bound (isClaimReadyForBinding)."""
    true = {(c.driver, c.pool, c.device, c.type) for c in claim.conditions}
    if claim.allocation is None or not true:
        return False
    return any(
        (result.driver, result.pool, result.device, failure) in true
        for result in claim.allocation.results
        if result.binding_conditions
        for failure in result.binding_failures
    )


class DeviceScorer(CrossScorer):
    """How early in their lists the chosen alternatives stand."""

    name = NAME
    normalise = Normalise.DEFAULT

    def over(self, feasible: Bools) -> Scores | None:
        """Normalised over the feasible rows."""
        raw = self.raw(View(self._claims.world.snapshot))
        if raw is None:
            return None
        maximum = int(raw.max(initial=0, where=feasible))
        weighted = normalised(self.normalise, raw, maximum)
        return Scores(raw, np.zeros_like(raw) + weighted)

    def __init__(self, claims: _Claims) -> None:
        self._claims = claims

    def bind(self, shape: Shape) -> None:
        """Claims are read by name."""
        self._claims.bind(shape)

    def _constant(self) -> int:
        """What claims that are allocated already are worth, on every node."""
        total = 0
        for claim in self._claims.plan().allocated:
            results = () if claim.allocation is None else claim.allocation.results
            total += score_of(Wanted(claim.requests), {result.request for result in results})
        return total

    def raw(self, view: View) -> Int64s | None:
        """int64[view.size]; nothing to be allocated scores 0, and so do claims without
        alternatives."""
        if not self._claims.has_alternatives:
            return None
        total: Int64s = np.zeros(view.size, dtype=np.int64)
        constant = self._constant()
        for mask, problem in self._claims.parts(view):
            if problem is not None:
                part = problem.scores(view) + constant
                total += part if mask is None else part * mask
        return total

    def raw_row(self, row: int) -> int:
        """The same for one row."""
        problem = self._claims.problem_of_row(row)
        return 0 if problem is None else problem.score(row) + self._constant()


class DynamicResources(Plugin):
    """Filter and score by claims to devices."""

    name = NAME
    static = False
    kinds = frozenset({CLASS})
    silent_kinds = frozenset({CLASS})

    def __init__(self, args: DeviceArgs) -> None:
        self.args = args

    def has_prefilter(self, shape: Shape) -> bool:
        """Pods with claims."""
        return bool(shape.device_claims or shape.claim_problem)

    def pre_enqueue(self, shape: Shape, snapshot: Snapshot) -> Status | None:
        """A claim that does not exist, is going away or is another pod's holds the pod back."""
        text = _unknown_claim(world_of(snapshot), shape)
        return Status(Code.UNRESOLVABLE, NAME, (text,)) if text else None

    def prefilter(self, shape: Shape, snapshot: Snapshot) -> Status | None:
        """The same, claims that are being allocated, and classes that do not exist."""
        world = world_of(snapshot)
        text = _unknown_claim(world, shape) or _unready_claim(world, shape)
        return Status(Code.UNRESOLVABLE, NAME, (text,)) if text else None

    def filter(self, shape: Shape, snapshot: Snapshot) -> Filter | None:
        """None for pods that devices do not concern."""
        claims = _claims(shape, snapshot)
        return None if claims is None else DeviceFilter(claims)

    def scorer(self, shape: Shape, snapshot: Snapshot) -> Scorer | None:
        """None for pods whose claims have no alternatives."""
        claims = _claims(shape, snapshot)
        return DeviceScorer(claims) if claims is not None and claims.has_alternatives else None

    def basis(self, shape: Shape, snapshot: Snapshot) -> object:
        """Whether there are alternatives to score, and pools that several nodes see."""
        if not shape.device_claims and not shape.device_containers:
            return None
        claims = _claims(shape, snapshot)
        return claims and (claims.has_alternatives, claims.world.has_shared_pools)

    def assume(self, shape: Shape, row: int, snapshot: Snapshot) -> None:
        """The devices that a tentative pod would get are taken."""
        if shape.device_claims or shape.device_containers:
            world = world_of(snapshot)
            world.assume(shape, row, allocations_of(world, shape, row))

    def forget(self, shape: Shape, row: int, snapshot: Snapshot) -> None:
        """They are free again."""
        if shape.device_claims or shape.device_containers:
            world_of(snapshot).forget(shape, row)


def _claims(shape: Shape, snapshot: Snapshot) -> _Claims | None:
    if not shape.device_claims and not shape.device_containers:
        return None
    claims = _Claims(shape, snapshot)
    return claims if shape.device_claims or claims.backed else None


def _unknown_claim(world: DeviceWorld, shape: Shape) -> str:
    for ref in shape.device_claims:
        claim = world.claims.get(f"{shape.namespace}/{ref.name}")
        if claim is None:
            return f'could not find ResourceClaim "{shape.namespace}/{ref.name}"'
        if claim.deleting:
            return f'resourceclaim "{claim.name}" is being deleted'
        if ref.owned and claim.owner_uid != shape.owner[1]:
            pod = f"{shape.namespace}/{shape.owner[0]}"
            return f"ResourceClaim {claim.key} was not created for Pod {pod} (Pod is not owner)"
    return shape.claim_problem


def _unready_claim(world: DeviceWorld, shape: Shape) -> str:
    for ref in shape.device_claims:
        claim = world.claims[f"{shape.namespace}/{ref.name}"]
        if world.pending(claim.key):
            return f"resource claim {claim.key} is in the process of being allocated"
        if claim.allocation is None:
            text = next(filter(None, (_unknown_class(world, r, claim) for r in claim.requests)), "")
            if text:
                return text
    return ""


def _unknown_class(world: DeviceWorld, request: Request, claim: ClaimRow) -> str:
    forms = [(request.name, request.exactly)] if request.exactly is not None else []
    forms += [(f"{request.name}/{sub.name}", sub) for sub in request.alternatives]
    if not forms:
        return f"resource claim {claim.key}, request {request.name}: unknown request type"
    for name, form in forms:
        if form is not None and form.class_name not in world.classes:
            return f"request {name}: device class {form.class_name} does not exist"
    return ""
