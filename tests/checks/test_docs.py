"""What the pages about correctness name is there: invariants, rows, tests, make targets."""

from __future__ import annotations

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "SECURITY.md",
    ROOT / "CONTRIBUTING.md",
    *ROOT.glob("docs/*.md"),
]
HISTORY = (ROOT / "docs" / "history.md").read_text()
RELIABILITY = (ROOT / "docs" / "reliability.md").read_text()


def test_every_invariant_is_named_with_what_shows_it() -> None:
    rows = re.findall(r"^\| (I\d.*?) \|", HISTORY, flags=re.MULTILINE)
    named = {int(number) for row in rows for number in re.findall(r"\bI(\d+)", row)}
    assert named == set(range(1, 26))


def test_tests_that_the_page_of_invariants_names_exist() -> None:
    named = re.findall(r"`(\w+/test_\w+)::(test_\w+)`", HISTORY)
    assert len(named) >= 15
    missing = [
        f"{path}::{name}"
        for path, name in named
        if f"def {name}(" not in (ROOT / "tests" / f"{path}.py").read_text()
    ]
    assert missing == []


def test_every_row_of_scoreboard_and_matrix_is_there() -> None:
    rows = {int(n) for n in re.findall(r"^\| R(\d+) \|", RELIABILITY, flags=re.MULTILINE)}
    assert rows >= {*range(1, 12), *range(15, 27)}
    matrix = re.findall(r"^\| (\d+) °? ?\| .* \| .* \| \d+ of \d+ \|", RELIABILITY, re.MULTILINE)
    assert sorted(map(int, matrix)) == list(range(1, 50))


def test_make_targets_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = {
        target for page in PAGES for target in re.findall(r"`make ([a-z-]+)", page.read_text())
    }
    assert len(named) > 10
    assert named <= targets
