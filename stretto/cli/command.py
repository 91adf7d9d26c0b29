"""The `stretto` command: its words become the settings of a subcommand, which is run.

Each subcommand imports what it needs when it is chosen, so that a shard process never loads the
Kubernetes or the Redis client (design §3). Only the parser of the chosen one is made: those of all
of them cost each process of a deployment some milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import difflib
import gc
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from stretto.cli.flags import MAX_SHOWN, FlagError, add_flags, settings_from
from stretto.cli.runner import run_role
from stretto.model.errors import OperatorError

NO_THREADS = ("OPENBLAS_NUM_THREADS", "1")
"""NumPy's linear algebra, which nobody here uses, else starts a thread a core in each process."""
DESCRIPTION = """\
Stretto schedules pods in parallel: a dispatcher streams units to shards, shards place them on one
shared snapshot, a binder re-checks, reserves in a Redis/Valkey ledger and binds.

  stretto demo                          everything on this machine, simulated cluster, real trace
  stretto run --kubeconfig FILE         all roles on this machine, for an existing cluster
  stretto dispatcher|shard|binder       one role a process
"""


class Parser(argparse.ArgumentParser):
    """Flags are written out, and a mistake gets one line instead of the usage's many."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Name the mistake and end with code 2."""
        program = self.prog.split()[0]
        self.exit(2, f"{program}: {message}; see `{self.prog} --help`\n")

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """Name words that no flag of this command takes, and the flag that was meant."""
        word = unknown[0].partition("=")[0]
        kind = "flag" if word.startswith("-") else "argument"
        near = difflib.get_close_matches(word, self._option_string_actions, n=1, cutoff=0.75)
        meant = f" (did you mean {near[0]}?)" if near else ""
        self.error(f"unknown {kind} {word[:MAX_SHOWN]}{meant}")


Command = Callable[[argparse.Namespace], int]
"""Runs a subcommand with its parsed flags, and gives the exit code."""
Settings = type[Any]


def with_settings(parser: Parser, settings: Settings, run: Callable[[Any], int]) -> Command:
    """A command whose flags are the fields of a settings class."""
    add_flags(parser, settings)
    return lambda args: run(settings_from(args, settings))


def role_parts(name: str) -> tuple[Settings, Callable[..., Awaitable[None]]]:
    """The settings class and the run function of a role."""
    if name == "dispatcher":
        import dispatcher.process as dispatcher_process
        from stretto.config.dispatcher import DispatcherSettings

        return DispatcherSettings, dispatcher_process.run
    if name == "shard":
        import scheduler_shard.process as shard_process
        from stretto.config.shard import ShardSettings

        return ShardSettings, shard_process.run
    if name == "binder":
        import binder.process as binder_process
        from stretto.config.binder import BinderSettings

        return BinderSettings, binder_process.run
    import stretto.simulator.process as simulator_process
    from stretto.simulator.settings import SimulatorSettings

    return SimulatorSettings, simulator_process.run


def role(name: str) -> Callable[[Parser], Command]:
    """A subcommand that runs one role until it is told to stop."""

    def command(parser: Parser) -> Command:
        settings_class, run = role_parts(name)

        def run_it(settings: object) -> int:
            set_up_logging(settings)

            async def until_stopped(stop: asyncio.Event) -> int:
                await run(settings, stop=stop, ready=None)
                return 0

            return run_role(until_stopped)

        return with_settings(parser, settings_class, run_it)

    return command


def set_up_logging(settings: object) -> None:
    """Configure logs from the settings of a role."""
    from stretto.telemetry.logs import setup_logging

    setup_logging(
        format=getattr(settings, "log_format", "json"), level=getattr(settings, "log_level", "info")
    )


def run_all_roles(parser: Parser) -> Command:
    """`stretto run`: all roles on one machine."""
    from stretto.cli.run import RunSettings, run_command

    return with_settings(parser, RunSettings, run_command)


def demo(parser: Parser) -> Command:
    """`stretto demo`: the main job with a simulated cluster and a real trace."""
    from stretto.cli.demo import DemoSettings, demo_command

    return with_settings(parser, DemoSettings, demo_command)


def loadgen(parser: Parser) -> Command:
    """`stretto loadgen`: create pods on a cluster and report how they were scheduled."""
    from stretto.cli.loadgen import loadgen_command
    from stretto.workload.outcome import EXIT_CODES
    from stretto.workload.settings import LoadSettings

    parser.epilog = EXIT_CODES
    return with_settings(parser, LoadSettings, loadgen_command)


