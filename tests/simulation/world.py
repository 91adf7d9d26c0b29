"""One source of chance, a story, and hosts that can die: the ground of the simulation.

Time is the loop's (:mod:`tests.simulation.loop`). With one seed for everything that is left to
chance, a run is the same run each time.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import random
from collections.abc import Coroutine
from typing import Any, NoReturn

import msgspec

from stretto.model.errors import OperatorError
from tests.simulation.loop import Died, Due, FreezingLoop, VirtualLoop

__all__ = ["HOST", "Died", "Host", "World"]

HOST: contextvars.ContextVar[Host] = contextvars.ContextVar("host")
"""Whose code runs; tasks inherit it."""


RESENT_S = 0.2
"""After so long a lost packet is sent again, as by TCP."""


class World:
    """What all parts of a run share."""

    def __init__(self, seed: int, loop: VirtualLoop | None = None) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.loop = loop or VirtualLoop()
        self.network = contextvars.Context()
        """Of what happens between hosts: it arrives, though its sender may stand still."""
        self.faults = 0
        self.lost = 0.0
        """How much of what is sent has to be sent again."""
        self._told: list[tuple[float, str, bytes]] = []
        """What happened: when, what, and what was in it."""

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self.loop.now

    @property
    def events(self) -> int:
        """Requests carried out, messages that arrived, faults and what the workload did."""
        return len(self._told)

    @property
    def trace(self) -> str:
        """A hash over all of it: moments to the last bit, texts, and every byte of the messages.
        Equal for equal runs."""
        told = msgspec.msgpack.encode(self._told)
        return hashlib.blake2b(told, digest_size=8).hexdigest()

    def story(self) -> list[str]:
        """What happened, for people who look for the cause."""
        return [f"{now:9.4f} {text}" for now, text, _ in self._told]

    def note(self, text: str, data: bytes = b"") -> None:
        """Something happened."""
        self._told.append((self.loop.now, text, data))

    def fault(self, text: str) -> None:
        """A fault fires."""
        self.faults += 1
        self.note(f"FAULT {text}")

    def chance(self, probability: float) -> bool:
        """True so often."""
        return self.rng.random() < probability

    def delay(self, *, most: float = 0.02) -> float:
        """How long a message takes: usually little, now and then much."""
        late = RESENT_S if self.lost and self.chance(self.lost) else 0.0
        return late + self.rng.random() * (most * 20 if self.chance(0.02) else most)


class Host:
    """A machine with one role on it."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.dead = False
        self.parked: list[Due] | None = None
        """What is due while it stands still; None if it does not."""
        self.tasks: list[asyncio.Task[Any]] = []
        self.failure: BaseException | None = None
        """What its role ended with, if not by our hand."""

    def check(self) -> None:
        """Raise if the host is dead: called before and after each I/O."""
        if self.dead:
            raise Died

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[None]:
        """Run something on it."""
        context = contextvars.copy_context()
        context.run(HOST.set, self)  # who dials a server starts a task of the server's
        task = self.world.loop.create_task(self._run(work), context=context)
        task.add_done_callback(lambda _: work.close())  # it may be killed before it has begun
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
            expected = (Died, asyncio.CancelledError, OperatorError)
            inside = isinstance(error, BaseExceptionGroup) and error.split(expected)[1] is None
            if not (self.dead or inside):
                self.failure = error

    def kill(self) -> None:
        """SIGKILL: no effect after this, whatever clean-up its tasks still run."""
        self.dead = True
        for task in self.tasks:
            task.cancel()
        self.thaw()

    def freeze(self) -> None:
        """SIGSTOP, in a run whose loop is a :class:`FreezingLoop`."""
        self.parked = []

    def thaw(self) -> None:
        """SIGCONT."""
        parked, self.parked = self.parked, None
        if parked:
            assert isinstance(self.world.loop, FreezingLoop)
            self.world.loop.thaw(parked)

    def exit(self, _code: int) -> NoReturn:
        """The role ends itself on the spot (os._exit)."""
        self.world.note(f"{self.name} exits")
        self.dead = True
        raise Died
