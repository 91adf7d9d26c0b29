"""The checks that count: assertions, tests that check nothing, branches."""

from __future__ import annotations

import ast

from tests.checks.assertions import density_of
from tests.checks.coverage_figures import Taken, is_core, of_report
from tests.checks.idle_tests import idle


def test_assertions_are_counted_against_the_statements_of_functions() -> None:
    text = (
        '"""Text."""\nimport os\nX = 1\n\ndef f(a):\n    """Text."""\n    import sys\n'
        "    assert a\n    b = 1\n    def g():\n        assert b\n        return b\n    return g\n"
    )
    density = density_of("f.py", text)
    assert (density.assertions, density.statements) == (2, 3)
    assert density.per_assertion == 1.5
    assert density_of("g.py", "def f():\n    return 1\n").per_assertion == 2


def test_a_test_that_checks_nothing_is_found_also_behind_a_helper() -> None:
    trees = {
        "tests/a.py": "def works(x): assert x\ndef looks(x): return x\n",
        "tests/test_a.py": (
            "def here(): works(1)\n"
            "def test_one(): works(1)\n"
            "def test_two(): looks(1)\n"
            "def test_three(): here()\n"
            "async def test_four():\n    with pytest.raises(ValueError): looks(1)\n"
        ),
    }
    found = list(idle({path: ast.parse(text) for path, text in trees.items()}))
    assert found == ["tests/test_a.py::test_two"]


def test_branches_are_summed_and_brain_modules_are_the_core() -> None:
    files = {
        "binder/machine.py": {"summary": {"num_branches": 8, "covered_branches": 6}},
        "stretto/cli/run.py": {"summary": {"num_branches": 2, "covered_branches": 0}},
    }
    taken = of_report({"files": files})
    assert sum(taken.values(), Taken(0, 0)) == (10, 6)
    assert [path for path in taken if is_core(path)] == ["binder/machine.py"]
    assert taken["binder/machine.py"].percent == 75
