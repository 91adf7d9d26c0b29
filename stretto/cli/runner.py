"""Run a role until a signal: one uvloop a process, SIGTERM and SIGINT ask it to stop, errors
become exit codes.

Exit codes: 0 stopped as asked or done; 1 a defect or a lost invariant; 2 wrong flags or an input
or a peer that an operator has to mend (one line says what); 4 another may lead in its place.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator

import uvloop

from stretto.model.errors import OperatorError

logger = logging.getLogger(__name__)

Main = Callable[[asyncio.Event], Awaitable[int | None]]

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


async def until_signal(main: Main) -> int:
    """Run ``main(stop)``; the first SIGTERM or SIGINT sets ``stop``."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return await main(stop) or 0


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
            raise
        for line in dict.fromkeys(str(item) for item in found):
            sys.stderr.write(f"stretto: {line}\n")
        return max(item.exit_code for item in found)
