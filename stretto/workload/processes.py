"""What a process has used, read from /proc (Linux); None elsewhere, or when it has gone."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUse:
    """CPU seconds since its start, and memory, of one process."""

    name: str
    pid: int
    cpu_s: float
    resident_mib: float
    peak_mib: float

    def since(self, before: ProcessUse | None) -> ProcessUse:
        """The same with the CPU used since an earlier reading."""
        earlier = before.cpu_s if before is not None and before.pid == self.pid else 0.0
        return ProcessUse(
            name=self.name,
            pid=self.pid,
            cpu_s=self.cpu_s - earlier,
            resident_mib=self.resident_mib,
            peak_mib=self.peak_mib,
        )


def machine_conditions() -> dict[str, str]:
    """What a reader has to know of this machine to compare figures."""
    return {
        "machine": f"{platform.machine()}, {platform.system()}",
        "CPUs": str(len(os.sched_getaffinity(0))),
        "python": platform.python_version(),
    }


def process_use(name: str, pid: int) -> ProcessUse | None:
    """Read a process."""
    folder = Path("/proc") / str(pid)
    try:
        # The command in parentheses may hold spaces and parentheses itself.
        cells = (folder / "stat").read_text().rpartition(")")[2].split()
        status = (folder / "status").read_text()
    except OSError:
        return None
    user, system = int(cells[11]), int(cells[12])
    return ProcessUse(
        name=name,
        pid=pid,
        cpu_s=(user + system) / os.sysconf("SC_CLK_TCK"),
        resident_mib=_kib(status, "VmRSS:") / 1024,
        peak_mib=_kib(status, "VmHWM:") / 1024,
    )


def _kib(status: str, field: str) -> int:
    for line in status.splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    return 0
