"""The conditions of a run: the machine, and CPU time of processes from /proc."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path

from stretto.cli.supervisor import process_cpu_s


def conditions() -> str:
    """One line about the machine."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    lines = [line for line in text.splitlines() if line.startswith("model name")]
    models = [line.partition(":")[2].strip() for line in lines]
    load = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} CPUs ({models[0] if models else platform.machine()}), "
        f"Python {platform.python_version()}, load before {load:.1f}"
    )


class CpuMeter:
    """CPU seconds of groups of processes since it was made; processes born later count whole."""

    def __init__(self, groups: Mapping[str, list[int]]) -> None:
        self._before = {pid: process_cpu_s(pid) for pids in groups.values() for pid in pids}

    def used(self, groups: Mapping[str, list[int]]) -> dict[str, float]:
        """Seconds by group."""
        return {
            name: sum(process_cpu_s(pid) - self._before.get(pid, 0.0) for pid in pids)
            for name, pids in groups.items()
        }
