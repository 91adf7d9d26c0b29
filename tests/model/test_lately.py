"""What was made lately is not made again, and little is kept."""

from __future__ import annotations

import threading

from stretto.model.lately import Lately, LatelyOf


def test_the_last_few_are_not_made_again() -> None:
    made: list[str] = []
    lately: Lately[str] = Lately(2)

    def ask(key: str) -> str:
        def make() -> str:
            made.append(key)
            return key.upper()

        return lately.of_key(key, make)

    assert [ask(key) for key in "abaab"] == list("ABAAB")
    assert made == ["a", "b"]
    assert [ask(key) for key in "cba"] == list("CBA")  # a was the oldest, and gave way to c
    assert made == ["a", "b", "c", "a"]
    lately.clear()
    ask("a")
    assert made[4:] == ["a"]


def test_equal_objects_are_told_apart_and_none_gets_what_is_anothers() -> None:
    lately: LatelyOf[int] = LatelyOf(2)
    one, other = [1], [1]
    assert lately.of(one, lambda: 1) == lately.of(one, lambda: 2) == 1
    assert lately.of(other, lambda: 2) == 2
    for number in range(100):  # each at the address of one that is gone
        assert lately.of([number], lambda number=number: number) == number


def test_threads_that_ask_for_the_same_at_once_both_get_it() -> None:
    lately: Lately[str] = Lately(1)
    both = threading.Barrier(2, timeout=20)
    found: list[str] = []

    def make() -> str:
        both.wait()
        return "made"

    threads = [
        threading.Thread(target=lambda: found.append(lately.of_key("a", make))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["made", "made"]
    assert lately.of_key("a", lambda: "again") == "made"
