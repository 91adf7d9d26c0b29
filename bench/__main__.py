"""``python -m bench [NAME …]``: run benchmarks; each prints a table with conditions and goals.

Flags after a single NAME go to that benchmark: ``python -m bench pipeline --pods 20000``.
"""

from __future__ import annotations

import argparse
import importlib
import sys

from stretto.model.errors import OperatorError

BENCHMARKS = {
    "decide": "one shard's decisions, in process",
    "upstream": "the same decisions by kube-scheduler's own code here, and its published floors",
    "ledger": "reservations of one client at one server",
    "pipeline": "all roles as processes; the API server is replaced by the simulator",
    "queue": "hopeless and gated pods beside a stream, and gangs; the simulator as API server",
    "side-by-side": "the same pods on a real kube-apiserver: kube-scheduler, Stretto, the floor",
}


def main(words: list[str]) -> int:
    listed = "\n".join(f"  {name:14}{text}" for name, text in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=f"{__doc__}\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="which to run; all in turn when none is named",
    )
    if words and words[0] in BENCHMARKS and len(words) > 1 and words[1].startswith("-"):
        return run_one(words[0], words[1:])
    names = parser.parse_args(words).names or list(BENCHMARKS)
    for name in names:
        if name not in BENCHMARKS:
            parser.error(f"there is no benchmark {name!r}; take one of {', '.join(BENCHMARKS)}")
    codes = [run_one(name, []) for name in names]
    return max(codes)


def run_one(name: str, arguments: list[str]) -> int:
    print(f"== {name}: {BENCHMARKS[name]}", flush=True)
    module = importlib.import_module(f"bench.{name.replace('-', '_')}")
    try:
        code: int = module.run(arguments)
    except OperatorError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return error.exit_code
    print(flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
