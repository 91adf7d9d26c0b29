"""PostFilter of all plugins together, in the profile's order: what becomes of a pod that fits
nowhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from stretto.model.devices import ClaimRow
from stretto.placement.compiled import CompiledShape
from stretto.placement.evaluation import prefilter_status, steps
from stretto.placement.framework import Code, View
from stretto.placement.plugins.dynamic_resources import DeviceFilter
from stretto.placement.postfilter import PostFilterResult, PreemptionCandidate
from stretto.placement.preemption import NAME, Decision, Preemption, Refused, Tie
from stretto.placement.victims import Victims

NOT_FOUND = "not found"
DEALLOCATED = "deallocation of ResourceClaim completed"
_DEVICES = "DynamicResources"


def post_filter(
    compiled: CompiledShape,
    preemption: Preemption,
    *,
    tie: Tie,
    seed: int,
    pod: str,
    refused: Refused | None = None,
) -> PostFilterResult:
    """The first plugin that helps or fails decides; the texts of those that do not are joined.

    DynamicResources' PostFilter fails when its PreFilter was never reached, because another plugin
    had rejected the pod for good before; preemption does not run then (kube-scheduler 1.37.2).
    ``pod``: the uid of the pod; ``refused``: see :meth:`Preemption.decide`.
    """
    texts: list[str] = []
    release = None
    for plugin in compiled.profile.points.get("postFilter", ()):
        if plugin == _DEVICES and _stopped_before(_DEVICES, compiled):
            return PostFilterResult(Code.ERROR, NOT_FOUND)
        if plugin == _DEVICES:
            release = _releasable(compiled, pod or compiled.shape.owner[1])
            texts += [] if release is None else [DEALLOCATED]
        if plugin == NAME:
            decision = preemption.decide(
                compiled, tie=tie, seed=seed, args=compiled.profile.preemption, refused=refused
            )
            found = _told(decision)
            message = ", ".join([*texts, found.message])
            return msgspec.structs.replace(found, message=message, release=release)
    return PostFilterResult(Code.UNSCHEDULABLE, ", ".join(texts), release=release)


def _releasable(compiled: CompiledShape, pod: str) -> ClaimRow | None:
    """The claim whose allocation is of no use where the pod could go, and of which nobody else
    makes use: giving it up may help. Upstream takes a random one; this is the first."""
    devices = next((each for each in compiled.filters if isinstance(each, DeviceFilter)), None)
    if devices is None or prefilter_status(compiled) is not None:
        return None
    snapshot = compiled.snapshot
    for plugin, _, alive in steps(compiled, snapshot):
        if plugin == _DEVICES:
            return next(iter(devices.releasable(View(snapshot), alive, pod=pod)), None)
    return None


def _stopped_before(plugin: str, compiled: CompiledShape) -> bool:
    """Whether PreFilter ended before it reached a plugin."""
    rejected = prefilter_status(compiled)
    if rejected is None or rejected.code is Code.UNSCHEDULABLE:
        return False
    order = compiled.profile.points.get("preFilter", ())
    if plugin not in order:
        return False
    names = (rejected.plugin,) if rejected.plugin else compiled.named_plugins
    return all(order.index(name) < order.index(plugin) for name in names if name in order)


def preempt_among(
    compiled: CompiledShape,
    preemption: Preemption,
    chosen: Mapping[int, Collection[str]],
    *,
    tie: Tie,
) -> PostFilterResult:
    """What preemption can do on the candidates (row → victims) that extenders left."""
    return _told(preemption.among(compiled, chosen, tie=tie))


def _told(decision: Decision) -> PostFilterResult:
    victims = decision.victims
    return PostFilterResult(
        Code.UNSCHEDULABLE if victims is None else Code.SUCCESS,
        f"preemption: {decision.message}",
        nominate=decision.nominate,
        victims=() if victims is None else uids_of(victims),
    )


def with_dry_run(
    result: PostFilterResult, compiled: CompiledShape, preemption: Preemption
) -> PostFilterResult:
    """The same result with every node that was a candidate, and why the others were not: for
    people and for golden cases."""
    if result.nominate is None:
        return result
    run = preemption.dry_run(compiled)
    works = sorted(run.works.items())
    candidates = [PreemptionCandidate(r, uids_of(v), len(v.violating)) for r, v in works]
    fails = tuple(sorted(run.fails.items()))
    return msgspec.structs.replace(result, candidates=tuple(candidates), dry_run=fails)


def uids_of(victims: Victims) -> tuple[str, ...]:
    """The uids of victims, most important first."""
    return tuple(pod.record.uid for pod in victims.pods)
