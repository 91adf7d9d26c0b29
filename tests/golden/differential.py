"""Live differential run of fresh worlds against kube-scheduler's own code.

``python -m tests.golden.differential --pods 10000`` (``make differential PODS=10000``) generates
worlds of every family from new seeds, prints the seeds, asks the oracle and compares everything
that golden cases compare. Exit 1 on a difference, with the world's arguments to repeat it.
"""

from __future__ import annotations

import argparse
import secrets
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from stretto.cli.golden import Tally, check_case, report
from stretto.cli.golden_answers import Case
from tests.golden import dra_worlds
from tests.golden.oracle_program import asked, build, can_build, how_to_get, worlds

FAMILIES = (
    "resources", "taints", "nodeaffinity", "ports", "images", "spread", "interpod", "volumes",
    "preemption", "dra", "messages", "profiles", "mixed",
)  # fmt: skip
DEVICES = "devices"
"""Worlds of :mod:`tests.golden.dra_worlds`, richer in devices than the family dra."""
PODS_A_WORLD = 5.7
"""On average over all families; only for how many worlds to generate."""


class Failed(msgspec.Struct):
    """The oracle's line about a world that it does not answer."""

    id: str = ""
    error: str = ""


@dataclass
class Run:
    """What a run has seen so far."""

    tallies: dict[str, Tally] = field(default_factory=dict)
    explained: list[str] = field(default_factory=list)
    """Differences with their reason: upstream, asked often, decides now one way and now another; or
    a search for devices that is longer than ours may be (upstream's ends by the clock)."""
    unanswered: Counter[str] = field(default_factory=Counter)
    """Worlds without an answer, by upstream's reason: those it decides at random, or refuses."""

    @property
    def pods(self) -> int:
        """Pods that upstream decided."""
        return sum(tally.pods + sum(tally.skipped.values()) for tally in self.tallies.values())

    @property
    def differences(self) -> int:
        """Values that are not upstream's."""
        return sum(len(tally.differences) for tally in self.tallies.values())

    def take(self, *, family: str, line: bytes) -> None:
        """Compare one answered world."""
        failed = msgspec.json.decode(line, type=Failed)
        if failed.error:
            self.unanswered[failed.error] += 1
            return
        tally, found = self.tallies.setdefault(family, Tally()), Tally()
        check_case(msgspec.json.decode(line, type=Case), found)
        gave_up = {each.pod for each in found.differences if GAVE_UP in str(each.ours)}
        long = [each for each in found.differences if each.pod in gave_up]
        self.explained += [f"the search ended before upstream's: {each}" for each in long]
        found.differences = [each for each in found.differences if each.pod not in gave_up]
        if found.differences and decided_at_random(line):
            self.explained += [f"upstream decides at random: {each}" for each in found.differences]
            found.differences.clear()
        tally.worlds += found.worlds
        tally.pods += found.pods
        tally.checks += found.checks
        tally.differences += found.differences
        for mine, theirs in ((tally.skipped, found.skipped), (tally.left_out, found.left_out)):
            for reason, count in theirs.items():
                mine[reason] += count


GAVE_UP = "timed out trying to allocate devices"
OFTEN = 40
"""Times a world that differs is decided again by upstream: a choice between two orders of a map
stays unseen once in 10^12."""


def decided_at_random(line: bytes) -> bool:
    """Whether upstream itself decides an answered world differently when it is asked again: the
    order of budgets, for one, is that of a map."""
    world = msgspec.json.decode(line, type=dict[str, msgspec.Raw])["world"]
    with asked("-repeat", str(OFTEN)) as ask:
        answer = msgspec.json.decode(ask(bytes(world) + b"\n"), type=Failed)
    return "does not always decide" in answer.error


FLAGS = ("-normalise", "-embed", "-repeat", "2")
"""Each world is decided twice, so that what upstream decides at random comes as an error line."""
Ask = Callable[[bytes], bytes]


def compare(
    run: Run, ask: Ask, *, family: str, seed: int, count: int, variant: str = "public"
) -> None:
    """Generate, ask and compare ``count`` worlds of a family."""
    fresh = (
        dra_worlds.worlds(seed, count)
        if family == DEVICES
        else worlds(family=family, seed=seed, count=count, variant=variant)
    )
    for line in fresh:
        run.take(family=family, line=ask(line))


def main(words: Sequence[str] | None = None) -> int:
    """0: no difference; 1: some; 2: there is no oracle."""
    parser = argparse.ArgumentParser(prog="differential", description=__doc__.split("\n")[0])
    parser.add_argument("--pods", type=int, default=1000, help="about how many pods to decide")
    parser.add_argument("--seed", type=int, default=None, help="first seed; a random one if absent")
    every = (*FAMILIES, DEVICES)
    parser.add_argument("--family", action="append", choices=every, help="repeatable; all")
    parser.add_argument("--variant", choices=("public", "wide"), default="public")
    args = parser.parse_args(words)
    families = args.family or every
    seed = secrets.randbelow(1 << 31) if args.seed is None else args.seed
    if not can_build():
        sys.stderr.write(f"differential: {how_to_get()}\n")
        return 2
    try:
        build()
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"differential: building the oracle failed: {error}\n")
        return 2
    count = max(1, round(args.pods / PODS_A_WORLD / len(families)))
    run, started = Run(), time.monotonic()
    with asked(*FLAGS) as ask:
        for number, family in enumerate(families):
            compare(run, ask, family=family, seed=seed + number, count=count, variant=args.variant)
            sys.stderr.write(
                f"{family}: seed {seed + number}, {count} worlds, variant {args.variant}; "
                f"{run.pods} pods so far, {run.differences} differences, "
                f"{time.monotonic() - started:.0f} s\n"
            )
    code = report(run.tallies)
    for error, worlds_without in run.unanswered.most_common(10):
        sys.stdout.write(f"{worlds_without} worlds without an answer: {error[:200]}\n")
    for difference in run.explained:
        sys.stdout.write(f"{difference}\n")
    sys.stdout.write(
        f"{run.pods} pods decided, {run.differences} differences, "
        f"{len(run.explained)} explained, first seed {seed}\n"
    )
    return code


if __name__ == "__main__":
    sys.exit(main())
