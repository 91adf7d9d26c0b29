"""The oracle for tests that ask it: built before the first one, never skipped in CI."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tests.golden import oracle_program
from tests.golden.differential import FLAGS


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build it before the first test that needs it, outside of the tests' time limits."""
    wanted = any(item.get_closest_marker("oracle") for item in session.items)
    if wanted and not session.config.option.collectonly and oracle_program.can_build():
        oracle_program.build()


@pytest.fixture(scope="session")
def oracle() -> None:
    """Skips without the oracle, or fails where CI is set."""
    if oracle_program.can_build():
        return
    if os.environ.get("CI"):
        pytest.fail(f"in CI this may not be skipped: {oracle_program.how_to_get()}", pytrace=False)
    pytest.skip(oracle_program.how_to_get())


@pytest.fixture(scope="session")
def ask_oracle(oracle: None) -> Iterator[Callable[[bytes], bytes]]:
    """Worlds in, answered worlds out."""
    with oracle_program.asked(*FLAGS) as ask:
        yield ask


@pytest.fixture(scope="session")
def ask_config_oracle(oracle: None) -> Iterator[Callable[[bytes], bytes]]:
    """KubeSchedulerConfigurations in, what upstream makes of them out."""
    with oracle_program.asked("-configs") as ask:
        yield ask
