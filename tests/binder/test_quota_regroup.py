"""Queues and namespaces change under pods that run: what counts where, and what that costs."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from binder.quota import QuotaBook
from binder.quota_pods import Counted, Placed
from stretto.quota.accounts import NO_LEVEL
from stretto.quota.rows import QueueRow, UsageRow
from stretto.quota.view import level_of
from tests.binder.test_quota import book_of, cpu
from tests.binder.world import shape_of


class Field:
    """A book, the pods that it counts, and what it has told."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.pods: dict[str, Placed] = {}
        self.rows: dict[str, QueueRow] = {}
        self.label = ""
        """Of the namespace."""
        self.made = 0
        self.now_s = 1000
        self.told: dict[str, UsageRow] = {}
        self.flags: dict[str, int] = {}
        self.book = self.new_book()

    def new_book(self) -> QuotaBook:
        book = QuotaBook(placed=self.pods.get, all_pods=lambda: list(self.pods))
        book.served(True)
        book.tick(self.now_s)
        book.namespace("default", self.label)
        for name, row in self.rows.items():
            book.queue(name, row)
        return book

    def step(self) -> None:
        action, name = self.rng.random(), f"q{self.rng.randrange(6)}"
        if action < 0.3:
            self.made += 1
            label = self.rng.choice(["", name, "q7"])
            uid, amount = f"u{self.made}", self.rng.choice([100, 100, 200])
            self.pods[uid] = Placed(shape_of(amount, queue=label), self.now_s, False)
            self.book.touch(uid)
        elif action < 0.4 and self.pods:
            uid = self.rng.choice(sorted(self.pods))
            self.pods.pop(uid)
            self.book.touch(uid)
        elif action < 0.45 and self.pods:
            uid = self.rng.choice(sorted(self.pods))
            self.pods[uid] = self.pods[uid]._replace(leaving=True)
            self.book.touch(uid)
        elif action < 0.55:
            self.label = self.rng.choice(["", name])
            self.book.namespace("default", self.label)
        elif action < 0.65:
            self.rows.pop(name, None)
            self.book.queue(name, None)
        else:
            self.rows[name] = self.row(name)
            self.book.queue(name, self.rows[name])
        self.now_s += self.rng.randrange(30)
        self.book.tick(self.now_s)

    def row(self, name: str) -> QueueRow:
        parent = self.rng.choice(["", "", "q0", "q1", "q2", "gone"])
        return QueueRow(
            parent="" if parent == name else parent,
            guaranteed=self.rng.choice([(), cpu(300), cpu(900), (*cpu(500), ("pods", 3))]),
            limit=self.rng.choice([(), cpu(700)]),
            min_runtime_s=self.rng.choice([0, 0, 60]),
            problem=self.rng.choice(["", "", "", "it makes no sense"]),
        )

    def settle(self) -> list[str]:
        rows, flagged = self.book.settle()
        for name, row in rows:
            if row is None:
                del self.told[name]
            else:
                self.told[name] = row
        for uid in flagged:
            self.flags[uid] = self.book.flags_of(uid)
        self.book.settled()
        self.book.validate()
        return flagged

    def used(self) -> dict[str, int]:
        """Where pods count, found out plainly: upwards from what they name."""
        sums = dict.fromkeys(self.rows, 0)
        for placed in self.pods.values():
            way = self.way(placed.shape.queue)
            if self.label and self.label not in way:
                way = []
            way = self.usable(way) or self.usable(self.way(self.label))
            for name in way:
                sums[name] += dict(placed.shape.requests)["cpu"]
        return sums

    def way(self, name: str) -> list[str]:
        way: list[str] = []
        while name in self.rows and name not in way:
            way.append(name)
            name = self.rows[name].parent
        return way

    def usable(self, way: Iterable[str]) -> list[str]:
        """From the first on that is sound up to a root that is one."""
        for name in way:
            above = self.way(name)
            top = self.rows[above[-1]]
            sound = not top.parent and not any(self.rows[each].problem for each in above)
            if sound:
                return above
        return []


