"""Fresh worlds of a few seeds, decided by kube-scheduler's own code while the test runs."""

from __future__ import annotations

import pytest

from tests.golden.differential import FAMILIES, Run, compare, main
from tests.golden.dra_worlds import worlds

pytestmark = pytest.mark.oracle
SEED = 20_261
WORLDS = 4


@pytest.mark.parametrize("variant", ["public", "wide"])
@pytest.mark.parametrize("family", FAMILIES)
def test_fresh_worlds_are_decided_as_kube_scheduler_decides_them(ask_oracle, family, variant):
    run = Run()
    compare(run, ask_oracle, family=family, seed=SEED, count=WORLDS, variant=variant)
    assert [str(d) for tally in run.tallies.values() for d in tally.differences] == []
    assert run.pods > WORLDS
    assert run.unanswered.total() < WORLDS


@pytest.mark.parametrize("seed", [1, 2])
def test_devices_are_given_out_as_kube_scheduler_gives_them_out(ask_oracle, seed):
    run = Run()
    for line in worlds(seed, 12):
        run.take(family="devices", line=ask_oracle(line))
    assert [str(d) for tally in run.tallies.values() for d in tally.differences] == []
    assert run.pods > 50
    assert run.unanswered.total() == 0


def test_the_run_names_its_seeds_and_says_how_many_pods_were_decided(oracle, capsys):
    assert main(["--pods", "20", "--seed", "7", "--family", "taints", "--family", "ports"]) == 0
    out, err = capsys.readouterr()
    assert "taints: seed 7" in err
    assert "ports: seed 8" in err
    assert "0 differences, first seed 7" in out
