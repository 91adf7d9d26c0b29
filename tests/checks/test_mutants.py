"""The table of mutants fits the code as it is, and the machine makes ones that can be run."""

from __future__ import annotations

import ast
import pathlib

import pytest

from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.machine import SCRIPT, all_mutants, of_python, of_script, sample
from tests.mutants.table import MUTANTS, Mutant

ROOT = pathlib.Path(__file__).parents[2]
SOURCE = '''
LIMIT = 3

class A:
    size: int = 4

    def grow(self, by: int) -> bool:
        """Grow by 1 < 2."""
        assert by > 0, f"{by + 1}"
        if by < LIMIT and not self.full:
            self.size += by
        self.tell(None)
        return True

    def validate(self):
        self.size = 1
'''


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_mutant_changes_one_place_and_names_tests_that_exist(mutant: Mutant) -> None:
    assert (ROOT / mutant.file).read_text().count(mutant.old) == 1
    assert mutant.old != mutant.new
    assert mutant.tests
    assert all((ROOT / test).is_file() for test in mutant.tests)


def test_the_machine_changes_what_decides_and_leaves_checks_text_and_settings_alone() -> None:
    found = {(m.where, m.old, m.new) for m in of_python("a.py", SOURCE)}
    assert found == {
        ("grow", "by < LIMIT and not self.full", "False"),
        ("grow", "<", "<="),
        ("grow", "and", "or"),
        ("grow", "not ", ""),
        ("grow", "self.size += by", "pass"),
        ("grow", "self.tell(None)", "pass"),
        ("grow", "True", "False"),
    }


def test_the_machine_leaves_comments_and_text_of_the_script_alone() -> None:
    script = "local function f(a)\n  -- a < b\n  if a < 1 then return 'x < y' end\nend\n"
    (mutant,) = of_script(SCRIPT, script)
    assert (mutant.line, mutant.where, mutant.old, mutant.new) == (3, "f", "<", "<=")
    assert mutant.change(script) == script.replace("if a < 1", "if a <= 1")


def test_a_sample_is_the_same_for_the_same_seed_and_can_be_parsed() -> None:
    chosen = sample(40, seed=7)
    assert chosen == sample(40, seed=7)
    for mutant in chosen:
        changed = mutant.change((ROOT / mutant.file).read_text())
        if mutant.file.endswith(".py"):
            ast.parse(changed)
        assert all((ROOT / test).exists() for test in mutant.tests)


def test_mutants_that_are_called_equivalent_are_still_made() -> None:
    assert EQUIVALENT.keys() <= {mutant.key for mutant in all_mutants()}
