"""Entry point of the `stretto` command: what comes first, before there is much to load.

Loading takes some tenths of a second, and a service manager may change its mind in them. Until the
loop of a command that runs until it is told to stop has its own handlers, nothing has begun that
would have to be undone, so a signal ends the process at once, as stopped as asked.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence

UNTIL_STOPPED = frozenset({"run", "dispatcher", "shard", "binder", "simulator", "record"})
"""Commands that end with code 0 when they are told to stop."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the command with the words of this process, or with others inside a process that is
    already something else; see stretto.cli.runner for the exit codes."""
    if words is None:
        words = sys.argv[1:]
        if UNTIL_STOPPED.intersection(words[:1]):
            stop_at_once()
        gc.disable()  # code makes no garbage; the command enables it again when it is loaded
    from stretto.cli.command import run

    return run(words)


def stop_at_once() -> None:
    """From here on SIGTERM and SIGINT end the process with code 0.

    By _exit: an exception out of a handler would go through whatever is being loaded.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))


if __name__ == "__main__":
    sys.exit(main())
