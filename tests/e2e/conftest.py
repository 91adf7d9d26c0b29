"""Fixtures of the end-to-end tests: one control plane for all that do not break it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.e2e.api import Api
from tests.kube_env.control_plane import ControlPlane


@pytest.fixture(scope="session")
def plane(kube_binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that only end-to-end tests use, one after another."""
    with ControlPlane(tmp_path_factory.mktemp("e2e"), kube_binaries) as started:
        yield started


@pytest.fixture
async def api(plane: ControlPlane) -> AsyncIterator[Api]:
    """Access to an empty cluster."""
    async with Api(plane) as made:
        await made.clear()
        yield made
        await made.clear()
