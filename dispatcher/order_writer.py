"""What the writers of a brain's orders share: a queue of them, a few tasks that carry them out, and
what is done with the answers."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from dispatcher.core import Core
from dispatcher.patching import PAUSE_S, PatchResult
from stretto.kube.answers import Response
from stretto.kube.client import KubeClient
from stretto.kube.errors import KubeError

log = logging.getLogger(__name__)

Order = TypeVar("Order")


def api_time(wall_s: float) -> str:
    """Seconds since 1970 as the API writes times."""
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition_body(
    *, kind: str, words: tuple[str, str, str], transition: bool, wall_s: float, generation: int = 0
) -> dict[str, Any]:
    """A condition for a strategic-merge patch; ``words``: status, reason, message. Without a
    transition the time of the last one stays; generation 0: none is observed."""
    status, reason, message = words
    condition: dict[str, Any] = {
        "type": kind, "status": status, "reason": reason, "message": message
    }  # fmt: skip
    if generation:
        condition["observedGeneration"] = generation
    if transition:
        condition["lastTransitionTime"] = api_time(wall_s)
    return condition


def result_of(answer: Response | None) -> PatchResult:
    """What an answer to a patch that names a version or a uid proves; None: there was none."""
    if answer is None:
        return PatchResult.FAILED
    if answer.ok:
        return PatchResult.WRITTEN
    if answer.status == 409:
        return PatchResult.STALE
    if answer.status in (404, 422):
        return PatchResult.GONE
    return PatchResult.FAILED


def pause_of(answer: Response | None) -> float:
    """Seconds until such a write is tried again, if it failed."""
    return PAUSE_S if answer is None else answer.retry_after or PAUSE_S


def refusal(answer: Response) -> str:
    """What the server said, for the log."""
    return f"{answer.status} {answer.text}"


class OrderWriter(ABC, Generic[Order]):
    """A few patches at a time; ``wall`` gives seconds since 1970."""

    def __init__(
        self,
        client: KubeClient,
        *,
        core: Core,
        workers: int,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._core = core
        self._workers = workers
        self._wall = wall
        self._orders: asyncio.Queue[Order] = asyncio.Queue()

    def write(self, orders: list[Order]) -> None:
        """Queue patches; the brain bounds how many there are."""
        for order in orders:
            self._orders.put_nowait(order)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            await self._carry_out(await self._orders.get())

    async def _carry_out(self, order: Order) -> None:
        """The brain hears of every order what came of it, also if that is not known."""
        answer, wrong = None, ""
        try:
            answer = await self._send(order)
        except KubeError as error:
            wrong = str(error)
        finally:
            wrong = self._answered(order, answer) or wrong
            self._core.changed()
        if wrong:
            log.warning("%s: %s", self._name(order), wrong)

    @abstractmethod
    def _name(self, order: Order) -> str:
        """What is written, for the log."""

    @abstractmethod
    async def _send(self, order: Order) -> Response:
        """Send one."""

    @abstractmethod
    def _answered(self, order: Order, answer: Response | None) -> str:
        """Tell the brain; what somebody should know of it, if anything. None: what came of the
        order is not known."""
