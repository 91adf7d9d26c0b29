"""What is wrong with queues is named, and nothing is placed against them."""

from __future__ import annotations

import msgspec
import pytest

from stretto.quota.accounts import NO_LEVEL, Accounts, may_leave
from stretto.quota.rows import Queue, QueueRow, decode_queue, encode_quota, queue_row_of
from stretto.quota.tree import MAX_DEPTH, Tree


def row_of(**spec: object) -> QueueRow:
    body = msgspec.json.encode({"metadata": {"name": "q"}, "spec": spec})
    return queue_row_of(msgspec.json.decode(body, type=Queue))


def test_amounts_are_read_in_the_units_that_pods_are_counted_in() -> None:
    row = row_of(
        guaranteed={"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": 8}, limit={"pods": 5}
    )
    assert row.guaranteed == (("cpu", 1500), ("memory", 1 << 30), ("nvidia.com/gpu", 8))
    assert (row.limit, row.weight, row.problem) == ((("pods", 5),), 1, "")


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"limit": {"cpu": "-1"}}, "spec.limit: cpu: '-1' is negative; a resource amount is 0 or"),
        ({"guaranteed": {"memory": -5}}, "spec.guaranteed: memory: '-5' is negative"),
        ({"guaranteed": {"cpu": "lots"}}, "spec.guaranteed: cpu: 'lots' is not a quantity"),
        ({"weight": 0}, "spec.weight: 0 is not in 1..1000000"),
        ({"weight": -3}, "spec.weight: -3 is not in"),
        ({"weight": 1 << 64}, "spec.weight: 18446744073709551616 is not in"),
        ({"minRuntimeSeconds": -1}, "spec.minRuntimeSeconds: -1 is not in"),
        ({"minRuntimeSeconds": 1 << 64}, "spec.minRuntimeSeconds: 18446744073709551616 is not in"),
    ],
)
def test_fields_that_make_no_sense_are_the_queues_problem(
    spec: dict[str, object], problem: str
) -> None:
    row = row_of(**spec)
    assert decode_queue(encode_quota(row)) == row, "it goes through the log"
    assert row.problem.startswith(problem)
    assigned = Tree({"q": row}).assigned("default", "q")
    assert assigned.queue is None
    assert problem in assigned.problem


def test_a_cycle_is_the_problem_of_all_on_it_and_below_it() -> None:
    tree = Tree(
        {
            "a": QueueRow(parent="b"),
            "b": QueueRow(parent="c"),
            "c": QueueRow(parent="a"),
            "below": QueueRow(parent="a"),
            "other": QueueRow(),
        }
    )
    for name in ("a", "b", "c", "below"):
        assert "its parents are a cycle" in tree.assigned("default", name).problem
    assert "a → b → c → a" in tree.assigned("default", "below").problem
    assert tree.assigned("default", "other").queue is tree.nodes["other"]


def test_an_unknown_parent_and_a_tree_too_deep() -> None:
    rows = {"orphan": QueueRow(parent="gone"), "below": QueueRow(parent="orphan")}
    rows |= {f"d{n}": QueueRow(parent=f"d{n - 1}" if n else "") for n in range(MAX_DEPTH + 1)}
    tree = Tree(rows)
    assert tree.nodes["orphan"].problem == 'its parent "gone" does not exist'
    assert '"orphan" above it names a parent "gone"' in tree.nodes["below"].problem
    assert tree.nodes[f"d{MAX_DEPTH - 1}"].problem == ""
    assert "deep" in tree.nodes[f"d{MAX_DEPTH}"].problem


def test_a_problem_above_is_a_problem_below() -> None:
    tree = Tree({"a": QueueRow(problem="spec.weight: 0"), "b": QueueRow(parent="a")})
    assert tree.nodes["b"].problem == '"a" above it: spec.weight: 0'


def test_the_queue_of_a_pod_by_label_by_namespace_and_where_both_speak() -> None:
    rows = {"org": QueueRow(), "team": QueueRow(parent="org"), "else": QueueRow()}
    tree = Tree(rows, {"ns": "org", "lost": "gone"})
    assert tree.assigned("free", "") == (None, "")
    assert tree.assigned("free", "team").queue is tree.nodes["team"]
    assert tree.assigned("ns", "").queue is tree.nodes["org"]
    assert tree.assigned("ns", "team").queue is tree.nodes["team"]
    assert "is not below queue" in tree.assigned("ns", "else").problem
    assert 'which namespace "lost" names, does not exist' in tree.assigned("lost", "").problem
    assert "which the pod names, does not exist" in tree.assigned("free", "gone").problem


def test_guarantees_that_cannot_all_be_kept_are_a_warning() -> None:
    def cpu(amount: int) -> tuple[tuple[str, int], ...]:
        return (("cpu", amount),)

    tree = Tree({
        "top": QueueRow(guaranteed=cpu(10)),
        "a": QueueRow(parent="top", guaranteed=cpu(6)),
        "b": QueueRow(parent="top", guaranteed=cpu(6)),
        "c": QueueRow(guaranteed=cpu(2), limit=cpu(1)),
    })  # fmt: skip
    assert "guaranteed more cpu than it is guaranteed" in tree.warning(tree.nodes["top"])
    assert "more cpu than its limit" in tree.warning(tree.nodes["c"])
    assert tree.warning(tree.nodes["a"]) == ""


def test_levels_limits_and_who_may_be_reclaimed() -> None:
    def cpu(amount: int) -> tuple[tuple[str, int], ...]:
        return (("cpu", amount),)

    tree = Tree({
        "top": QueueRow(limit=cpu(20), guaranteed=cpu(10)),
        "a": QueueRow(parent="top", guaranteed=cpu(4)),
        "b": QueueRow(parent="top"),
        "c": QueueRow(),
    })  # fmt: skip
    top, a, b, c = (tree.nodes[name] for name in ("top", "a", "b", "c"))
    sums = Accounts()
    assert (sums.level(a, cpu(4)), sums.level(a, cpu(5)), sums.level(a, cpu(11))) == (
        1,
        0,
        NO_LEVEL,
    )
    assert (sums.level(b, cpu(4)), sums.level(c, cpu(1))) == (0, NO_LEVEL)
    assert sums.level(a, (("pods", 1),)) == NO_LEVEL, "it asks for nothing that is guaranteed"
    sums.use(a, cpu(18))
    assert sums.over(b, cpu(3)) == (top, "cpu")
    assert (sums.over(b, cpu(2)), sums.room(b, cpu(1), 9)) == (None, 2)
    # A pod of c borrows: whoever is guaranteed may take its room once it is of age.
    assert may_leave(c, NO_LEVEL, aged=True, lower=False, unit=b, level=0)
    assert not may_leave(c, NO_LEVEL, aged=False, lower=False, unit=b, level=0)
    # b is guaranteed by top only: that counts against c, not against a's own guarantee.
    assert not may_leave(b, 0, aged=True, lower=True, unit=c, level=NO_LEVEL)
    assert may_leave(b, 0, aged=True, lower=False, unit=a, level=1)
    assert not may_leave(a, 1, aged=True, lower=True, unit=b, level=0)
    # Whom no queue concerns is a matter of priority.
    assert may_leave(None, NO_LEVEL, aged=False, lower=True, unit=a, level=1)
    assert not may_leave(None, NO_LEVEL, aged=True, lower=False, unit=a, level=1)
    assert may_leave(a, 1, aged=True, lower=True, unit=None, level=NO_LEVEL)
