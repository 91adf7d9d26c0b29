"""Work that would hold up an event loop, done beside it.

Reading a pod of ten thousand parts takes some tens of milliseconds of Python. Cut into slices by
hand, every loop in it would have to know of the others; a thread is cut by the interpreter, which
hands over after five milliseconds (``sys.getswitchinterval``) to whoever waits. The work as a whole
does not get faster by that, and takes half the time of the loop while it lasts: whoever sends it
here sees to it that it is little (the dispatcher's slow lane).

Only what is given to it may be touched by the work, and nobody else may change that meanwhile: pods
and shapes are never changed. One thread: two would share the interpreter with the loop in three.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from stretto.model.shape import Shape
from stretto.placement.preparing import PARTS, prepare, to_prepare
from stretto.snapshot.term_set import much_in, prepare_terms

T = TypeVar("T")
_beside = ThreadPoolExecutor(max_workers=1, thread_name_prefix="aside")


async def aside(work: Callable[[], T]) -> T:
    """What ``work`` gives; the loop goes on meanwhile. Works are done one after the other."""
    return await asyncio.get_running_loop().run_in_executor(_beside, work)


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