def golden(parser: Parser) -> Command:
    """`stretto golden`: check cases of the golden format."""
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="a .jsonl or .jsonl.gz file, or a folder of them"
    )
    parser.epilog = "exit codes: 0 no difference, 1 a difference, 2 a case cannot be read"

    def command(args: argparse.Namespace) -> int:
        from stretto.cli.golden import run

        return run(args.paths)

    return command


def record(parser: Parser) -> Command:
    """`stretto record`: write the history of a cluster for `stretto check-history`."""
    from stretto.cli.record import EPILOG, RecordSettings, record_command

    parser.epilog = EPILOG
    return with_settings(parser, RecordSettings, record_command)


def check_history(parser: Parser) -> Command:
    """`stretto check-history`: hold a recorded history against the invariants."""
    parser.add_argument(
        "folder", metavar="FOLDER", help="with api.jsonl, audit.jsonl, owner and ledger/"
    )
    parser.add_argument(
        "--scheduler-name", action="append", metavar="NAME", help="ours; default: stretto"
    )
    parser.add_argument(
        "--not-at-rest", action="store_true", help="something was under way when it ended"
    )
    parser.epilog = (
        "exit codes: 0 every invariant held, 1 one is violated, 2 there is no history to read, "
        "3 the history has gaps that may hide something"
    )

    def command(args: argparse.Namespace) -> int:
        from stretto.cli.history import check_history

        names = tuple(args.scheduler_name or ("stretto",))
        return check_history(args.folder, schedulers=names, at_rest=not args.not_at_rest)

    return command


class Subcommand(NamedTuple):
    """What `stretto --help` says of it, and what adds its flags to a parser and runs it."""

    text: str
    make: Callable[[Parser], Command]


SUBCOMMANDS = {
    "dispatcher": Subcommand(
        "watch pending pods, keep the queue, stream units to shards", role("dispatcher")
    ),
    "shard": Subcommand(
        "place units on the shared snapshot and propose them to the binder", role("shard")
    ),
    "binder": Subcommand("re-check proposals, reserve them in the ledger, bind", role("binder")),
    "simulator": Subcommand("serve a simulated cluster over HTTP", role("simulator")),
    "run": Subcommand(
        "run all roles on this machine for an existing cluster, in the foreground", run_all_roles
    ),
    "demo": Subcommand(
        "run the main job here: simulated cluster, real Valkey, all roles, a real GPU trace", demo
    ),
    "loadgen": Subcommand(
        "create pods (steady, burst, ramp or from a trace) and report how they were scheduled",
        loadgen,
    ),
    "golden": Subcommand(
        "check golden cases (decisions of the real kube-scheduler) against the placement code",
        golden,
    ),
    "record": Subcommand(
        "record what happens on a cluster, for `stretto check-history`, until told to stop", record
    ),
    "check-history": Subcommand(
        "recompute the invariants over a recorded history (API server, ledger, audit log)",
        check_history,
    ),
}


def overview() -> Parser:
    """The parser of what is no subcommand's: the help, the version and mistakes."""
    parser = Parser(
        prog="stretto",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=Version, help="show the version and exit")
    commands = parser.add_subparsers(dest="subcommand", metavar="COMMAND", required=True)
    for name, subcommand in SUBCOMMANDS.items():
        commands.add_parser(name, help=subcommand.text)
    return parser


class Version(argparse.Action):
    """Prints what is installed."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """Print it and end."""
        import importlib.metadata

        sys.stdout.write(f"stretto {importlib.metadata.version('stretto')}\n")
        parser.exit()


def parsed(words: Sequence[str]) -> tuple[Command, argparse.Namespace, Parser]:
    """The command that the words ask for, its flags, and its parser, to refuse what they say."""
    name = words[0] if words else ""
    if name not in SUBCOMMANDS:
        parser = overview()
        _, unknown = parser.parse_known_args(words)  # ends, unless flags come before the command
        parser.refuse(unknown)
    text, make = SUBCOMMANDS[name]
    parser = Parser(prog=f"stretto {name}", description=text)
    command = make(parser)
    args, unknown = parser.parse_known_args(words[1:])
    if unknown:
        parser.refuse(unknown)
    return command, args, parser


def run(words: Sequence[str]) -> int:
    """Run the command; see stretto.cli.runner for the exit codes."""
    os.environ.setdefault(*NO_THREADS)
    command, args, parser = parsed(words)
    gc.freeze()  # what is loaded stays; to look at it once would cost what stretto.cli.main saved
    gc.enable()
    try:
        return command(args)
    except FlagError as error:
        parser.error(str(error))
    except OperatorError as error:
        sys.stderr.write(f"stretto: {error}\n")
        return error.exit_code
