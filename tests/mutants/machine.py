"""Mutants that a machine makes: one operator, condition or statement of the brain modules or of the
ledger's script at a time is another one, or left out.

mutmut and cosmic-ray were not taken: they know no Lua, and need copies of functions or a database
where what is of use here is these few changes, made in the text, so that a mutant is a line that
can be read. Left alone are assertions and what only checks or prints, text, type
annotations, and numbers outside functions: those are settings, whose value no test should fix.
The script's ``set[name] = true`` is left alone too: only the names of such tables are read.
"""

from __future__ import annotations

import ast
import bisect
import dataclasses
import itertools
import pathlib
import random
import re
from collections.abc import Iterator

from tests.checks.house_rules import BRAINS
from tests.mutants.runner import ROOT

SCRIPT = "stretto/ledger/ledger.lua"
OFFLINE = "stretto/audit"
"""No part of a running scheduler."""
COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "//"), ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
}  # fmt: skip
CHECKS = {"validate", "statistics", "__repr__", "story"}
LUA = (
    (re.compile(r"(?<![<>~=])==(?!=)"), "~="), (re.compile(r"~="), "=="),
    (re.compile(r"<(?!=)"), "<="), (re.compile(r"<="), "<"), (re.compile(r">(?!=)"), ">="),
    (re.compile(r">="), ">"), (re.compile(r"\band\b"), "or"), (re.compile(r"\bor\b"), "and"),
    (re.compile(r"\bnot "), ""), (re.compile(r" \+ "), " - "), (re.compile(r" - "), " + "),
    (re.compile(r"(?<!\] = )\btrue\b"), "false"), (re.compile(r"\bfalse\b"), "true"),
    (re.compile(r"(?<=^)\s*redis\.call\(.*\)$"), " "),
)  # fmt: skip

