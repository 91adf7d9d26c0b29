"""Flags come from settings, and a wrong one gets one line."""

from __future__ import annotations

import argparse
import dataclasses
import enum
import pathlib

import pytest

from stretto.cli.flags import FlagError, add_flags, settings_from


class Mode(enum.StrEnum):
    FAST = "fast"
    EXACT = "exact"


@dataclasses.dataclass(frozen=True)
class Example:
    count: int = dataclasses.field(default=3, metadata={"help": "how many (50 % of them)"})
    ratio: float = dataclasses.field(default=0.5, metadata={"help": "a share"})
    name: tuple[str, ...] = dataclasses.field(default=("a", "b"), metadata={"help": "names"})
    url: str | None = dataclasses.field(default=None, metadata={"help": "where", "env": "EX_URL"})
    folder: pathlib.Path | None = dataclasses.field(default=None, metadata={"help": "a folder"})
    state: pathlib.Path = dataclasses.field(
        default=pathlib.Path.home() / "state", metadata={"help": "in the state folder"}
    )
    mode: Mode = dataclasses.field(default=Mode.FAST, metadata={"help": "how"})
    verbose: bool = dataclasses.field(default=False, metadata={"help": "more", "flag": "loud"})

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError(f"--count {self.count} is negative; take 0 or more")


def parse(*words: str, environ: dict[str, str] | None = None) -> Example:
    parser = argparse.ArgumentParser()
    add_flags(parser, Example)
    return settings_from(parser.parse_args(words), Example, environ=environ or {})


def test_defaults_stand_without_flags() -> None:
    assert parse() == Example()


def test_every_type_is_read() -> None:
    got = parse(
        "--count=7", "--ratio", "0.25", "--name=x", "--name=y", "--folder", "d", "--mode=exact",
        "--loud",
    )  # fmt: skip
    assert got == Example(
        count=7,
        ratio=0.25,
        name=("x", "y"),
        folder=pathlib.Path("d"),
        mode=Mode.EXACT,
        verbose=True,
    )


def test_environment_gives_way_to_the_flag() -> None:
    assert parse(environ={"EX_URL": "redis://e"}).url == "redis://e"
    assert parse("--url=redis://f", environ={"EX_URL": "redis://e"}).url == "redis://f"


def test_wrong_number_names_the_flag() -> None:
    with pytest.raises(FlagError, match=r"--count 'many': not a whole number"):
        parse("--count=many")
    for text in ("nan", "inf", "half"):
        with pytest.raises(FlagError, match=rf"--ratio '{text}': not a number"):
            parse(f"--ratio={text}")


def test_a_wrong_value_is_not_repeated_at_length() -> None:
    with pytest.raises(FlagError) as caught:
        parse("--count=" + "9" * 5000)
    assert len(str(caught.value)) < 120


def test_refusal_of_the_settings_is_one_line() -> None:
    with pytest.raises(FlagError, match="--count -1 is negative") as caught:
        parse("--count=-1")
    assert "\n" not in str(caught.value)


def test_unknown_flag_exits_with_two(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse("--nonsense")
    assert caught.value.code == 2
    assert "--nonsense" in capsys.readouterr().err


def test_help_teaches_defaults_and_environment(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--help")
    text = " ".join(capsys.readouterr().out.split())
    assert "how many (50 % of them) (default 3)" in text
    assert "names (default a, b)" in text
    assert "how (default fast)" in text
    assert "more (default off)" in text
    assert "in the state folder (default ~/state)" in text
    assert "[env EX_URL]" in text
