"""Work that would hold up an event loop, done beside it.

Reading a pod of ten thousand parts takes some tens of milliseconds of Python. Cut into slices by
hand, every loop in it would have to know of the others; a thread is cut by the interpreter, which
hands over to whoever waits after :data:`HAND_OVER_S`. The work as a whole does not get faster by
that, and takes half the time of the loop while it lasts: whoever sends it here sees to it that it
is little (the dispatcher's slow lane).

Only what is given to it may be touched by the work, and nobody else may change that meanwhile: pods
and shapes are never changed. One thread: two would share the interpreter with the loop in three.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from stretto.model.shape import Shape
from stretto.placement.preparing import PARTS, prepare, to_prepare
from stretto.snapshot.term_set import much_in, prepare_terms

T = TypeVar("T")
HAND_OVER_S = 0.0005
"""How long the work keeps the interpreter from the loop at once. A loop lets go of it each time it
looks for I/O, and with CPython's 5 ms then waits so long for each look: beside a work of 50 ms of
CPU it made 22 to 57 round trips over a socket, with 0.5 ms 1,000 to 1,900."""
_beside = ThreadPoolExecutor(max_workers=1, thread_name_prefix="aside")


async def aside(work: Callable[[], T]) -> T:
    """What ``work`` gives; the loop goes on meanwhile. Works are done one after the other."""
    return await asyncio.get_running_loop().run_in_executor(_beside, partial(_giving_way, work))


def _giving_way(work: Callable[[], T]) -> T:
    before = sys.getswitchinterval()
    sys.setswitchinterval(HAND_OVER_S)
    try:
        return work()
    finally:
        sys.setswitchinterval(before)


async def put_in_order(shapes: Iterable[Shape], *, to_decide: bool = True) -> None:
    """Prepare those of some shapes that have very many terms, beside the loop: to decide on them,
    or else to count pods of them, whose terms are about others."""
    if to_decide:
        if bulky := to_prepare(shapes):
            await aside(partial(prepare, bulky))
    elif crowded := [shape for shape in shapes if much_in(shape) > PARTS]:
        await aside(partial(_prepare_terms, crowded))


def _prepare_terms(shapes: Iterable[Shape]) -> None:
    for shape in shapes:
        prepare_terms(shape)
