"""The same protocol in Spin's language, by Spin itself where it is installed.

The Python model beside it is explored everywhere; this one is a second opinion from a checker that
many trust (Debian: ``apt-get install spin gcc``).
"""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess

import pytest

MODEL = pathlib.Path(__file__).with_name("bindfence.pml")
ERRORS = re.compile(r"errors: (\d+)")

pytestmark = [
    pytest.mark.skipif(
        shutil.which("spin") is None or shutil.which("gcc") is None,
        reason="needs spin and gcc (apt-get install spin gcc); tests/protocol/model.py is the same "
        "model and is checked without them",
    ),
    pytest.mark.timeout(300),
]


@pytest.mark.parametrize(
    ("flags", "safe"),
    [
        (["TOUCH", "RVFENCE", "LEAK"], True),
        (["FORGET"], False),
        (["FORGET", "RVFENCE"], False),
        (["GETONLY"], False),
        (["GETONLY", "RVFENCE"], False),
        (["TOUCH"], False),
        (["TOUCH", "RVFENCE", "TTL"], False),
        (["TOUCH", "RVFENCE", "REFRESH"], False),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_variants(tmp_path: pathlib.Path, flags: list[str], safe: bool) -> None:
    def run(*words: str) -> str:
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    run("spin", *(f"-D{flag}" for flag in flags), "-a", str(MODEL))
    run("gcc", "-O2", "-o", "pan", "pan.c")
    output = run(str(tmp_path / "pan"), "-a", "-m400000")
    found = ERRORS.search(output)
    assert found, output
    assert (found[1] == "0") == safe, output
