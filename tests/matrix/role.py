"""Starts a role of Stretto for the fault matrix: ``python -m tests.matrix.role NAME FOLDER ARGS…``.

Before it runs what `stretto ARGS…` runs, it puts failpoints around functions of the role, shortens
waits that would make a scenario last minutes (``constants``), and, if ``NAME.clock`` lies in the
folder, starts itself again under a clock that can be set wrong.
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import sys
from typing import Any

from stretto.cli.main import main as stretto
from tests.matrix.failpoints import Failpoints

CONSTANTS = "constants"
"""JSON: "module:NAME" → value, "module:Class.method:parameter" → value of its default."""


def under_own_clock(name: str, control: pathlib.Path) -> None:
    """Go on in a process whose C library tells the time of ``NAME.clock``."""
    clock, library = control / f"{name}.clock", control / "clock.so"
    if clock.exists() and "LD_PRELOAD" not in os.environ:
        more = {"LD_PRELOAD": str(library), "STRETTO_TEST_CLOCK": str(clock)}
        command = [sys.executable, "-m", "tests.matrix.role", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, **more})


def set_constants(control: pathlib.Path, command: str) -> None:
    """Shorten what the scenarios would wait for; only what this role imports anyway."""
    file = control / CONSTANTS
    wanted: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    for where, value in wanted.items():
        role, _, rest = where.partition("/")
        if role != command:
            continue
        module, _, path = rest.partition(":")
        path, _, parameter = path.partition(":")
        owner: Any = importlib.import_module(module)
        *outer, last = path.split(".")
        for part in outer:
            owner = getattr(owner, part)
        assert hasattr(owner, last), where
        if parameter:
            getattr(owner, last).__kwdefaults__[parameter] = value
        else:
            setattr(owner, last, value)


def main() -> int:
    """Entry point."""
    name, folder, *arguments = sys.argv[1:]
    control = pathlib.Path(folder)
    under_own_clock(name, control)
    command = arguments[0]
    set_constants(control, command)
    Failpoints(control, name).install(command)
    return stretto(arguments)


if __name__ == "__main__":
    sys.exit(main())
