"""Pytest's side of the real control plane.

``control_plane`` is shared by all tests of a session: use a namespace of your own (``namespace``
fixture). A test that kills or restarts processes, or needs other flags, takes
``new_control_plane``.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.kube_env import binaries
from tests.kube_env.control_plane import ControlPlane


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the programs before the first test, if a selected test needs them and they are
    missing."""
    wanted = any(item.get_closest_marker("kube") for item in session.items)
    if not wanted or session.config.option.collectonly or binaries.find() is not None:
        return
    if binaries.can_build():
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(
                f"Building the control plane into {binaries.cache_folder()}: once, six minutes …"
            )
        binaries.build()


@pytest.fixture(scope="session")
def kube_binaries() -> Path:
    """The folder with etcd and kube-apiserver; skips without them, or fails where CI is set."""
    folder = binaries.find()
    if folder is None:
        reason = binaries.how_to_get()
        if os.environ.get("CI"):
            pytest.fail(f"in CI this may not be skipped: {reason}", pytrace=False)
        pytest.skip(reason)
    return folder


@pytest.fixture(scope="session")
def control_plane(
    kube_binaries: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """A running control plane, shared by the session."""
    with ControlPlane(tmp_path_factory.mktemp("kube"), kube_binaries) as plane:
        yield plane


@pytest.fixture
def new_control_plane(kube_binaries: Path, tmp_path: Path) -> Iterator[Callable[..., ControlPlane]]:
    """Makes control planes of the test's own; they are stopped at its end."""
    with ExitStack() as stack:

        def start(**settings: Any) -> ControlPlane:
            folder = tmp_path / f"kube-{secrets.token_hex(4)}"
            return stack.enter_context(ControlPlane(folder, kube_binaries, **settings))

        yield start


@pytest.fixture
def kube_namespace(control_plane: ControlPlane) -> str:
    """A fresh namespace on the shared control plane."""
    name = f"test-{secrets.token_hex(5)}"
    status, body = control_plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    assert status == 201, body
    return name
