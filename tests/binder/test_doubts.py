"""When binds that no watch shows are read."""

from __future__ import annotations

from binder.doubts import DOUBT_BEATS, Doubts


def test_now_and_then() -> None:
    doubts = Doubts()
    assert [doubts.beat(lists=0) for _ in range(2 * DOUBT_BEATS)].count(True) == 2


def test_twice_after_each_list_so_that_who_waited_before_it_is_read() -> None:
    doubts = Doubts()
    beats = [doubts.beat(lists=lists) for lists in (0, 1, 1, 1, 2, 3, 3, 3)]
    assert beats == [False, True, True, False, True, True, True, False]
