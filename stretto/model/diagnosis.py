"""Why a shape fits nowhere: kube-scheduler's sentence, and the numbers behind it for programs."""

from __future__ import annotations

from typing import Any

import msgspec

ALWAYS = "/unresolvable"
"""See :attr:`Diagnosis.rejectors`."""


class Rejected(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A reason of a plugin, and how many nodes it holds for."""

    plugin: str
    """Empty for what no plugin says: nodes that PreFilter left out, or frozen ones."""
    reason: str
    nodes: int
    unresolvable: int = 0
    """Those of them where preemption cannot help."""


class Diagnosis(msgspec.Struct, frozen=True):
    """Why a shape fits nowhere, at a version."""

    message: str
    """The text of kube-scheduler's FitError: "0/N nodes are available: …"."""
    plugins: tuple[str, ...]
    """Plugins that rejected at least one node; what may wake the unit."""
    nodes: int
    rejected: tuple[Rejected, ...] = ()
    """The reasons behind the message."""
    plugin_nodes: tuple[tuple[str, int], ...] = ()
    """(plugin, nodes that it rejected), each node counted once, with its first rejecting plugin."""
    prefilter: bool = False
    """The pod was rejected as a whole, whatever the node."""
    error: bool = False
    """A plugin or an extender failed; the message is its error (reason SchedulerError)."""
    clears: bool = False
    """Preemption cannot help: a nomination that the pod has is to be cleared."""
    group: str = ""
    """Of a gang: what its group is told; ``message`` is about the member that found no node."""
    found: int = 0
    """Of a gang: so many members found nodes before that one."""
    preemption: str = ""
    """Of a gang: what preemption does for it; told to the group and to those members."""
    waits: bool = False
    """Victims of an earlier decision have yet to leave: what was told then still holds."""

    @property
    def rejectors(self) -> tuple[str, ...]:
        """The plugins, as hints know them: one whose every rejection is unresolvable has
        ALWAYS appended, since no pod that leaves can help there."""
        open_ = {each.plugin for each in self.rejected if each.unresolvable < each.nodes}
        closed = {each.plugin for each in self.rejected} - open_
        return tuple(name + ALWAYS if name in closed else name for name in self.plugins)

    @property
    def counts(self) -> tuple[tuple[str, int], ...]:
        """(reason, nodes) pairs, sorted."""
        found: dict[str, int] = {}
        for each in self.rejected:
            found[each.reason] = found.get(each.reason, 0) + each.nodes
        return tuple(sorted(found.items()))


def as_json(
    diagnosis: Diagnosis, *, shape: bytes, profile: str, epoch: int, sequence: int
) -> dict[str, Any]:
    """The structured form of a diagnosis of a shape (its digest) at a version of the snapshot."""
    nodes = dict(diagnosis.plugin_nodes)
    plugins: dict[str, dict[str, Any]] = {}
    for each in diagnosis.rejected:
        entry = plugins.setdefault(
            each.plugin,
            {"plugin": each.plugin, "nodes": nodes.get(each.plugin, each.nodes), "reasons": []},
        )
        entry["reasons"].append(
            {"reason": each.reason, "nodes": each.nodes, "unresolvable": each.unresolvable}
        )
    return {
        "shape": shape.hex(),
        "profile": profile,
        "version": {"epoch": epoch, "sequence": sequence},
        "message": diagnosis.message,
        "nodes": diagnosis.nodes,
        "preFilter": diagnosis.prefilter,
        "error": diagnosis.error,
        "plugins": list(plugins.values()),
    }
