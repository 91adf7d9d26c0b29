"""Check the rules of the house that no other tool checks: sizes, brains without I/O, no leftovers.

Run as ``python tests/checks/house_rules.py`` from the root of a checkout; prints one line a
finding and exits with 1 if there is any. ``make check`` runs it.
"""

from __future__ import annotations

import ast
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

MODULE_LINES = 500
FUNCTION_LINES = 50
BRAINS = {
    "binder": {
        "accounts", "auditor", "bindings", "budgets", "charges", "cluster", "commit", "device_book",
        "effects", "endings", "entries", "fitting", "freezes", "ledger_book", "log", "machine",
        "order", "outcomes", "pod_labels", "prebind", "preemption_claims", "preemptions", "quota",
        "quota_hopes", "quota_told", "rooms", "shape_numbers", "stakes", "storage", "unchecked",
    },
    "stretto/quota": {"accounts", "rows", "status", "tree", "view"},
    "stretto/ledger": {"twin", "twin_store"},
    "stretto/kube": {"lease", "recheck", "sightings"},
    "dispatcher": {
        "admission", "admission_look", "assignment", "auditor", "batches", "binder_side",
        "cluster_events", "conditions", "contention", "elections", "group_conditions",
        "group_hindrance", "group_records", "groups", "intake", "job_lines", "job_priorities",
        "job_records", "job_writes", "ladder", "lanes", "machine", "outcomes", "pods",
        "promises", "queue", "queue_status", "quota", "shape_cycle", "shape_records", "shapes",
        "shard_side", "slow_lane", "states", "statistics", "wakeups",
    },
    "stretto/audit": {
        "api_log", "findings", "ledger_log", "rules_api", "rules_binder", "rules_gangs",
        "rules_ledger", "rules_rest",
    },
    "scheduler_shard": {
        "answers", "asking", "claims", "consulting", "desk", "gangs", "overlay", "partitions",
        "picture", "proposed", "shapes", "stakes", "units", "worker",
    },
}  # fmt: skip
"""What ``tests/checks/assertions.py`` counts and ``make coverage`` calls the core, too."""
BRAIN_FORBIDDEN = {"asyncio", "time", "random", "grpc", "redis", "kubernetes", "aiohttp", "socket"}
CARRIED = ("tests/golden/generator/gen.py",)
"""Carried over as they are, so that what their origin changes can be taken over again."""
LEFTOVER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|NotImplementedError|PLACEHOLDER")


def sources() -> list[pathlib.Path]:
    """Python files that git tracks or would track, generated ones left out."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    paths = (pathlib.Path(name) for name in listing.stdout.split())
    return sorted(
        p for p in paths if p.exists() and not p.name.endswith(("_pb2.py", "_pb2_grpc.py"))
    )


def size_findings(*, path: pathlib.Path, text: str, tree: ast.AST) -> Iterator[str]:
    """Modules and functions that no longer fit in a head or on a screen."""
    lines = text.count("\n")
    if lines > MODULE_LINES:
        yield f"{path}: {lines} lines; split it (at most {MODULE_LINES})"
    if "tests" in path.parts:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            if size > FUNCTION_LINES:
                yield f"{path}:{node.lineno} {node.name}: {size} lines (at most {FUNCTION_LINES})"


def brain_findings(*, path: pathlib.Path, tree: ast.AST) -> Iterator[str]:
    """Brain modules decide and do no I/O: no await, no clock, no randomness, no client library."""
    if path.stem not in BRAINS.get(path.parent.as_posix(), set()):
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt | ast.expr):
            continue
        if isinstance(node, ast.Await | ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith):
            yield f"{path}:{node.lineno} a brain module awaits; move it to the shell"
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            if name.split(".")[0] in BRAIN_FORBIDDEN:
                yield f"{path}:{node.lineno} a brain module imports {name}; pass it in"


def findings() -> Iterator[str]:
    """All findings of the tree."""
    for path in sources():
        if path.as_posix() in CARRIED:
            continue
        text = path.read_text()
        tree = ast.parse(text, filename=str(path))
        yield from size_findings(path=path, text=text, tree=tree)
        yield from brain_findings(path=path, tree=tree)
        if path.name != "house_rules.py":
            for number, line in enumerate(text.splitlines(), 1):
                if LEFTOVER.search(line):
                    yield f"{path}:{number} a leftover: {line.strip()[:80]}"


def main() -> int:
    """Print the findings; 1 if there is any."""
    found = list(findings())
    for line in found:
        sys.stderr.write(line + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
