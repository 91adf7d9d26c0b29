"""Waits for what a user sees of a pod, and for what the binder has seen of the cluster."""

from __future__ import annotations

from collections.abc import Awaitable

from tests.e2e.api import Api, scheduled_condition
from tests.e2e.stack import Stack, until


async def told(api: Api, name: str, words: str) -> None:
    """Wait until a pod's condition has these words."""
    last = ""

    async def said() -> bool:
        nonlocal last
        last = scheduled_condition(await api.pod(name)).get("message", "")
        return words in last

    try:
        await until(said, timeout_s=30, what=f"{name} says {words!r}")
    except TimeoutError:
        raise AssertionError(f"{name} says {last!r}, not {words!r}") from None


async def and_seen(stack: Stack, change: Awaitable[object], *, what: str) -> None:
    """Make a change and wait until the binder has put it into its log."""

    async def log() -> float:
        return (await stack.metrics("binder")).total("stretto_log_sequence")

    before = await log()
    await change

    async def seen() -> bool:
        return await log() > before

    await until(seen, timeout_s=30, what=f"the binder sees {what}")
