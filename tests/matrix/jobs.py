"""Fields of the matrix side by side: the rows wait more than they work.

Each field has a folder and ports of its own, and a process: to start a control plane stops
everything else in one.
"""

from __future__ import annotations

import concurrent.futures
import logging
import multiprocessing
import sys
import time
from collections.abc import Iterable, Iterator

import uvloop

import tests.matrix.rows
from stretto.ledger.server import die_with_parent
from tests.matrix.play import plan, play
from tests.matrix.row import ROWS, Played

assert tests.matrix.rows.__doc__


def played_by_jobs(
    rows: list[int], *, seeds: Iterable[int], jobs: int, keep: bool, verbose: bool
) -> Iterator[list[Played]]:
    """The runs of all rows with all seeds, as fields end, ``jobs`` of which there are at once."""
    fields = [([row.number for row in group], seed) for seed in seeds for group in plan(rows, seed)]
    fields += [([number], 0) for number in rows if ROWS[number].scenario is None]
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(
        jobs, mp_context=spawn, initializer=die_with_parent
    ) as pool:
        runs = [pool.submit(on_one_field, *each, keep=keep, verbose=verbose) for each in fields]
        for run in concurrent.futures.as_completed(runs):
            yield run.result()


def on_one_field(rows: list[int], seed: int, *, keep: bool, verbose: bool) -> list[Played]:
    """In a job's process."""
    logging.basicConfig(level=logging.INFO if verbose else logging.CRITICAL)
    return uvloop.run(play(rows, seed=seed, tell=tell, keep=keep))


def tell(played: Played) -> None:
    """A line as soon as a run is over."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {played.line()}\n")
    sys.stdout.flush()
