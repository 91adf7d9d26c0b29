"""The ring of encoded steps: bounded in bytes, and honest about what it no longer has."""

from __future__ import annotations

from binder.log import Log


def log_of(*sizes: int, limit_bytes: int = 100) -> Log:
    """Steps of these sizes after step 10."""
    log = Log(epoch=7, sequence=10, limit_bytes=limit_bytes)
    for number, size in enumerate(sizes, start=11):
        log.append(number, bytes([number]) * size)
    return log


def test_steps_are_kept_up_to_the_limit_and_not_a_byte_more() -> None:
    assert log_of(50, 50).statistics() == {"steps": 2, "bytes": 100, "sequence": 12}
    assert log_of(50, 50, 1).statistics() == {"steps": 2, "bytes": 51, "sequence": 13}


def test_the_newest_step_is_kept_whatever_its_size() -> None:
    log = log_of(10, 500)
    assert log.statistics() == {"steps": 1, "bytes": 500, "sequence": 12}
    log.append(13, b"x")
    assert log.statistics() == {"steps": 1, "bytes": 1, "sequence": 13}


def test_a_follower_goes_on_after_the_last_step_it_has_or_needs_a_full_state() -> None:
    log = log_of(40, 40, 40)  # 11 is trimmed
    assert [step.sequence for step in log.after(11) or []] == [12, 13]
    assert [step.data[0] for step in log.after(12) or []] == [13]
    assert log.after(13) == []
    assert log.after(10) is None
    assert [log.can_resume(epoch=7, sequence=n) for n in (10, 11, 13, 14)] == [
        False, True, True, False,
    ]  # fmt: skip
    assert not log.can_resume(epoch=6, sequence=12)


def test_steps_are_handed_out_so_many_at_a_time() -> None:
    log = log_of(*([1] * 9))
    assert [step.sequence for step in log.after(10, limit=4) or []] == [11, 12, 13, 14]
    assert [step.sequence for step in log.after(17, limit=4) or []] == [18, 19]


def test_a_log_without_steps_has_nothing_to_send() -> None:
    assert log_of().after(10) == []
    assert log_of().after(9) is None
    assert log_of().can_resume(epoch=7, sequence=10)
