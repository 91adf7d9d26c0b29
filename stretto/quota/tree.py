"""The tree of queues: who is below whom, what is wrong with it, and whose queue a pod is in.

A queue names one parent, so that a second one cannot be written down. Everything else that is wrong
is a *problem* of the queue and of all below it: an unknown parent, a cycle, too deep a tree, a
field that makes no sense. Nothing is placed against a queue with a problem.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from stretto.quota.rows import QueueRow

MAX_DEPTH = 8
"""Queues from a root to a leaf; it bounds what a check costs, and the depth fits in a pod's
flags."""


class QueueNode:
    """A queue in its tree."""

    __slots__ = ("children", "depth", "guaranteed", "limit", "name", "path", "problem", "row")

    def __init__(self, name: str, row: QueueRow) -> None:
        self.name = name
        self.row = row
        self.guaranteed = dict(row.guaranteed)
        self.limit = dict(row.limit)
        self.problem = row.problem
        self.path: tuple[QueueNode, ...] = (self,)
        """Itself, its parent, … its root."""
        self.children: list[QueueNode] = []
        self.depth = 0
        """Of a root: 0."""

    def __repr__(self) -> str:
        return f"<queue {self.name} depth {self.depth}>"

    @property
    def root(self) -> QueueNode:
        """The top of its tree."""
        return self.path[-1]

    def at(self, depth: int) -> QueueNode:
        """Its ancestor, or itself, at a depth."""
        assert 0 <= depth <= self.depth, f"{self!r} has no ancestor at depth {depth}"
        return self.path[self.depth - depth]

    def contains(self, other: QueueNode) -> bool:
        """Whether another queue is this one or below it."""
        return other.depth >= self.depth and other.at(self.depth) is self


class Assigned(NamedTuple):
    """Whose queue a pod is in."""

    queue: QueueNode | None
    """None: no queue; then, if there is a problem, it is not placed."""
    problem: str = ""


NOWHERE = Assigned(None)


class Tree:
    """All queues; ``namespaces``: name → what its label says, if it has the label."""

    def __init__(
        self,
        rows: Mapping[str, QueueRow] | None = None,
        namespaces: Mapping[str, str] | None = None,
    ) -> None:
        self._namespaces = dict(namespaces or {})
        self.nodes = {name: QueueNode(name, row) for name, row in sorted((rows or {}).items())}
        self._assigned: dict[tuple[str, str], Assigned] = {}
        self._charged: dict[tuple[str, str], QueueNode | None] = {}
        for node in self.nodes.values():
            self._look_at(node)
        for node in self.nodes.values():
            if len(node.path) > 1 and not node.problem:
                node.path[1].children.append(node)

    def __iter__(self) -> Iterator[QueueNode]:
        return iter(self.nodes.values())

    def _look_at(self, node: QueueNode) -> None:
        """Find the way to the root, or what is wrong on it."""
        path, seen = [node], {node.name}
        while parent := path[-1].row.parent:
            above = self.nodes.get(parent)
            if above is None:
                own = f'its parent "{parent}" does not exist'
                far = f'"{path[-1].name}" above it names a parent "{parent}" that does not exist'
                node.problem = node.problem or (own if len(path) == 1 else far)
                return
            if parent in seen:
                names = [each.name for each in path]
                ring = [*names[names.index(parent) :], parent]
                node.problem = node.problem or f"its parents are a cycle: {' → '.join(ring)}"
                return
            seen.add(parent)
            path.append(above)
            if len(path) > MAX_DEPTH:
                node.problem = node.problem or f"it is more than {MAX_DEPTH} deep in its tree"
                return
        above_problem = next((each for each in path[1:] if each.row.problem), None)
        if above_problem is not None and not node.problem:
            node.problem = f'"{above_problem.name}" above it: {above_problem.row.problem}'
        node.path = tuple(path)
        node.depth = len(path) - 1

    def warning(self, node: QueueNode) -> str:
        """What an operator should mend although pods are placed: guarantees that cannot all be
        kept."""
        for name, amount in sorted(node.guaranteed.items()):
            if amount > node.limit.get(name, amount):
                return f"it is guaranteed more {name} than its limit"
        if not node.children:
            return ""
        for name in sorted({name for child in node.children for name in child.guaranteed}):
            promised = sum(child.guaranteed.get(name, 0) for child in node.children)
            for word, own in (("guaranteed", node.guaranteed), ("its limit", node.limit)):
                if promised > own.get(name, promised):
                    return f"the queues below it are guaranteed more {name} than it is {word}"
        return ""

    def assigned(self, namespace: str, label: str) -> Assigned:
        """The queue of a pod in a namespace with this label (or ""); a pod's label chooses among
        the queues below the one of its namespace."""
        key = namespace, label
        found = self._assigned.get(key)
        if found is None:
            found = self._assigned[key] = self._assign(namespace, label)
        return found

    def charged(self, namespace: str, label: str) -> QueueNode | None:
        """Where a pod counts that runs. That is its queue; if nothing is placed against that one
        any more (it was deleted, or something in it or above it makes no sense), the nearest above
        it that can be used, or else the one of its namespace: what runs takes its room whatever
        became of its queue."""
        key = namespace, label
        if key not in self._charged:
            queue, problem = self.assigned(namespace, label)
            if problem:
                named = [label] if self._within(namespace, label) else []
                named.append(self._namespaces.get(namespace, ""))
                queue = next((q for q in map(self._usable, named) if q is not None), None)
            self._charged[key] = queue
        return self._charged[key]

    def _within(self, namespace: str, label: str) -> bool:
        """Whether a label names a queue that pods of a namespace may be in, usable or not."""
        default = self._namespaces.get(namespace, "")
        return not default or default in self._way(label)

    def _usable(self, name: str) -> QueueNode | None:
        """The nearest queue without a problem, from one upwards."""
        for each in self._way(name):
            if not self.nodes[each].problem:
                return self.nodes[each]
        return None

    def _way(self, name: str) -> dict[str, None]:
        """A queue and those above it, as far as there are any."""
        way: dict[str, None] = {}
        while name in self.nodes and name not in way:
            way[name] = None
            name = self.nodes[name].row.parent
        return way

    def _assign(self, namespace: str, label: str) -> Assigned:
        default = self._namespaces.get(namespace, "")
        name = label or default
        if not name:
            return NOWHERE
        queue = self.nodes.get(name)
        if queue is None:
            named = "the pod" if label else f'namespace "{namespace}"'
            return Assigned(None, f'queue "{name}", which {named} names, does not exist')
        if queue.problem:
            return Assigned(None, f'queue "{name}" cannot be used: {queue.problem}')
        above = self.nodes.get(default)
        if label and default and (above is None or not above.contains(queue)):
            return Assigned(
                None, f'queue "{label}" is not below queue "{default}" of namespace "{namespace}"'
            )
        return Assigned(queue)


def covers_no_less(new: QueueNode, old: QueueNode) -> bool:
    """Whether a guarantee covers all that it covered: what it names is the same, and no less.
    One that names more covers fewer pods, as it covers a pod whole or not at all."""
    same = new.guaranteed.keys() == old.guaranteed.keys()
    return same and all(amount >= old.guaranteed[n] for n, amount in new.guaranteed.items())


def has_grown(root: QueueNode, old: Tree) -> bool:
    """Whether a guarantee somewhere below a root is not what it was."""
    before = old.nodes.get(root.name)
    same = before is not None and before.guaranteed == root.guaranteed
    return not same or any(has_grown(each, old) for each in root.children)
