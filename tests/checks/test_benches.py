"""Every benchmark can be named and explains itself; what they measure is not asserted here."""

from __future__ import annotations

import importlib
import inspect

import pytest

from bench.__main__ import BENCHMARKS


@pytest.mark.parametrize("name", sorted(BENCHMARKS))
def test_a_benchmark_has_its_entry_point_and_help(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    module = importlib.import_module(f"bench.{name.replace('-', '_')}")
    assert list(inspect.signature(module.run).parameters), name
    with pytest.raises(SystemExit) as caught:
        module.run(["--help"])
    assert caught.value.code == 0
    assert "usage" in capsys.readouterr().out
