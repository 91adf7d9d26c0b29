"""Clocks of roles that a scenario can set wrong; see clock.c."""

from __future__ import annotations

import pathlib
import shutil
import struct
import subprocess
import time

SOURCE = pathlib.Path(__file__).with_name("clock.c")
LIBRARY = "clock.so"
SECOND = 1_000_000_000


class Clock:
    """The clock of one role: right until told otherwise. Its file is mapped by the role."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        path.write_bytes(bytes(32))
        self.reset()

    def reset(self) -> None:
        """Tell the true time. Only for processes that start afterwards: time never goes back."""
        self._wall, self._base, self._added, self._rate = 0, 0, 0, 1.0
        self._write()

    def jump(self, seconds: int) -> None:
        """The wall clock is off by so much from now on."""
        self._wall = seconds * SECOND
        self._write()

    def rate(self, rate: float) -> None:
        """Every clock of the role that does not tell the time of day runs at this rate."""
        now = time.monotonic_ns()
        self._added += int((now - self._base) * (self._rate - 1.0))
        self._base, self._rate = now, rate
        self._write()

    def gained_s(self) -> float:
        """How far it is ahead."""
        ran = time.monotonic_ns() - self._base
        return (self._added + ran * (self._rate - 1.0)) / SECOND

    def _write(self) -> None:
        with self._path.open("r+b") as file:
            file.write(struct.pack("<qqqd", self._wall, self._base, self._added, self._rate))


def clocks_for(roles: tuple[str, ...], control: pathlib.Path) -> dict[str, Clock]:
    """A clock for each role, none where the library cannot be compiled."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return {}
    library = control / LIBRARY
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    return {role: Clock(control / f"{role}.clock") for role in roles}
