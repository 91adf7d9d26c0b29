"""A run's exit code says whether every pod came to a node."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from stretto.cli.loadgen import load
from stretto.workload.load import LoadResult, run_load
from stretto.workload.outcome import EXIT_CODES, outcome
from stretto.workload.settings import LoadSettings
from tests.workload.tiny_scheduler import cluster


@pytest.fixture(scope="module")
def good() -> LoadResult:
    """A run in which every pod was bound."""

    async def made() -> LoadResult:
        async with cluster(nodes=2) as client:
            wanted = LoadSettings(run="r", pods=5, nodes="2", settle_s=0.5)
            return await run_load(wanted, client=client)

    return asyncio.run(made())


def with_counts(result: LoadResult, **counts: Any) -> LoadResult:
    return dataclasses.replace(result, counts=dataclasses.replace(result.counts, **counts))


def test_all_bound_is_good(good: LoadResult) -> None:
    assert outcome(good) == (0, "")


@pytest.mark.parametrize(
    ("counts", "code", "words"),
    [
        ({"waiting": 3, "told": 3}, 3, "3 pods still wait"),
        ({"waiting": 3, "told": 1}, 3, "still wait, 2 of them without having been told why"),
        ({"gone_unbound": 2}, 3, "2 pods were deleted before they were bound"),
        ({"rebound": 1}, 1, "1 pods were seen on two nodes"),
        ({"refused": 4}, 1, "4 pods were turned away by their kubelet"),
        ({"refused": 4, "waiting": 1}, 1, "kubelet; 1 pods still wait"),
    ],
)
def test_what_went_wrong_is_said(
    good: LoadResult, counts: dict[str, int], code: int, words: str
) -> None:
    got, why = outcome(with_counts(good, **counts))
    assert got == code
    assert words in why
    assert f"{code} " in EXIT_CODES


def test_pods_that_could_not_be_created_are_said_with_the_reason(good: LoadResult) -> None:
    failures = type(good.counts.failures)({"422: containers": 2})
    code, why = outcome(with_counts(good, create_failed=2, failures=failures))
    assert (code, why) == (3, "2 pods could not be created (422: containers)")


def test_a_stopped_run_proves_nothing(good: LoadResult) -> None:
    assert outcome(dataclasses.replace(good, finished=False))[0] == 1


async def test_the_command_ends_with_the_code_and_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with cluster(nodes=5, refuse="-s1-") as client:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(
            f"{{apiVersion: v1, kind: Config, current-context: x, clusters: [{{name: c, cluster: "
            f"{{server: '{client.url}'}}}}], users: [{{name: u, user: {{}}}}], "
            "contexts: [{name: x, context: {cluster: c, user: u}}]}"
        )
        wanted = LoadSettings(
            kubeconfig=kubeconfig, run="r", pods=20, shapes=2, replicas=5, nodes="5", settle_s=0.5
        )
        assert await load(wanted, stop=asyncio.Event()) == 3
    assert capsys.readouterr().err.splitlines()[-1] == "stretto loadgen: 10 pods still wait"
