"""``stretto golden PATH…``: the placement code against recorded answers of kube-scheduler.

A golden file holds worlds (cluster states) with what kube-scheduler 1.37 decided in them, one JSON
object a line; see tests/golden/README.md for the format. Everything is compared: PreEnqueue,
PreFilter, each node's filter status, raw and weighted scores per plugin, totals, the best and the
chosen node, Reserve, errors, PostFilter, the whole message, and that the kept totals and the
one-row check say the same. Pods that plugins speak about which are not built are counted as not
checked by the plugin's name, never as passed, and so are points that have no answer yet.
"""

from __future__ import annotations

import gzip
import pathlib
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from stretto.cli.golden_answers import Case
from stretto.cli.golden_compare import Difference, compare_pod
from stretto.cli.golden_world import UnbuildableError, WorldState, not_checked

_SHOWN = 40
"""Differences printed per family; the rest are counted."""


@dataclass(slots=True)
class Tally:
    """What happened to one family."""

    worlds: int = 0
    pods: int = 0
    checks: int = 0
    skipped: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Pods that were not compared at all, by reason."""
    left_out: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Pods of which a point was not compared, by reason."""
    differences: list[Difference] = field(default_factory=list)


class GoldenError(ValueError):
    """A file that cannot be read as golden cases; one line, what and where."""


_decoder = msgspec.json.Decoder(Case)


def cases(path: pathlib.Path) -> Iterator[Case]:
    """The cases of one file.

    Raises:
        GoldenError: the file cannot be read, or line n is not a case.
    """
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    yield _decoder.decode(line)
                except msgspec.DecodeError as error:
                    raise GoldenError(f"{path}:{number}: not a golden case: {error}") from None
    except (OSError, EOFError) as error:
        raise GoldenError(f"{path}: cannot be read: {error}") from None


def files(paths: list[str]) -> list[pathlib.Path]:
    """Files as given, and the golden files of folders.

    Raises:
        GoldenError: a path does not exist, or nothing was found.
    """
    found: list[pathlib.Path] = []
    for name in paths:
        path = pathlib.Path(name)
        if path.is_dir():
            found += sorted(p for p in path.iterdir() if p.name.endswith((".jsonl", ".jsonl.gz")))
        elif path.exists():
            found.append(path)
        else:
            raise GoldenError(f"{name}: there is no such file or folder")
    if not found:
        raise GoldenError("no golden files: name .jsonl or .jsonl.gz files, or folders of them")
    return found


def check_case(case: Case, tally: Tally) -> None:
    """Compare every pod of a world that can be compared, in order."""
    world = case.world
    tally.worlds += 1
    try:
        state = WorldState(world)
    except UnbuildableError as error:
        tally.skipped[str(error)] += len(case.expect.pods)
        return
    for answer in case.expect.pods:
        shape = state.shape(answer.pod)
        reason = not_checked(answer, shape)
        if reason:
            tally.skipped[reason] += 1
        else:
            tally.pods += 1
            found = compare_pod(answer, shape, state, nodes=case.expect.nodes, world=world.id)
            tally.checks += found.checks
            tally.differences += found.differences
            for point in found.left_out:
                tally.left_out[point] += 1
        if answer.chosen is not None:
            state.assume(answer.pod, answer.chosen)


def check(paths: list[pathlib.Path]) -> dict[str, Tally]:
    """Tallies by family."""
    tallies: dict[str, Tally] = {}
    for path in paths:
        for case in cases(path):
            check_case(case, tallies.setdefault(case.world.family, Tally()))
    return tallies


def report(tallies: dict[str, Tally]) -> int:
    """Print the table and the differences; 1 if there is any."""
    write = sys.stdout.write
    heads = ("worlds", 7), ("pods", 7), ("checks", 10), ("differences", 13), ("not checked", 13)
    write("family        " + "".join(f"{head:>{width}}" for head, width in heads) + "\n")
    for family, tally in tallies.items():
        skipped = sum(tally.skipped.values())
        checked = f"{tally.pods:>7}{tally.checks:>10}{len(tally.differences):>13}"
        if not tally.pods:
            checked = f"{'no pod was checked':>30}"
        write(f"{family:<14}{tally.worlds:>7}{checked}{skipped:>13}\n")
    for family, tally in tallies.items():
        for reason, count in sorted(tally.skipped.items()):
            write(f"{family}: {count} pods not checked: {reason}\n")
        for reason, count in sorted(tally.left_out.items()):
            write(f"{family}: {count} pods without: {reason}\n")
    for tally in tallies.values():
        for difference in tally.differences[:_SHOWN]:
            write(f"{difference}\n")
        if len(tally.differences) > _SHOWN:
            write(f"… and {len(tally.differences) - _SHOWN} more\n")
    return int(any(tally.differences for tally in tallies.values()))


def run(paths: list[str]) -> int:
    """Check files and folders of golden cases; 0: no difference, 1: some, 2: unreadable input."""
    try:
        tallies = check(files(paths))
        if not tallies:
            raise GoldenError(f"no golden case in {', '.join(paths)}: nothing was checked")
        return report(tallies)
    except GoldenError as error:
        sys.stderr.write(f"stretto golden: {error}\n")
        return 2
