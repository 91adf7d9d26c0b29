"""The ledger's append-only file: steps as they were called, whatever else stands in it."""

from __future__ import annotations

import pytest

from stretto.audit.ledger_log import LedgerState, Step, steps_of

OURS, THEIRS = "{stretto:a}:", "{stretto:b}:"


def command(*words: str) -> bytes:
    encoded = [word.encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in encoded)


def steps(data: bytes) -> list[Step]:
    found, problem = steps_of(data, owner="a")
    assert problem == ""
    return found


def test_a_transaction_is_one_step_and_a_single_write_another() -> None:
    data = (
        command("SELECT", "0")
        + command("MULTI")
        + command("HSET", f"{OURS}meta", "epoch", "7", "state", "OPEN")
        + command("HDEL", f"{OURS}units", "u1", "u2")
        + command("EXEC")
        + command("hset", f"{OURS}meta", "seq", "1")
    )
    first, second = steps(data)
    assert (first.number, second.number) == (1, 2)
    assert first.fields("meta") == {"epoch": b"7", "state": b"OPEN"}
    assert first.fields("units") == {"u1": None, "u2": None}
    assert second.fields("meta") == {"seq": b"1"}


def test_annotations_and_ledgers_of_others_are_left_out() -> None:
    data = (
        b"#TS:1700000000\r\n"
        + command("HSET", f"{THEIRS}meta", "epoch", "9")
        + command("HSET", "another key", "a", "b")
        + command("PING")
        + b"#TS:1700000001\r\n"
        + command("HSET", f"{OURS}meta", "epoch", "7")
    )
    (only,) = steps(data)
    assert only.fields("meta") == {"epoch": b"7"}


@pytest.mark.parametrize("verb", ["DEL", "UNLINK"])
def test_what_is_emptied_and_written_in_one_call_holds_what_was_written_last(verb: str) -> None:
    data = (
        command("MULTI")
        + command("HSET", f"{OURS}units", "u1", "x")
        + command("HSET", f"{OURS}meta", "epoch", "7")
        + command(verb, f"{THEIRS}meta", f"{OURS}units", "else")
        + command("HSET", f"{OURS}units", "u2", "y")
        + command("EXEC")
    )
    (only,) = steps(data)
    assert only.cleared == {"units"}
    assert only.fields("units") == {"u2": b"y"}
    assert only.fields("meta") == {"epoch": b"7"}


@pytest.mark.parametrize("verb", ["FLUSHALL", "FLUSHDB"])
def test_a_server_that_is_emptied_holds_nothing(verb: str) -> None:
    state = LedgerState()
    data = command("HSET", f"{OURS}meta", "epoch", "7", "generation", "g") + command(verb)
    first, second = steps(data)
    state.apply(first)
    assert (state.epoch, state.generation) == (7, "g")
    state.apply(second)
    assert (state.epoch, state.generation, state.entries()) == (0, "", {})


def test_a_field_that_is_deleted_is_gone() -> None:
    state = LedgerState()
    data = command("HSET", f"{OURS}meta", "epoch", "7") + command("HDEL", f"{OURS}meta", "epoch")
    data += command("HDEL", f"{OURS}accounts", "n1") + command("HDEL", f"{OURS}open", "p1")
    for step in steps(data):
        state.apply(step)
    assert state.meta == {}
    assert not state.accounts
    assert state.entry("p1") is None


def test_a_file_that_was_cut_anywhere_gives_what_came_before_and_says_so() -> None:
    whole = command("HSET", f"{OURS}meta", "epoch", "7")
    cut = command("HSET", f"{OURS}meta", "epoch", "8")
    for size in range(1, len(cut)):
        found, problem = steps_of(whole + cut[:size], owner="a")
        assert [step.fields("meta") for step in found] == [{"epoch": b"7"}], size
        assert problem.startswith("cut in a "), size
