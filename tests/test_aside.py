"""Work beside the loop: the loop goes on, and shapes of very many terms are ready after."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from stretto import aside as module
from stretto.aside import aside, put_in_order
from stretto.placement.preparing import PARTS
from tests.placement.test_many_terms import bound_with
from tests.placement.test_preparing import ASKED, POD_TERMS, prepared_of


async def test_the_loop_goes_on_meanwhile_and_failures_are_told() -> None:
    done = threading.Event()

    def work() -> int:
        assert done.wait(20), "the loop stands still"
        return threading.get_ident()

    waiting = asyncio.create_task(aside(work))
    await asyncio.sleep(0)
    done.set()
    assert await waiting != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await aside(lambda: 1 // 0)


async def test_the_work_gives_way_to_the_loop_sooner_than_threads_do() -> None:
    usual = sys.getswitchinterval()
    assert usual > module.HAND_OVER_S
    assert await aside(sys.getswitchinterval) == pytest.approx(module.HAND_OVER_S)
    with pytest.raises(ZeroDivisionError):
        await aside(lambda: 1 // 0)
    assert sys.getswitchinterval() == usual


@pytest.mark.parametrize("to_decide", [True, False])
async def test_only_shapes_of_very_many_terms_are_put_in_order(
    to_decide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []

    async def noting(work: object) -> None:
        calls.append(work)

    _, _, plain = bound_with([])
    monkeypatch.setattr(module, "aside", noting)
    await put_in_order([plain], to_decide=to_decide)
    assert calls == []
    nodes, pods = prepared_of(plain)
    await put_in_order([plain, nodes], to_decide=to_decide)
    assert len(calls) == int(to_decide)  # its terms are about nodes: no matter to others
    await put_in_order([plain, pods], to_decide=to_decide)
    assert len(calls) == 1 + int(to_decide)
    assert len(ASKED) == len(POD_TERMS) > PARTS
