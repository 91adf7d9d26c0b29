"""How densely the brain modules check themselves while they run: ``make assertions``.

Assertions are on in production (nothing is started with ``-O``): pre- and postconditions of steps,
sums that cannot be negative, versions that only grow, states that exclude each other. Counted are
the ``assert`` statements in functions against all other statements there; nested functions count
once, docstrings and imports not at all. What is checked by ``validate()`` in tests and audits
counts too, because audits run in production. Exit code 1 below the bar.
"""

from __future__ import annotations

import ast
import pathlib
import sys
from collections.abc import Iterator
from typing import NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

from tests.checks.house_rules import BRAINS

ROOT = pathlib.Path(__file__).parents[2]
OFFLINE = ("stretto/audit",)
"""Reads what others have done, and is no part of a running scheduler."""
STATEMENTS_AN_ASSERTION = 20.0
"""At most so many other statements for each assertion; reliability R25."""
SPARSE = 10


class Density(NamedTuple):
    """Of a module."""

    path: str
    statements: int
    assertions: int

    @property
    def per_assertion(self) -> float:
        """Statements an assertion; all of them and one more if there is none."""
        return self.statements / self.assertions if self.assertions else self.statements + 1.0


def statements_of(tree: ast.Module) -> Iterator[ast.stmt]:
    """What is executed in functions."""
    pending: list[tuple[ast.AST, bool]] = [(tree, False)]
    while pending:
        node, inside = pending.pop()
        for child in ast.iter_child_nodes(node):
            function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            pending.append((child, inside or function))
            plain = isinstance(child, ast.stmt) and not function
            if inside and plain and not _is_text(child) and not _is_import(child):
                yield child


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_import(node: ast.AST) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def density_of(path: str, text: str) -> Density:
    """Counted in a module's source."""
    found = list(statements_of(ast.parse(text)))
    assertions = sum(isinstance(each, ast.Assert) for each in found)
    return Density(path, len(found) - assertions, assertions)


def all_modules() -> list[Density]:
    """The brain modules that run in production."""
    return [
        density_of(path, (ROOT / path).read_text())
        for folder, names in BRAINS.items()
        if folder not in OFFLINE
        for path in sorted(f"{folder}/{name}.py" for name in names)
    ]


def main() -> int:
    """Print the sum, and where most is missing."""
    modules = all_modules()
    total = Density("", sum(m.statements for m in modules), sum(m.assertions for m in modules))
    if total.per_assertion > STATEMENTS_AN_ASSERTION or "--all" in sys.argv:
        by_lack = sorted(
            modules, key=lambda m: m.assertions * STATEMENTS_AN_ASSERTION - m.statements
        )
        for module in by_lack if "--all" in sys.argv else by_lack[:SPARSE]:
            sys.stdout.write(f"{module.path:36} {module.statements:4} {module.assertions:3}\n")
    sys.stdout.write(
        f"assertions: {total.assertions} beside {total.statements} statements in {len(modules)} "
        f"brain modules, 1 per {total.per_assertion:.1f} (at least 1 per "
        f"{STATEMENTS_AN_ASSERTION:g})\n"
    )
    return 0 if total.per_assertion <= STATEMENTS_AN_ASSERTION else 1


if __name__ == "__main__":
    sys.exit(main())
