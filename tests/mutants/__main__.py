"""Make each fault of the table in a copy of the tree and see which test notices it.

``make mutants`` prints the table; exit code 1 if a fault survives.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from tests.mutants.table import MUTANTS, Mutant

ROOT = pathlib.Path(__file__).parents[2]
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
TIMEOUT_S = 300


def copy_of_the_tree(folder: pathlib.Path) -> pathlib.Path:
    """What git tracks or would track, as it is now."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True,
    )  # fmt: skip
    tree = folder / "tree"
    for name in listing.stdout.decode().split("\0"):
        source = ROOT / name
        if name and source.is_file():
            target = tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    return tree


def first_failure(tree: pathlib.Path, tests: tuple[str, ...]) -> str:
    """The test that fails first, "" if none does."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not kube and not e2e",
         "-p", "no:cacheprovider", *tests],
        check=False, cwd=tree, capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    found = FAILED.search(done.stdout)
    if found:
        return found[1]
    return "" if done.returncode == 0 else f"pytest ended with {done.returncode}: {done.stdout}"


def killer(tree: pathlib.Path, mutant: Mutant) -> str:
    """The test that notices a mutant, "" if it survives."""
    path = tree / mutant.file
    text = path.read_text()
    assert text.count(mutant.old) == 1, f"{mutant.name}: {mutant.file} has changed"
    path.write_text(text.replace(mutant.old, mutant.new))
    try:
        return first_failure(tree, mutant.tests)
    finally:
        path.write_text(text)


def main() -> int:
    """Try all, or those whose name contains the argument."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?", default="", help="part of a mutant's name")
    chosen = [m for m in MUTANTS if parser.parse_args().name in m.name]
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="stretto-mutants-") as folder:
        tree = copy_of_the_tree(pathlib.Path(folder))
        everything = tuple(dict.fromkeys(test for mutant in chosen for test in mutant.tests))
        if problem := first_failure(tree, everything):
            sys.stdout.write(f"without any mutant {problem} fails: nothing is shown\n")
            return 1
        for mutant in chosen:
            began = time.monotonic()
            test = killer(tree, mutant)
            survivors += not test
            took = time.monotonic() - began
            sys.stdout.write(f"{mutant.name:52} {took:5.1f} s  {test or 'SURVIVED'}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(chosen) - survivors} of {len(chosen)} mutants killed\n")
    return 1 if survivors else 0


if __name__ == "__main__":
    raise SystemExit(main())
