"""Places at which a scenario can kill, stop, wedge or hold a role's process.

They are put around the product's functions when a role is started through
:mod:`tests.matrix.role`; the product itself has no such places, and no release has this module.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import os
import pathlib
import signal
import time
from collections.abc import Callable
from typing import Any

import msgspec

FIRED = "fired"
"""File in the control folder: a line for each time that a failpoint struck."""


class Order(msgspec.Struct, frozen=True):
    """What an armed failpoint does. Lies as JSON in <control folder>/<role>/<point>."""

    action: str
    """kill, stop (SIGSTOP), wedge (the process's only loop sleeps), raise, hold (whoever comes
    here waits until the order is gone; the loop goes on)."""
    skip: int = 0
    """It lets so many pass first."""
    seconds: float = 0.0
    """Of wedge."""


POINTS: dict[str, tuple[str, str, str]] = {
    # point: (module, function, when)
    "binder.before_reserve": ("binder.machine", "Machine.take", "after"),
    "binder.after_reserve": ("binder.machine", "Machine.settle", "before"),
    "binder.before_post": ("binder.executor", "Executor._perform", "before"),
    "binder.after_answer": ("binder.executor", "Executor._bind", "after"),
    "binder.round": ("binder.committer", "CommitLoop.round", "before"),
    "dispatcher.outcomes": ("dispatcher.binder_side", "BinderSide.apply_outcomes", "before"),
    "shard.work": ("scheduler_shard.worker", "Shard.work", "before"),
}


class Failpoints:
    """The points of one role."""

    def __init__(self, control: pathlib.Path, role: str) -> None:
        self._control = control
        self._folder = control / role
        self._role = role
        self._passed: dict[str, int] = {}

    def install(self, command: str) -> None:
        """Put the points of a role's kind around its functions."""
        for point, (module, path, when) in POINTS.items():
            if point.partition(".")[0] == command:
                wrap(module, path, self.around(point, when=when))

    def around(self, point: str, *, when: str) -> Callable[[Callable[..., Any]], Any]:
        """A decorator that visits the point before or after the function."""

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            if asyncio.iscoroutinefunction(function):

                @functools.wraps(function)
                async def later(*args: Any, **named: Any) -> Any:
                    if when == "before":
                        await self.visit_later(point)
                        return await function(*args, **named)
                    result = await function(*args, **named)
                    await self.visit_later(point)
                    return result

                return later

            @functools.wraps(function)
            def now(*args: Any, **named: Any) -> Any:
                if when == "before":
                    self.visit(point)
                result = function(*args, **named)
                if when == "after":
                    self.visit(point)
                return result

            return now

        return decorate

    def _due(self, point: str) -> Order | None:
        """The order of an armed point whose time has come; it is told, and mostly used up."""
        file = self._folder / point
        try:
            order = msgspec.json.decode(file.read_bytes(), type=Order)
        except (OSError, msgspec.DecodeError):
            return None
        passed = self._passed[point] = self._passed.get(point, 0) + 1
        if passed <= order.skip:
            return None
        self._passed[point] = 0
        if order.action != "hold":
            file.unlink(missing_ok=True)
        with (self._control / FIRED).open("a") as fired:
            fired.write(f"{self._role} {point} {order.action}\n")
        return order

    def visit(self, point: str) -> None:
        """At a place that cannot wait."""
        order = self._due(point)
        if order is not None:
            self._strike(point, order)

    async def visit_later(self, point: str) -> None:
        """At a place that can."""
        order = self._due(point)
        if order is None:
            return
        if order.action == "hold":
            file = self._folder / point
            while file.exists():
                await asyncio.sleep(0.02)
            return
        self._strike(point, order)

    def _strike(self, point: str, order: Order) -> None:
        if order.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif order.action == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif order.action == "wedge":
            time.sleep(order.seconds)
        elif order.action == "raise":
            raise RuntimeError(f"failpoint {point}")


def wrap(module: str, path: str, decorate: Callable[[Callable[..., Any]], Any]) -> None:
    """Replace a function of a module, given as Class.method."""
    owner: Any = importlib.import_module(module)
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    setattr(owner, name, decorate(getattr(owner, name)))


def arm(control: pathlib.Path, role: str, point: str, order: Order) -> None:
    """Arm a point of a role."""
    assert point in POINTS, point
    folder = control / role
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f".{point}"
    fresh.write_bytes(msgspec.json.encode(order))
    fresh.rename(folder / point)


def disarm(control: pathlib.Path) -> None:
    """No point is armed any more."""
    for point in POINTS:
        for file in control.glob(f"*/{point}"):
            file.unlink(missing_ok=True)


def fired(control: pathlib.Path) -> list[str]:
    """What struck so far."""
    file = control / FIRED
    return file.read_text().splitlines() if file.exists() else []
