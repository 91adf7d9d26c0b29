"""Run a role until a signal: one uvloop a process, SIGTERM and SIGINT ask it to stop, errors
become exit codes.

Whatever ends a role that was not meant to end it is a defect: one line says so and the stack trace
follows. An assertion that fails where nobody waits for it, in a timer or a forgotten task, ends the
role too: the loop alone would log it and go on with a state that cannot be trusted.

Exit codes: 0 stopped as asked or done; 1 a defect or a lost invariant; 2 wrong flags or an input
or a peer that an operator has to mend (one line says what); 4 another may lead in its place.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import uvloop

from stretto.model.errors import OperatorError

logger = logging.getLogger(__name__)

Main = Callable[[asyncio.Event], Coroutine[Any, Any, int | None]]

GC_THRESHOLDS = (20_000, 20, 50)
"""Of the cycle collector. A burst makes some hundred records a batch that live until their pod is
bound and hold no cycles; with CPython's 700 they are traversed again and again, for 8 % of the
Binder's CPU (measured), with these for under 2 %."""


def operator_errors(error: BaseException) -> Iterator[OperatorError]:
    """The errors made for people inside an exception, task groups unwrapped."""
    if isinstance(error, OperatorError):
        yield error
    elif isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from operator_errors(inner)


def only_operator_errors(error: BaseException) -> bool:
    """True if nothing else than errors made for people (and cancellations) is inside."""
    if isinstance(error, BaseExceptionGroup):
        return all(only_operator_errors(inner) for inner in error.exceptions)
    return isinstance(error, OperatorError | asyncio.CancelledError)


def line_of(error: BaseException) -> str:
    """An unexpected error in one line, task groups unwrapped."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}"


async def until_signal(main: Main) -> int:
    """Run ``main(stop)``; the first SIGTERM or SIGINT sets ``stop``."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    working = asyncio.ensure_future(main(stop))
    found: list[AssertionError] = []

    def unheard(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        loop.default_exception_handler(context)
        error = context.get("exception")
        if isinstance(error, AssertionError):
            found.append(error)
            working.cancel()

    loop.set_exception_handler(unheard)
    code = None
    try:
        code = await working
    except asyncio.CancelledError:
        if not found:
            raise
    if found:
        raise found[0]
    return code or 0


def run_role(main: Main) -> int:
    """Run a role to its end and give the exit code; defects keep their stack trace."""
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        return uvloop.run(until_signal(main))
    except KeyboardInterrupt:
        return 130
    except BaseException as error:
        found = list(operator_errors(error))
        if not found or not only_operator_errors(error):
            logger.critical("a defect ends this process: %s", line_of(error))
            raise
        for line in dict.fromkeys(str(item) for item in found):
            sys.stderr.write(f"stretto: {line}\n")
        return max(item.exit_code for item in found)
