"""The table of mutants fits the code as it is."""

from __future__ import annotations

import pathlib

import pytest

from tests.mutants.table import MUTANTS, Mutant

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_mutant_changes_one_place_and_names_tests_that_exist(mutant: Mutant) -> None:
    assert (ROOT / mutant.file).read_text().count(mutant.old) == 1
    assert mutant.old != mutant.new
    assert mutant.tests
    assert all((ROOT / test).is_file() for test in mutant.tests)
