"""The embedded ledger comes back at its address with its data, however it ends."""

from __future__ import annotations

import os
import pathlib
import signal

import pytest

from stretto.cli.kept_ledger import KeptLedger
from stretto.cli.supervisor import RestartPause
from stretto.ledger.client import Ledger
from tests.e2e.stack import until
from tests.ledger.records import node, unit


async def test_a_killed_server_comes_back_at_its_address_with_its_entries(
    tmp_path: pathlib.Path,
) -> None:
    async with KeptLedger(folder=tmp_path) as kept:
        ledger = await Ledger.open(kept.url, owner="o", first_pause_s=0.1)
        await ledger.install(1)
        await ledger.set_accounts([node("n1")])
        await ledger.reserve([unit("u1", "n1")])
        assert not kept.died
        for times in (1, 2):
            os.kill(kept.server.pid, signal.SIGKILL)
            await until(lambda: kept.restarts == times, timeout_s=10, what="a start")  # noqa: B023
        assert kept.died
        # The same client, the same address, nothing told to it.
        assert [entry.pod_uid for entry in await ledger.entries()] == ["u1"]
        assert (await ledger.reserve([unit("u2", "n1")]))[0].kind.name == "GRANTED"
        await ledger.close()


async def test_what_hinders_a_start_is_told_and_tried_again(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "ledger"
    async with KeptLedger(folder=folder) as kept:
        away = folder.rename(tmp_path / "away")
        folder.write_text("in the way")
        os.kill(kept.server.pid, signal.SIGKILL)
        await until(
            lambda: any("cannot be used: File exists" in line for line in caplog.messages),
            timeout_s=10,
            what="a reason",
        )
        folder.unlink()
        away.rename(folder)
        await until(lambda: kept.restarts == 1, timeout_s=10, what="a start")
        ledger = await Ledger.open(kept.url, owner="o")
        await ledger.close()


async def test_nothing_stays_behind(tmp_path: pathlib.Path) -> None:
    async with KeptLedger(folder=tmp_path) as kept:
        pid = kept.server.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_pauses_grow_while_a_process_keeps_dying_and_are_short_after_a_long_life() -> None:
    pause = RestartPause()
    assert [pause.after(lived_s=1.0) for _ in range(7)] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert pause.after(lived_s=3600.0) == 0.2
    assert pause.after(lived_s=1.0) == 0.4
