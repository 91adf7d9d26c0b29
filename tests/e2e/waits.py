"""Waits for what a user sees of a pod."""

from __future__ import annotations

from tests.e2e.api import Api, scheduled_condition
from tests.e2e.stack import until


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
