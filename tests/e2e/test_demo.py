"""`stretto demo` on the first pods of its trace: its report, its code, its logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.commands import ended

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


async def test_a_short_demo_reports_what_its_roles_did_and_ends_quietly(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    end = await ended(tmp_path, "demo", "--pods=60", "--span-s=5", "--out", str(out))
    assert end.code == 0, end.lines
    said = "\n".join(end.lines)
    assert "every invariant held" in said
    assert "API writes per bound pod" in said
    report = json.loads((out / "report.json").read_bytes())
    calls = report["scheduler_api_requests"]
    assert calls["binder"]["create pods/binding"] == 60
    assert set(calls) == {"dispatcher", "binder"}
    assert report["attempts_per_pod"] == pytest.approx(1, abs=0.2)
    assert int(report["conditions"]["CPUs"]) > 0
    assert report["settings"].keys().isdisjoint({"rate", "rate_from", "seed", "shapes"})
    # Had the cluster ended first, its clients would have complained at the end.
    for log in sorted((out / "logs").glob("*.log")):
        lines = log.read_text().splitlines()
        assert not [line for line in lines if " W " in line or " E " in line], log.name
