"""An event loop in virtual time, which does nothing that a simulation has no use for.

Where a real loop would wait, this one moves the clock, so that a run takes no longer than its
computing. It is asyncio's loop without files, threads, debugging and handlers of errors: timers of
one moment fire in the order in which they were set, and whatever a callback raises ends the run.
asyncio's own loop would log it and go on, and nobody would hear what the judge has to say.

Sets of tasks and futures are walked in the order of their hashes, so these have numbers for hashes,
given when somebody first asks.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextvars import Context, copy_context
from heapq import heappop, heappush
from typing import Any

_numbers = itertools.count(1)


ASIDE_S = 0.03
"""Of anything that is done aside."""


class Died(BaseException):
    """The host of whoever does I/O has been killed: nothing it does has an effect any more.

    Not an Exception, so that nobody who handles failures takes it for one.
    """


class NumberedFuture(asyncio.Future[Any]):
    """Hashed by its number: sets of futures are walked in the same order in each run."""

    _number = 0

    def __hash__(self) -> int:
        if not self._number:
            self._number = next(_numbers)
        return self._number


class NumberedTask(asyncio.Task[Any]):
    """The same for tasks."""

    _number = 0

    def __hash__(self) -> int:
        if not self._number:
            self._number = next(_numbers)
        return self._number


class Due(list[Any]):
    """What is to be called: (when, number, callback, arguments, context). A list, so that the heap
    compares without calling anything; numbers differ, so that it looks no further."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return int(self[1])

    def cancel(self) -> None:
        """Do not call it."""
        self[2] = None

    def cancelled(self) -> bool:
        """Whether it will not be called."""
        return self[2] is None

    def when(self) -> float:
        """Virtual seconds."""
        return float(self[0])


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module docstring."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.tasks: list[asyncio.Task[Any]] = []
        """All tasks that were started, in that order (see :mod:`tests.simulation.patches`)."""
        self._timers: list[Due] = []
        self._count = itertools.count(1)
        self.set_task_factory(_make_task)

    def time(self) -> float:
        """Virtual seconds since the beginning."""
        return self.now

    def create_future(self) -> NumberedFuture:
        """A future with a number."""
        return NumberedFuture(loop=self)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Due:
        """Call it in this moment, after all that is due already."""
        due = Due((0.0, 0, callback, args, context or copy_context()))
        self._ready.append(due)  # type: ignore[attr-defined]
        return due

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Due:
        """Call it in a while."""
        due = Due((self.now + delay, next(self._count), callback, args, context or copy_context()))
        heappush(self._timers, due)
        return due

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Due:
        """Call it at a time."""
        due = Due((when, next(self._count), callback, args, context or copy_context()))
        heappush(self._timers, due)
        return due

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """What a thread does beside the loop is done in one go, and takes a while."""
        future = self.create_future()

        def work() -> None:
            if not future.cancelled():
                future.set_result(func(*args))

        self.call_later(ASIDE_S, work)
        return future

    def call_soon_threadsafe(self, *args: Any, **kwargs: Any) -> Due:  # type: ignore[override]
        """There is one thread."""
        return self.call_soon(*args, **kwargs)

    async def end_others(self) -> None:
        """Cancel every task but the one that asks, and wait for their ends; also those that begin
        while others clean up after themselves."""
        own = asyncio.current_task()
        while left := [task for task in self.tasks if task is not own and not task.done()]:
            for task in left:
                task.cancel()
            await asyncio.wait(left)

    def close(self) -> None:
        """Forget everything."""
        super().close()
        self.tasks.clear()
        self._timers.clear()

    def _asyncgen_firstiter_hook(self, agen: Any) -> None:
        """Nobody asks for a list of the generators that have begun."""

    def _run_once(self) -> None:
        """All that is due, until somebody stops the loop."""
        ready, timers = self._ready, self._timers  # type: ignore[attr-defined]
        while not self._stopping:  # type: ignore[attr-defined]
            while not ready:
                due = heappop(timers)  # an IndexError: everybody waits for ever
                if due[2] is not None:
                    if due[0] > self.now:
                        self.now = due[0]
                    ready.append(due)
            _, _, callback, args, context = ready.popleft()
            if callback is not None:
                try:  # noqa: SIM105
                    context.run(callback, *args)
                except Died:
                    pass  # its host ended itself on the spot


class FreezingLoop(VirtualLoop):
    """The same, for runs in which hosts stand still (SIGSTOP, a virtual machine that is moved).

    What is due on one that does waits, in order, until it goes on; time passes meanwhile. A loop of
    its own, since asking for each of thousands of callbacks would slow all other runs down.
    """

    def __init__(self) -> None:
        super().__init__()
        self.frozen: Callable[[Context], list[Due] | None] = lambda _: None
        """Where to put what is due in a context, if its host stands still."""

    def thaw(self, parked: list[Due]) -> None:
        """A host goes on."""
        self._ready.extend(parked)  # type: ignore[attr-defined]
        parked.clear()

    def _run_once(self) -> None:
        ready, timers = self._ready, self._timers  # type: ignore[attr-defined]
        while not self._stopping:  # type: ignore[attr-defined]
            while not ready:
                due = heappop(timers)
                if due[2] is not None:
                    self.now = max(self.now, due[0])
                    ready.append(due)
            due = ready.popleft()
            if due[2] is None:
                continue
            if (parked := self.frozen(due[4])) is not None:
                parked.append(due)
                continue
            try:  # noqa: SIM105
                due[4].run(due[2], *due[3])
            except Died:
                pass  # its host ended itself on the spot


def _make_task(loop: Any, work: Any, **options: Any) -> NumberedTask:
    return NumberedTask(work, loop=loop, **options)
