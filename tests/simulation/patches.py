"""What of the real code is replaced while a simulation runs: clocks, chance, and the ways out.

Everything else is the code of the release: brains, shells, reflectors, leases, recovery.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import random
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import binder.device_writer
import binder.evictor
import binder.executor
import binder.process
import dispatcher.follow
import dispatcher.outcomes_client
import dispatcher.process
import dispatcher.telemetry
import scheduler_shard.process
import stretto.kube.client
import stretto.kube.lease_keeper
from dispatcher.condition_writer import ConditionWriter
from dispatcher.core import Core
from dispatcher.order_writer import OrderWriter
from scheduler_shard.profiles import AnyProfiles
from stretto.kube.events import EventWriter
from stretto.kube.lease_keeper import LeaseKeeper
from stretto.kube.reflector import Reflector
from stretto.telemetry.audit_log import AuditLog
from stretto.telemetry.binder_metrics import BinderMetrics
from tests.simulation.history import Acts, Recorder
from tests.simulation.kube import KubeNetwork, Transport
from tests.simulation.rpc import Dialer, RpcNetwork, RpcServer
from tests.simulation.world import HOST, Host, World

NOTHING = object()
REAL_RANDOM = random.Random
EPOCH_S = 1.7e9
"""The wall clock at the beginning of a run."""
WALL_CLOCKS = (stretto.kube.lease_keeper, binder.executor, binder.device_writer, binder.evictor)
"""Modules that ask for the date."""


class Silent:
    """Stands in for servers of metrics."""

    port = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def close(self) -> None:
        """Nothing to close."""


class Wall(datetime):
    """The simulated date."""

    clock: Callable[[], float]
    """Of the present run."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Wall:
        """The date of this moment of the run."""
        return cls.fromtimestamp(EPOCH_S + cls.clock(), tz)


@functools.cache
def _shared_metrics() -> BinderMetrics:
    return BinderMetrics()


def _metrics(**_: Any) -> BinderMetrics:
    """One set of counters for all: they are written only, and take long to make."""
    return _shared_metrics()


@functools.cache
def _shared_profiles() -> AnyProfiles:
    return AnyProfiles()


def _profiles(gates: Mapping[str, bool] | None = None) -> AnyProfiles:
    """One set for all shards: it never changes, and takes long to make."""
    return AnyProfiles(gates) if gates else _shared_profiles()


@contextlib.contextmanager
def _replaced(stand_ins: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """Attributes of these names for a while (unittest.mock takes a fiftieth of a run for it)."""
    before: list[tuple[Any, str, Any]] = []
    try:
        for owner, name, stand_in in stand_ins:
            own = vars(owner)
            before.append((owner, name, own.get(name, NOTHING)))
            assert name in own or hasattr(owner, name), f"{owner} has no {name}"
            setattr(owner, name, stand_in)
        yield
    finally:
        for owner, name, old in reversed(before):
            if old is NOTHING:
                delattr(owner, name)
            else:
                setattr(owner, name, old)


@contextlib.contextmanager
def _other_defaults(stand_ins: Iterable[tuple[dict[str, Any], str, Any]]) -> Iterator[None]:
    """Other values of keyword arguments that are not given, for a while."""
    before: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for defaults, name, stand_in in stand_ins:
            before.append((defaults, name, defaults[name]))
            defaults[name] = stand_in
        yield
    finally:
        for defaults, name, old in reversed(before):
            defaults[name] = old


def _defaults(kind: type, name: str) -> dict[str, Any]:
    defaults: dict[str, Any] = kind.__init__.__kwdefaults__ or {}  # type: ignore[misc]
    assert name in defaults, f"{kind} asks the clock elsewhere"
    return defaults


@contextlib.contextmanager
def simulated(
    world: World, kube: KubeNetwork, rpc: RpcNetwork, *, recorder: Recorder | None = None
) -> Iterator[None]:
    """Replace them."""

    def chance(*seed: Any) -> random.Random:
        return REAL_RANDOM(*seed) if seed else world.rng

    clock = world.loop.time

    def wall() -> float:
        return EPOCH_S + clock()

    def server(listen: str, **_: Any) -> RpcServer:
        return RpcServer(rpc, HOST.get(), listen)

    def dialer(target: str, **_: Any) -> Dialer:
        return Dialer(rpc, HOST.get(), target)

    def transport(host: Host, **_: Any) -> Transport:
        return Transport(kube, host)

    def acts(path: Path | None, *, epoch: int = 0) -> AuditLog | Acts:
        if recorder is None or not epoch:
            return AuditLog(path, epoch=epoch)
        return recorder.acts(HOST.get(), epoch=epoch)

    Wall.clock = clock
    attributes = (
        (socket, "gethostname", lambda: "simulated"),
        *((module, "datetime", Wall) for module in WALL_CLOCKS),
        (time, "monotonic", clock),
        (time, "time", wall),
        (random, "Random", chance),
        (uuid, "uuid4", lambda: uuid.UUID(int=world.rng.getrandbits(128))),
        (os, "_exit", lambda code: HOST.get().exit(code)),
        (gc, "collect", lambda *_: 0),
        (gc, "freeze", lambda: None),
        # A set of weak references to all tasks, which nobody here asks for, is slow to keep.
        (asyncio.tasks._all_tasks, "add", world.loop.tasks.append),  # type: ignore[attr-defined]
        (stretto.kube.client, "Transport", transport),
        (binder.process, "RpcServer", server),
        (binder.process, "TelemetryServer", Silent),
        (binder.process, "BinderMetrics", _metrics),
        (binder.process, "AuditLog", acts),
        (dispatcher.process, "RpcServer", server),
        (dispatcher.telemetry, "TelemetryServer", Silent),
        (dispatcher.follow, "Dialer", dialer),
        (dispatcher.outcomes_client, "Dialer", dialer),
        (scheduler_shard.process, "AnyProfiles", _profiles),
    )
    arguments = [
        (_defaults(kind, name), name, stand_in)
        for name, stand_in, kinds in (
            ("clock", clock, (Core, EventWriter, LeaseKeeper, Reflector)),
            ("wall", wall, (ConditionWriter, OrderWriter, EventWriter)),
        )
        for kind in kinds
    ]
    with _replaced(attributes), _other_defaults(arguments):
        yield
