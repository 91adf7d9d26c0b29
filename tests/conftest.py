"""Fixtures that every test may use."""

from __future__ import annotations

import asyncio

from hypothesis import HealthCheck, settings

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

# A busy machine makes no example wrong.
settings.register_profile("stretto", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("stretto")

# Otherwise pytest-asyncio asks for "the current loop" before its first test, which makes one that
# nobody closes.
asyncio.set_event_loop(None)
