"""What `stretto demo` refuses: one line, before anything is started."""

from __future__ import annotations

import asyncio
import pathlib

import pytest

from stretto.cli.demo import DemoSettings, run_demo
from stretto.model.errors import OperatorError


def test_fewer_than_no_pods_are_refused() -> None:
    with pytest.raises(ValueError, match="--pods -4: take 0"):
        DemoSettings(pods=-4)


async def test_an_out_folder_that_cannot_be_made_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OperatorError, match=r"--out .*file/out: Not a directory; name a folder"):
        await run_demo(DemoSettings(out=tmp_path / "file" / "out"), stop=asyncio.Event())


async def test_a_log_that_cannot_be_replaced_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "logs" / "binder.log").mkdir(parents=True)
    with pytest.raises(OperatorError, match=r"--out .*: Is a directory; name a folder"):
        await run_demo(DemoSettings(out=tmp_path), stop=asyncio.Event())
