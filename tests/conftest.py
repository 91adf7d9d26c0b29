"""Fixtures that every test may use."""

from __future__ import annotations

from tests.kube_env.fixtures import (
    control_plane,
    kube_binaries,
    kube_namespace,
    new_control_plane,
    pytest_collection_finish,
)

__all__ = [
    "control_plane",
    "kube_binaries",
    "kube_namespace",
    "new_control_plane",
    "pytest_collection_finish",
]