@pytest.mark.parametrize("seed", range(20))
def test_sums_are_those_of_the_pods_whatever_becomes_of_queues(seed: int) -> None:
    field = Field(seed)
    field.settle()
    nowhere = 0
    for _ in range(150):
        field.step()
        if field.rng.random() < 0.6:
            field.settle()
            told = {name: dict(row.used).get("cpu", 0) for name, row in field.told.items()}
            assert told == field.used()
            nowhere += field.book.unaccounted
            for counted in field.book._pods.values():
                if counted.source.queue is not None:
                    due = counted.since_s + field.rows[counted.queue.name].min_runtime_s
                    assert counted.aged == (due <= field.now_s)
            for uid in field.pods:
                assert field.flags.get(uid, 0) == field.book.flags_of(uid), "all flags are told"
    assert nowhere


@pytest.mark.parametrize("seed", range(20))
def test_after_any_change_guarantees_cover_as_much_as_in_a_book_that_begins_anew(seed: int) -> None:
    """Of pods of one size: which of them a guarantee covers depends on what came when, and how many
    does not."""
    field = Field(seed)
    field.settle()
    for _ in range(100):
        field.step()
        field.pods.update(
            {u: p._replace(shape=shape_of(100, queue=p.shape.queue)) for u, p in field.pods.items()}
        )
        for uid in field.pods:
            field.book.touch(uid)
        field.settle()
    before = {name: dict(row.held).get("cpu", 0) for name, row in field.told.items()}
    anew = field.new_book()
    held = {name: dict(row.held).get("cpu", 0) for name, row in anew.settle()[0] if row is not None}
    assert {name: held.get(name, 0) for name in before} == before


def test_pods_are_not_counted_again_because_of_a_queue_that_is_not_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pods = {f"u{n}": Placed(shape_of(100), n + 1, False) for n in range(300)}
    book = book_of(pods, QueueRow(guaranteed=cpu(1000), parent="org"))
    book.queue("org", QueueRow())
    book.settle()
    looked: list[str] = []

    def placed(uid: str) -> Placed | None:
        looked.append(uid)
        return pods.get(uid)

    monkeypatch.setattr(book, "_placed", placed)
    entered: list[str] = []
    enter = book._enter

    def noted(counted: Counted) -> None:
        entered.append(counted.uid)
        enter(counted)

    monkeypatch.setattr(book, "_enter", noted)
    book.queue("beside", QueueRow(parent="org", guaranteed=cpu(500)))
    book.queue("q", QueueRow(guaranteed=cpu(1200), parent="org", limit=cpu(9000), weight=3))
    book.namespace("elsewhere", "beside")
    _, flagged = book.settle()
    assert flagged == looked == ["u10", "u11"], "the guarantee has grown by two"
    assert entered == []
    book.queue("q", QueueRow(guaranteed=cpu(500), parent="org"))
    _, flagged = book.settle()
    assert flagged == [f"u{n}" for n in range(5, 12)]
    assert entered == [f"u{n}" for n in range(12)], "those that the guarantee covered"
    book.validate()


def test_what_runs_in_a_queue_that_goes_counts_above_it_or_in_the_namespace_s_queue() -> None:
    pods = {"u": Placed(shape_of(100, queue="team"), 1, False)}
    book = book_of(pods, QueueRow(guaranteed=cpu(1000)))
    assert book.unaccounted == 0, (
        "the label is no queue below that of the namespace; it counts there"
    )
    book.queue("team", QueueRow(parent="q", min_runtime_s=60))
    rows = dict(book.settle()[0])
    assert rows["team"] is not None
    assert rows["team"].used == (("cpu", 100), ("pods", 1))
    book.queue("team", QueueRow(parent="q", problem="it makes no sense"))
    rows = dict(book.settle()[0])
    assert rows == {"team": UsageRow()}, "nothing changes above it"
    book.queue("team", None)
    assert dict(book.settle()[0]) == {"team": None}
    assert level_of(book.flags_of("u")) == 0, "the guarantee of the namespace's queue covers it"
    book.namespace("default", "")
    assert dict(book.settle()[0]) == {"q": UsageRow()}
    assert (book.unaccounted, level_of(book.flags_of("u"))) == (1, NO_LEVEL)
    book.validate()
