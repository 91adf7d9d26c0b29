"""What nominated pods are promised counts for others as used, and is kept sum by sum."""

from __future__ import annotations

import random

from stretto.model.shape import Shape
from stretto.quota.rows import QueueRow, UsageRow
from stretto.quota.view import QuotaView
from tests.quota.market import shape_of


def cpu(amount: int) -> tuple[tuple[str, int], ...]:
    return (("cpu", amount),)


def nominated(shape: Shape) -> Shape:
    fields = {name: getattr(shape, name) for name in shape.__struct_fields__}
    return Shape(**fields | {"nominated_node": "n"})


def view_of(**rows: QueueRow) -> QuotaView:
    view = QuotaView()
    view.served(True)
    for name, row in rows.items():
        view.queue(name, row)
    return view


def test_others_leave_what_is_promised_and_a_nominated_pod_has_its_own() -> None:
    view = view_of(org=QueueRow(limit=cpu(5)), a=QueueRow(parent="org"), b=QueueRow(parent="org"))
    one = shape_of("a", 2)
    assert view.room(shape_of("b", 1), 9) == 5
    view.nominate(one, 1)
    view.nominate(one, 1)
    assert view.room(shape_of("b", 1), 9) == 1
    assert view.refusal(one) == "waiting for quota: queue org above queue a is at its limit of cpu"
    assert view.refusal(nominated(one)) == ""
    assert view.room(nominated(one), 9) == 1
    view.nominate(one, -1)
    assert view.room(shape_of("b", 1), 9) == 3
    view.nominate(one, -1)
    assert view.room(shape_of("b", 1), 9) == 5


def test_what_is_promised_moves_with_its_queue() -> None:
    view = view_of(org=QueueRow(limit=cpu(5)), a=QueueRow(parent="org"), c=QueueRow(limit=cpu(9)))
    view.nominate(shape_of("a", 2), 1)
    assert view.room(shape_of("org", 1), 9) == 3
    view.queue("a", QueueRow(parent="c"))
    assert (view.room(shape_of("org", 1), 9), view.room(shape_of("c", 1), 9)) == (5, 7)


def test_sums_kept_step_by_step_are_those_counted_anew() -> None:
    rng = random.Random(5)
    queues = {f"q{n}": QueueRow(parent=f"q{n // 2}" if n else "") for n in range(8)}
    view = view_of(**queues)
    there: list[Shape] = []
    for _ in range(400):
        if there and rng.random() < 0.5:
            view.nominate(there.pop(rng.randrange(len(there))), -1)
        else:
            there.append(shape_of(f"q{rng.randrange(8)}", rng.randrange(1, 4)))
            view.nominate(there[-1], 1)
        fresh = view_of(**queues)
        for shape in there:
            fresh.nominate(shape, 1)
        for name in queues:
            view.queue(name, QueueRow(parent=queues[name].parent, limit=cpu(30)))
            fresh.queue(name, QueueRow(parent=queues[name].parent, limit=cpu(30)))
        asked = shape_of(f"q{rng.randrange(8)}", 1)
        assert view.room(asked, 99) == fresh.room(asked, 99)


def test_what_is_tentative_counts_once_also_after_the_queues_have_changed() -> None:
    view = QuotaView()
    view.served(True)
    view.queue("a", QueueRow())
    pod = Shape(profile="stretto", namespace="default", queue="a", requests=(("cpu", 100),))
    view.suppose(pod, 2)
    for weight in (1, 2, 3):
        view.queue("a", QueueRow(weight=weight))
        account = view.accounts.of(view.tree.nodes["a"])
        assert account.used == account.held == {"cpu": 200, "pods": 2}
    view.usage("a", UsageRow(used=(("cpu", 300),)))
    assert view.accounts.of(view.tree.nodes["a"]).used == {"cpu": 500, "pods": 2}
    view.suppose(pod, -2)
    assert view.accounts.of(view.tree.nodes["a"]).used == {"cpu": 300}


def test_queues_that_are_no_longer_served_forget_what_was_counted_beside_the_log() -> None:
    view = view_of(a=QueueRow(limit=cpu(5)))
    view.suppose(shape_of("a", 3), 1)
    view.promise(shape_of("a", 1), 1)
    assert view.room(shape_of("a", 1), 9) == 1
    version = view.version
    view.served(True)
    assert view.version == version, "nothing has changed"
    view.served(False)
    assert not view.on
    view.served(True)
    assert view.room(shape_of("a", 1), 9) == 5


def test_a_namespace_that_loses_its_label_is_in_no_queue() -> None:
    view = view_of(a=QueueRow(limit=cpu(5)))
    unlabelled = Shape(profile="stretto", namespace="team", requests=cpu(6))
    assert view.refusal(unlabelled) == ""
    view.namespace("team", "a")
    assert "queue a is at its limit" in view.refusal(unlabelled)
    view.namespace("team", "")
    assert view.refusal(unlabelled) == ""
    view.namespace("team", "")
    view.namespace("team", "gone")
    assert "gone" in view.refusal(unlabelled)


def test_usage_of_a_queue_that_is_not_there_yet_counts_when_it_comes() -> None:
    view = view_of(a=QueueRow(limit=cpu(5)))
    assert view.room(shape_of("a", 1), 9) == 5
    view.usage("late", UsageRow(used=cpu(4)))
    assert view.room(shape_of("a", 1), 9) == 5
    view.queue("late", QueueRow(limit=cpu(5)))
    assert view.room(shape_of("late", 1), 9) == 1
    view.usage("late", None)
    assert view.room(shape_of("late", 1), 9) == 5


def test_what_is_exactly_at_the_limit_has_room_whatever_else_is_used_or_promised() -> None:
    view = view_of(a=QueueRow(limit=(("cpu", 5), ("memory", 5))))
    whole = Shape(profile="stretto", namespace="team", queue="a", requests=cpu(5))
    assert view.refusal(whole) == "", "nothing is used"
    view.usage("a", UsageRow(used=(("memory", 5),)))
    assert view.refusal(whole) == "", "none of it is used"
    other = Shape(profile="stretto", namespace="team", queue="a", requests=(("memory", 1),))
    view.nominate(other, 1)
    assert view.refusal(whole) == "", "none of it is promised"
    view.nominate(shape_of("a", 1), 1)
    assert "limit of cpu" in view.refusal(whole)
