"""Entry point of the `stretto` command.

Each subcommand imports what it needs when it is chosen, so that a shard process never loads the
Kubernetes or the Redis client (design §3).
"""

from __future__ import annotations

import argparse
import asyncio
import difflib
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NoReturn

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

Command = Callable[[argparse.Namespace], int]


def add_role(commands: argparse._SubParsersAction[Parser], *, name: str, text: str) -> None:
    """A subcommand that runs one role until it is told to stop."""
    parser = commands.add_parser(name, help=text, description=text)
    parser.set_defaults(command=lambda args: role_command(args, name=name))


def role_parts(name: str) -> tuple[type[Any], Callable[..., Awaitable[None]]]:
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


def role_command(args: argparse.Namespace, *, name: str) -> int:
    """Run the role named on the command line."""
    settings_class, run = role_parts(name)
    settings: object = settings_from(args, settings_class)
    set_up_logging(settings)

    async def main(stop: asyncio.Event) -> int:
        await run(settings, stop=stop, ready=None)
        return 0

    return run_role(main)


def set_up_logging(settings: object) -> None:
    """Configure logs from the settings of a role."""
    from stretto.telemetry.logs import setup_logging

    setup_logging(
        format=getattr(settings, "log_format", "json"), level=getattr(settings, "log_level", "info")
    )


Parts = tuple[type[Any], Callable[[Any], int]]
"""A settings class, and what runs with such settings."""


def add_command(
    commands: argparse._SubParsersAction[Parser],
    words: Sequence[str],
    *,
    name: str,
    text: str,
    parts: Callable[[Parser], Parts],
) -> None:
    """A subcommand with flags from settings; what it needs is imported when it is named."""
    parser = commands.add_parser(name, help=text, description=text)
    if words[:1] != [name]:
        return
    settings, run = parts(parser)
    add_flags(parser, settings)
    parser.set_defaults(command=lambda args: run(settings_from(args, settings)))


def run_parts(_parser: Parser) -> Parts:
    """`stretto run`: all roles on one machine."""
    from stretto.cli.run import RunSettings, run_command

    return RunSettings, run_command


def demo_parts(_parser: Parser) -> Parts:
    """`stretto demo`: the main job with a simulated cluster and a real trace."""
    from stretto.cli.demo import DemoSettings, demo_command

    return DemoSettings, demo_command


def loadgen_parts(parser: Parser) -> Parts:
    """`stretto loadgen`: create pods on a cluster and report how they were scheduled."""
    from stretto.cli.loadgen import loadgen_command
    from stretto.workload.outcome import EXIT_CODES
    from stretto.workload.settings import LoadSettings

    parser.epilog = EXIT_CODES
    return LoadSettings, loadgen_command


SETTINGS_COMMANDS: tuple[tuple[str, str, Callable[[Parser], Parts]], ...] = (
    (
        "run",
        "run all roles on this machine for an existing cluster, in the foreground",
        run_parts,
    ),
    (
        "demo",
        "run the main job here: simulated cluster, real Valkey, all roles, a real GPU trace",
        demo_parts,
    ),
    (
        "loadgen",
        "create pods (steady, burst, ramp or from a trace) and report how they were scheduled",
        loadgen_parts,
    ),
)


def add_golden(commands: argparse._SubParsersAction[Parser]) -> None:
    """`stretto golden`: check cases of the golden format."""
    text = "check golden cases (decisions of the real kube-scheduler) against the placement code"
    parser = commands.add_parser("golden", help=text, description=text)
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="a .jsonl or .jsonl.gz file, or a folder of them"
    )

    def command(args: argparse.Namespace) -> int:
        from stretto.cli.golden import run

        return run(args.paths)

    parser.set_defaults(command=command)


def add_check_history(commands: argparse._SubParsersAction[Parser]) -> None:
    """`stretto check-history`: hold a recorded history against the invariants."""
    text = "recompute the invariants over a recorded history (API server, ledger, audit log)"
    parser = commands.add_parser("check-history", help=text, description=text)
    parser.add_argument(
        "folder", metavar="FOLDER", help="with api.jsonl, audit.jsonl, owner and ledger/"
    )
    parser.add_argument(
        "--scheduler-name", action="append", metavar="NAME", help="ours; default: stretto"
    )
    parser.add_argument(
        "--not-at-rest", action="store_true", help="something was under way when it ended"
    )

    def command(args: argparse.Namespace) -> int:
        from stretto.cli.history import check_history

        names = tuple(args.scheduler_name or ("stretto",))
        return check_history(args.folder, schedulers=names, at_rest=not args.not_at_rest)

    parser.set_defaults(command=command)


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


def parsed(words: Sequence[str]) -> tuple[argparse.Namespace, Parser]:
    """The flags, and the parser of the command that they are of, to refuse what is left over."""
    parser, commands = build_parser(words)
    args, unknown = parser.parse_known_args(words)
    own: Parser = commands.choices[args.role]
    if unknown:
        own.refuse(unknown)
    return args, own


def build_parser(
    words: Sequence[str],
) -> tuple[Parser, argparse._SubParsersAction[Parser]]:
    """The parser; flags of a role are added only when that role is named, since they import its
    settings."""
    parser = Parser(
        prog="stretto",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="role", metavar="COMMAND", required=True)
    roles = {
        "dispatcher": "watch pending pods, keep the queue, stream units to shards",
        "shard": "place units on the shared snapshot and propose them to the binder",
        "binder": "re-check proposals, reserve them in the ledger, bind",
        "simulator": "serve a simulated cluster over HTTP",
    }
    for name, text in roles.items():
        add_role(commands, name=name, text=text)
        if words[:1] == [name]:
            add_flags(commands.choices[name], role_parts(name)[0])
    for name, text, parts in SETTINGS_COMMANDS:
        add_command(commands, words, name=name, text=text, parts=parts)
    add_golden(commands)
    add_check_history(commands)
    return parser, commands


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; see stretto.cli.runner for the exit codes."""
    os.environ.setdefault(*NO_THREADS)
    words = list(sys.argv[1:] if words is None else words)
    args, parser = parsed(words)
    command: Command = args.command
    try:
        return command(args)
    except FlagError as error:
        parser.error(str(error))
    except OperatorError as error:
        sys.stderr.write(f"stretto: {error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