TESTS: dict[str, tuple[str, ...]] = {
    "stretto/quota": (
        "tests/quota", "tests/binder/test_quota.py", "tests/dispatcher/test_quota.py",
    ),
    "stretto/ledger": ("tests/ledger",),
    "stretto/kube": (
        "tests/kube/test_lease_rules.py", "tests/kube/test_sightings.py", "tests/kube",
    ),
    "binder": ("tests/binder", "tests/quota", "tests/simulation"),
    "dispatcher": ("tests/dispatcher", "tests/simulation"),
    "scheduler_shard": ("tests/shard", "tests/simulation"),
}  # fmt: skip
"""What is run against mutants of a folder; tests named after the module come first."""
ALSO = {
    "bindings": ("binds", "commit_loop"), "commit": ("commits",), "rooms": ("commits",),
    "machine": ("commits", "lifecycle", "any_order"), "quota": ("quota",), "prebind": ("claims",),
    "storage": ("claims",), "device_book": ("device_claims",), "accounts": ("device_claims",),
    "charges": ("device_claims", "claims"), "budgets": ("preemptions",),
    "pods": ("queue", "shape_cycle"),
    "preemption_claims": ("preemptions",), "outcomes": ("lifecycle", "commits"),
    "lanes": ("queue",), "shapes": ("queue", "shape_cycle", "worker"), "wakeups": ("shape_cycle",),
    "groups": ("groups", "elections"), "assignment": ("shards",), "shard_side": ("shards",),
    "batches": ("queue", "slow_lane"), "shape_cycle": ("shape_cycle", "cluster_events"),
    "elections": ("elections", "groups"), "group_records": ("groups",),
    "group_hindrance": ("elections",),
    "binder_side": ("lifecycle", "shards"), "admission_look": ("admission",),
    "job_lines": ("admission",), "job_priorities": ("admission",), "job_writes": ("job_writes",),
    "contention": ("ladder",), "auditor": ("audit",), "intake": ("lifecycle",),
    "ledger": ("at_work", "reserve", "losses", "script_equals_twin"),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class MachineMutant:
    """One change of one place."""

    file: str
    line: int
    where: str
    """The function it is in."""
    start: int
    end: int
    """In the bytes of the file."""
    old: str
    new: str
    context: str
    """The line it is in, without what is around."""

    @property
    def key(self) -> str:
        """The same as long as the line is."""
        return f"{self.file} {self.where}: {self.context}: {self.old} → {self.new or 'nothing'}"

    @property
    def name(self) -> str:
        """With the place."""
        return f"{self.file}:{self.line} {self.where}: {self.old} → {self.new or 'nothing'}"

    @property
    def own_tests(self) -> tuple[str, ...]:
        """Those named after the module, which know most of it."""
        path = pathlib.PurePosixPath(self.file)
        names = (path.stem, *ALSO.get(path.stem, ()))
        own = (f"{TESTS[path.parent.as_posix()][0]}/test_{name}.py" for name in names)
        return tuple(name for name in own if (ROOT / name).is_file())

    @property
    def tests(self) -> tuple[str, ...]:
        """The module's own first."""
        return (*self.own_tests, *TESTS[pathlib.PurePosixPath(self.file).parent.as_posix()])

    def change(self, text: str) -> str:
        """The file with the fault in it."""
        raw = text.encode()
        assert raw[self.start : self.end].decode() == self.old, f"{self.name}: it has changed"
        return (raw[: self.start] + self.new.encode() + raw[self.end :]).decode()


class _Places(ast.NodeVisitor):
    """Everything in a module that can be changed: (first byte, last byte, new text, where)."""

    def __init__(self, raw: bytes) -> None:
        self.found: list[tuple[int, int, str, str]] = []
        self._raw = raw
        self._lines = [0]
        for line in raw.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._where: list[str] = []

    def _begin(self, node: ast.expr | ast.stmt) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def _finish(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._lines[node.end_lineno - 1] + node.end_col_offset

    def _put(self, start: int, end: int, new: str) -> None:
        if self._where:
            self.found.append((start, end, new, ".".join(self._where)))

    def _between(self, left: ast.expr, right: ast.expr, old: str, new: str) -> None:
        """The operator between two operands."""
        start = self._finish(left)
        gap = self._raw[start : self._begin(right)].decode()
        words = r"\s+".join(map(re.escape, old.split()))
        match = re.search(rf"(?<!\w){words}(?!\w)", gap)
        if match and "#" not in gap:
            first = start + len(gap[: match.start()].encode())
            self._put(first, first + len(match[0].encode()), new)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in CHECKS:
            return
        self._where.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._where.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = _function  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                self.visit(statement)

    def visit_Assert(self, node: ast.Assert) -> None:
        """An assertion is a check itself."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Text for people."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            self._between(left, right, *COMPARISONS[type(operator)])
            left = right
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between(left, right, old, new)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in ARITHMETIC:
            self._between(node.left, node.right, *ARITHMETIC[type(node.op)])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._put(self._begin(node), self._begin(node) + len("not "), "")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._put(self._begin(node), self._finish(node), str(not value))
        elif isinstance(value, int):
            self._put(self._begin(node), self._finish(node), str(value + 1))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._put(self._begin(node), self._finish(node), "pass")
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        self._put(self._begin(node), self._finish(node), "pass")

    def visit_Assign(self, node: ast.Assign) -> None:
        """One that changes an object; a name that is not set would fail by itself."""
        if all(isinstance(each, ast.Attribute | ast.Subscript) for each in node.targets):
            self._put(self._begin(node), self._finish(node), "pass")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._put(self._begin(node), self._finish(node), "pass")
            self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        self._put(self._begin(node.test), self._finish(node.test), "False")
        self.generic_visit(node)

    def visit_Break(self, node: ast.Break) -> None:
        self._put(self._begin(node), self._finish(node), "pass")


def of_python(file: str, text: str) -> Iterator[MachineMutant]:
    """All mutants of a module."""
    raw = text.encode()
    places = _Places(raw)
    places.visit(ast.parse(text))
    yield from _made(file, raw, places.found)


def of_script(file: str, text: str) -> Iterator[MachineMutant]:
    """All mutants of a Lua script: comments and text left alone."""
    found: list[tuple[int, int, str, str]] = []
    at, where = 0, "script"
    for line in text.splitlines(keepends=True):
        code = re.sub(r"'[^']*'", lambda m: "'" * len(m[0]), line.split("--")[0].rstrip("\n"))
        if match := re.search(r"\bfunction ([\w.:]+)|local (\w+) = function", code):
            where = match[1] or match[2]
        for pattern, new in LUA:
            for match in pattern.finditer(code):
                start = at + len(line[: match.start()].encode())
                found.append((start, start + len(match[0].encode()), new, where))
        at += len(line.encode())
    yield from _made(file, text.encode(), found)


def _made(
    file: str, raw: bytes, places: list[tuple[int, int, str, str]]
) -> Iterator[MachineMutant]:
    lines = raw.split(b"\n")
    starts = list(itertools.accumulate((len(line) + 1 for line in lines), initial=0))
    for start, end, new, where in places:
        line = bisect.bisect_right(starts, start) - 1
        yield MachineMutant(
            file, line + 1, where, start, end, raw[start:end].decode(), new,
            lines[line].decode().strip(),
        )  # fmt: skip


def files() -> list[str]:
    """The brain modules that run in a scheduler, and the script."""
    modules = [
        f"{folder}/{name}.py"
        for folder, names in BRAINS.items()
        for name in sorted(names)
        if folder != OFFLINE
    ]
    return [*modules, SCRIPT]


def all_mutants(only: str = "") -> list[MachineMutant]:
    """Every mutant of the files whose path contains ``only``."""
    found: list[MachineMutant] = []
    for file in files():
        if only in file:
            text = (ROOT / file).read_text()
            found += of_script(file, text) if file == SCRIPT else of_python(file, text)
    return found


def sample(count: int, *, seed: int, only: str = "") -> list[MachineMutant]:
    """So many of them, the same for the same seed and code; as far as it is tried, a sample."""
    every = all_mutants(only)
    return random.Random(seed).sample(every, min(count, len(every)))
