"""The virtual loop leaves nothing behind."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

from tests.simulation.loop import VirtualLoop


def test_what_begins_while_others_clean_up_ends_too() -> None:
    """Else it is destroyed while it is pending, which the interpreter complains of."""
    loop = VirtualLoop()
    ended: list[str] = []

    async def waits(name: str) -> None:
        try:
            await asyncio.sleep(1e9)
        finally:
            ended.append(name)

    async def leaves_one_behind() -> None:
        try:
            await waits("first")
        finally:
            loop.create_task(waits("second"))
            await asyncio.sleep(1.0)

    async def whole() -> None:
        loop.create_task(leaves_one_behind())
        await asyncio.sleep(1.0)
        await loop.end_others()

    with patch.object(asyncio.tasks._all_tasks, "add", loop.tasks.append):  # type: ignore[attr-defined]
        loop.run_until_complete(whole())
    loop.close()
    assert ended == ["first", "second"]
