"""The rules of leadership, driven by a clock of the test's own."""

from __future__ import annotations

import pytest

from stretto.kube.lease import LeaseMachine, LeaseRecord, LeaseSettings, Step

SETTINGS = LeaseSettings(namespace="ns", name="binder", identity="me", address="10.0.0.1:7071")


def record(version: int, holder: str = "other", *, clean: bool = False) -> LeaseRecord:
    return LeaseRecord(version, holder, "10.0.0.2:7071", clean, transitions=3, epoch=6)


def leading(*, at: float = 100.0, version: int = 50) -> LeaseMachine:
    machine = LeaseMachine(SETTINGS)
    machine.observed(None, at)
    assert machine.next_step(at) is Step.CREATE
    machine.wrote(record(version, "me"), started=at)
    return machine


def test_nothing_is_valid_before_the_lease_is_held() -> None:
    machine = LeaseMachine(SETTINGS)
    assert not machine.valid(0.0)
    assert machine.left_s(0.0) == 0
    assert machine.next_step(0.0) is Step.READ


def test_a_missing_lease_is_created_and_its_version_is_the_epoch() -> None:
    machine = leading(at=100.0, version=50)
    assert machine.tenure == (50, False, True, 0)
    assert machine.valid(109.9)
    assert not machine.valid(110.0)
    assert (machine.left_s(104.0), machine.left_s(111.0)) == (6.0, 0.0)


def test_the_epoch_is_announced_by_a_renewal_at_once() -> None:
    """The acquiring write cannot carry it: it is the version which that write returns."""
    machine = leading(at=100.0, version=50)
    assert not machine.announced
    assert machine.next_step(100.0) is Step.RENEW
    machine.wrote(record(51, "me"), started=100.0)
    assert machine.announced
    assert machine.next_step(100.1) is Step.WAIT


def test_validity_counts_from_the_start_of_the_write_not_from_its_answer() -> None:
    machine = leading(at=100.0)
    assert machine.next_step(102.0) is Step.RENEW
    machine.wrote(record(51, "me"), started=102.0)
    assert machine.valid(111.9)
    assert not machine.valid(112.0)
    assert machine.tenure is not None
    assert machine.tenure.epoch == 50, "renewing does not change the epoch"


def test_a_standby_takes_over_only_after_the_lease_stood_still_by_its_own_clock() -> None:
    machine = LeaseMachine(SETTINGS)
    machine.observed(record(7), 0.0)
    assert machine.next_step(14.0) is Step.WAIT
    machine.observed(record(8), 14.0)  # renewed
    assert machine.next_step(28.0) is Step.WAIT
    assert machine.next_step(29.0) is Step.TAKE
    machine.wrote(record(9, "me"), started=29.0)
    assert machine.tenure == (9, False, False, 6)


def test_a_standby_looks_often_and_wakes_when_the_lease_may_be_taken() -> None:
    machine = LeaseMachine(SETTINGS)
    machine.observed(record(7), 0.0)
    assert machine.pause_s(1.0) == SETTINGS.retry_s / 4
    assert machine.pause_s(14.9) == pytest.approx(0.1)
    assert leading(at=100.0).pause_s(100.5) == SETTINGS.retry_s


def test_after_a_wait_a_standby_reads_again_and_a_leader_does_not() -> None:
    machine = LeaseMachine(SETTINGS)
    machine.observed(record(7), 0.0)
    assert machine.next_step(1.0) is Step.WAIT
    machine.waited()
    assert machine.next_step(1.0) is Step.READ
    leader = leading(at=100.0)
    leader.wrote(record(51, "me"), started=100.0)
    leader.waited()
    assert leader.next_step(100.1) is Step.WAIT


def test_a_released_lease_is_taken_at_once_and_its_clean_mark_is_passed_on() -> None:
    machine = LeaseMachine(SETTINGS)
    machine.observed(record(7, "", clean=True), 0.0)
    assert machine.leader is None
    assert machine.next_step(0.0) is Step.TAKE
    machine.wrote(record(8, "me"), started=0.0)
    assert machine.tenure == (8, True, False, 6)


def test_losing_the_race_for_it_means_waiting_again() -> None:
    machine = LeaseMachine(SETTINGS)
    machine.observed(record(7, ""), 0.0)
    machine.failed()
    assert machine.next_step(0.1) is Step.READ
    machine.observed(record(8, "rival"), 0.2)
    assert machine.next_step(0.2) is Step.WAIT
    assert machine.leader == ("rival", "10.0.0.2:7071")


def test_an_acquiring_write_whose_answer_was_lost_is_found_by_reading() -> None:
    machine = LeaseMachine(SETTINGS)
    machine.observed(record(7, "", clean=True), 0.0)
    machine.failed()
    machine.observed(record(8, "me"), 5.0)
    assert machine.tenure == (8, True, False, 6)
    assert not machine.valid(5.0), "since when it counts is not known"
    assert machine.next_step(5.0) is Step.RENEW
    machine.wrote(record(9, "me"), started=5.0)
    assert machine.valid(14.9)


@pytest.mark.parametrize("found", [None, record(60, "rival"), record(60, "")])
def test_a_leader_that_reads_another_holder_has_lost_for_good(found: LeaseRecord | None) -> None:
    machine = leading(at=100.0)
    machine.failed()
    assert machine.next_step(103.0) is Step.READ
    machine.observed(found, 103.0)
    assert machine.lost
    assert not machine.valid(103.0)
    assert machine.next_step(103.0) is Step.LOST


def test_a_leader_whose_renewal_met_an_edit_by_hand_goes_on() -> None:
    machine = leading(at=100.0)
    machine.failed()
    machine.observed(record(60, "me"), 103.0)
    assert not machine.lost
    assert machine.next_step(103.0) is Step.RENEW


def test_a_late_renewal_makes_the_same_tenure_valid_again() -> None:
    """Its condition held, so nobody else wrote in between; meanwhile nothing was allowed."""
    machine = leading(at=100.0)
    assert not machine.valid(150.0)
    assert machine.next_step(150.0) is Step.RENEW
    machine.wrote(record(51, "me"), started=150.0)
    assert machine.valid(159.9)


def test_times_that_do_not_rise_are_refused() -> None:
    with pytest.raises(ValueError, match="lease times must rise"):
        LeaseSettings(namespace="ns", name="x", identity="me", renew_deadline_s=15.0)
