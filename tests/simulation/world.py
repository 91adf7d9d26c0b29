"""Virtual time, one source of chance, and hosts that can die: the ground of the simulation.

The event loop is asyncio's own with another selector: where a real one would wait, this one moves
the clock. So a run takes no longer than its computing, and with one seed for everything that is
left to chance it is the same run each time.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import random
import selectors
from collections.abc import Coroutine
from typing import Any, NoReturn

from stretto.model.errors import OperatorError


class Died(BaseException):
    """The host of whoever does I/O has been killed: nothing it does has an effect any more.

    Not an Exception, so that nobody who handles failures takes it for one.
    """


class VirtualSelector(selectors.BaseSelector):
    """Waits in virtual time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """The loop's wake-up pipe; nothing ever comes through it."""
        key = selectors.SelectorKey(fileobj, int(fileobj), events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Forget it."""
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Move the clock."""
        assert timeout is not None, "everybody waits for ever"
        self.now += max(0.0, timeout)
        return []

    def get_map(self) -> Any:
        """What is registered."""
        return self._keys


class NumberedFuture(asyncio.Future[Any]):
    """Hashed by its number: sets of futures are walked in the same order in each run."""

    def __init__(self, number: int, *, loop: asyncio.AbstractEventLoop) -> None:
        self.number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.number


class NumberedTask(asyncio.Task[Any]):
    """The same for tasks. The number comes first: asyncio keeps all tasks in a set from the moment
    they are made, and with one hash for all of them it would search that set from end to end."""

    def __init__(self, number: int, work: Any, **options: Any) -> None:
        self.number = number
        super().__init__(work, **options)

    def __hash__(self) -> int:
        return self.number


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time."""

    def __init__(self) -> None:
        self.virtual = VirtualSelector()
        self._numbers = itertools.count(1)
        super().__init__(self.virtual)
        self.set_task_factory(self._make_task)

    def create_future(self) -> NumberedFuture:
        """A future with a number."""
        return NumberedFuture(next(self._numbers), loop=self)

    def _make_task(self, loop: Any, work: Any, **options: Any) -> NumberedTask:
        return NumberedTask(next(self._numbers), work, loop=loop, **options)

    def time(self) -> float:
        """Virtual seconds since the beginning."""
        return self.virtual.now

    def call_soon_threadsafe(self, *args: Any, **kwargs: Any) -> asyncio.Handle:
        """There is one thread."""
        return self.call_soon(*args, **kwargs)


class World:
    """What all parts of a run share."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.loop = VirtualLoop()
        self.events = 0
        self.faults = 0
        self.story: list[str] = []
        """What happened, for people who look for the cause."""
        self._trace = hashlib.blake2b(digest_size=8)

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self.loop.time()

    @property
    def trace(self) -> str:
        """A hash over everything that was noted: equal for equal runs."""
        return self._trace.hexdigest()

    def note(self, text: str) -> None:
        """Something happened."""
        self.events += 1
        line = f"{self.now:9.4f} {text}"
        self._trace.update(line.encode())
        self.story.append(line)

    def fault(self, text: str) -> None:
        """A fault fires."""
        self.faults += 1
        self.note(f"FAULT {text}")

    def chance(self, probability: float) -> bool:
        """True so often."""
        return self.rng.random() < probability

    def delay(self, *, most: float = 0.02) -> float:
        """How long a message takes: usually little, now and then much."""
        return self.rng.random() * (most * 20 if self.chance(0.02) else most)


class Host:
    """A machine with one role on it."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.dead = False
        self.tasks: list[asyncio.Task[Any]] = []
        self.failure: BaseException | None = None
        """What its role ended with, if not by our hand."""

    def check(self) -> None:
        """Raise if the host is dead: called before and after each I/O."""
        if self.dead:
            raise Died

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[None]:
        """Run something on it."""
        task = self.world.loop.create_task(self._run(work))
        self.tasks.append(task)
        return task

    async def _run(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except (Died, asyncio.CancelledError):
            pass
        except OperatorError as error:
            self.world.note(f"{self.name} ends: {error}")
        except BaseException as error:
            expected = (Died, asyncio.CancelledError)
            inside = isinstance(error, BaseExceptionGroup) and error.split(expected)[1] is None
            if not (self.dead or inside):
                self.failure = error

    def kill(self) -> None:
        """SIGKILL: no effect after this, whatever clean-up its tasks still run."""
        self.dead = True
        for task in self.tasks:
            task.cancel()

    def exit(self, _code: int) -> NoReturn:
        """The role ends itself on the spot (os._exit)."""
        self.world.note(f"{self.name} exits")
        self.dead = True
        raise Died
