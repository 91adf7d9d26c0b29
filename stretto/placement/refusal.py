"""Pods that are refused because a hard constraint on them is not built (design §12.14).

Placing such a pod as if the constraint were absent would break a promise to its owner, or to the
owner of a pod that keeps others away; so it waits with a condition that names the constraint.
"""

from __future__ import annotations

from stretto.model.selector import requirements_match
from stretto.model.shape import PodTerm, Shape
from stretto.placement.profiles import Profile
from stretto.placement.registry import POINTS
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import ANTI_AFFINITY_TERM, NAMESPACE, decode_labels, decode_term

LIVE_UNBUILT = frozenset({
    "PodTopologySpread", "InterPodAffinity",
    "VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone",
    "DynamicResources",
})  # fmt: skip
"""Plugins that the kernel has and that pods of a cluster may not rely on yet."""
_REMEMBERED = 4096
_NAME_LABEL = "kubernetes.io/metadata.name"


class Refusals:
    """Answers per shape, remembered while no object changes."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._version: tuple[int, ...] = ()
        self._terms: list[PodTerm] = []
        self._namespaces: dict[str, dict[str, str]] = {}
        self._answers: dict[bytes, str] = {}

    def of(self, shape: Shape, profile: Profile | None) -> str:
        """'' when the shape may be placed, otherwise a sentence that names the constraint."""
        self._refresh()
        answer = self._answers.get(shape.digest)
        if answer is None:
            if len(self._answers) >= _REMEMBERED:
                self._answers.clear()
            answer = self._answers[shape.digest] = self._answer(shape, profile)
        return answer

    def _refresh(self) -> None:
        version = tuple(map(self._snapshot.kind_version, (ANTI_AFFINITY_TERM, NAMESPACE)))
        if version == self._version:
            return
        self._version = version
        self._answers.clear()
        terms = self._snapshot.objects(ANTI_AFFINITY_TERM)
        self._terms = [decode_term(payload) for payload in terms.values()]
        namespaces = self._snapshot.objects(NAMESPACE)
        self._namespaces = {name: decode_labels(payload) for name, payload in namespaces.items()}

    def _answer(self, shape: Shape, profile: Profile | None) -> str:
        if profile is None:
            return f"there is no profile for schedulerName {shape.profile}"
        on = {*profile.unbuilt_filters, *(LIVE_UNBUILT & {p.name for p in profile.filters})}
        off = (name for name in POINTS["filter"] if name not in on)
        disabled = tuple(f"{name}:" for name in off)
        asked = (text for text in shape.unbuilt_hard if not text.startswith(disabled))
        unbuilt = (*asked, *profile.unbuilt_hard)
        if unbuilt:
            return f"not supported by this release: {', '.join(unbuilt)}"
        for term in self._terms:
            if self._matches(term, shape):
                return (
                    "required anti-affinity of another pod matches this one "
                    f"(topologyKey {term.topology_key}); not supported by this release"
                )
        return ""

    def _matches(self, term: PodTerm, shape: Shape) -> bool:
        if term.selector is None or not self._covers(term, shape.namespace):
            return False
        return requirements_match(term.selector, dict(shape.labels))

    def _covers(self, term: PodTerm, namespace: str) -> bool:
        if namespace in term.namespaces:
            return True
        if term.namespace_selector is None:
            return False
        labels = self._namespaces.get(namespace, {_NAME_LABEL: namespace})
        return requirements_match(term.namespace_selector, labels)
