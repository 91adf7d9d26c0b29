"""What the command says of wrong words: one line with the flag, its value and what to do."""

from __future__ import annotations

import re

import pytest

from stretto.cli.main import main

BINDER = ("binder", "--redis-url=redis://127.0.0.1:1")
REFUSED = [
    ("run --shard 2", "unknown flag --shard (did you mean --shards?); see `stretto run --help`"),
    ("binder --nonsense=3", "unknown flag --nonsense; see `stretto binder --help`"),
    ("run everything", "unknown argument everything; see `stretto run --help`"),
    ("run --shards", "argument --shards: expected one argument; see `stretto run --help`"),
    ("run --shards many", "--shards 'many': not a whole number; see `stretto run --help`"),
    ("run --shards 0", "--shards 0: take 1 to 64; see `stretto run --help`"),
    ("run --log-level loud", "--log-level 'loud': take one of debug, info, warning, error; "),
    ("run --log-format xml", "--log-format 'xml': take one of json, text; "),
    ("run --lease-namespace A_B", "--lease-namespace 'A_B': take lower-case letters, digits, "),
    ("demo --span-s 2", "--span-s 2: take 5 to 3600; see `stretto demo --help`"),
    ("demo --shards nan", "--shards 'nan': not a whole number"),
    ("dispatcher --listen here", "--listen 'here' is not an address: write host:port, such as "),
    ("dispatcher --listen 127.0.0.1:99999", "--listen '127.0.0.1:99999' is not an address"),
    ("dispatcher --binder b", "--binder 'b' is not an address: write host:port"),
    ("dispatcher --telemetry-listen t", "--telemetry-listen 't' is not an address"),
    ("dispatcher --advertise a", "--advertise 'a' is not an address"),
    (
        "dispatcher --lease-duration-s 5",
        "--lease-retry-s 2, --lease-renew-deadline-s 10, --lease-duration-s 5: take 0 < retry < ",
    ),
    ("dispatcher --lease-name Not/One", "--lease-name 'Not/One': take lower-case letters"),
    ("dispatcher --scheduler-name=", "--scheduler-name is empty; name at least one"),
    ("dispatcher --linger-ms nan", "--linger-ms 'nan': not a number"),
    ("dispatcher --linger-ms -1", "--linger-ms -1: take 0 or more"),
    ("shard --binder b", "--binder 'b' is not an address"),
    ("shard --dispatcher d", "--dispatcher 'd' is not an address"),
    ("shard --partition-count -1", "--partition-count -1: take 0 or more"),
    ("loadgen --arrival soon", "argument --arrival: invalid choice: 'soon' (choose from 'steady'"),
    ("loadgen --namespace=A/b", "--namespace 'A/b': take lower-case letters"),
    ("loadgen --rate-from 0", "--rate-from 0: take more than 0; see `stretto loadgen --help`"),
    ("simulator --node-cpu abc", "--node-cpu 'abc': take a quantity of 0 or more, such as 32"),
    ("simulator --node-memory=-1Gi", "--node-memory '-1Gi': take a quantity of 0 or more"),
    ("record --lease-namespace A/b", "--lease-namespace 'A/b': take lower-case letters"),
    ("record --scheduler-name=", "--scheduler-name is empty; name at least one"),
    ("simulator --nodes -1", "--nodes -1: take 0 to "),
]


def refusal(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that wrong words get."""
    with pytest.raises(SystemExit) as caught:
        main(words.split())
    assert caught.value.code == 2
    (said,) = capsys.readouterr().err.splitlines()
    return said


@pytest.mark.parametrize(("words", "line"), REFUSED)
def test_wrong_words_get_one_line(
    words: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refusal(words, capsys)
    assert said.startswith(f"stretto: {line}"), said
    assert said.endswith(f"see `stretto {words.split()[0]} --help`")


@pytest.mark.parametrize(
    "command",
    [
        "run",
        "demo",
        "dispatcher",
        "shard",
        "binder",
        "loadgen",
        "simulator",
        "golden",
        "record",
        "check-history",
    ],
)
def test_help_is_for_people(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for raw in ("('", "',)", "default True", "default False", "None", "<", "Posix", "Arrival."):
        assert raw not in text, raw


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("loadgen", "3 pods are unfinished at the end"),
        ("golden", "1 a difference"),
        ("check-history", "3 the history has gaps"),
    ],
)
def test_a_command_that_judges_says_its_exit_codes(
    command: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert words in " ".join(capsys.readouterr().out.split())


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert re.fullmatch(r"stretto \d+\.\d+\.\d+\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("", "the following arguments are required: COMMAND"),
        ("walk", "argument COMMAND: invalid choice: 'walk' (choose from 'dispatcher', "),
        ("--fast run", "unknown flag --fast"),
    ],
)
def test_words_that_name_no_command_get_one_line(
    words: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refusal(words, capsys)
    assert said.startswith(f"stretto: {line}"), said
    assert said.endswith("see `stretto --help`")
