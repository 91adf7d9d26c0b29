"""What of the real code is replaced while a simulation runs: clocks, chance, and the ways out.

Everything else is the code of the release: brains, shells, reflectors, leases, recovery.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import gc
import os
import random
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, tzinfo
from typing import Any
from unittest import mock

import binder.device_writer
import binder.evictor
import binder.executor
import binder.process
import dispatcher.follow
import dispatcher.outcomes_client
import dispatcher.process
import dispatcher.telemetry
import stretto.kube.client
import stretto.kube.lease_keeper
from dispatcher.core import Core
from dispatcher.order_writer import OrderWriter
from dispatcher.writer import ConditionWriter
from stretto.kube.events import EventWriter
from stretto.kube.lease_keeper import LeaseKeeper
from stretto.kube.reflector import Reflector
from stretto.telemetry.binder_metrics import BinderMetrics
from tests.simulation.kube import KubeNetwork, Transport
from tests.simulation.rpc import Dialer, RpcNetwork, RpcServer
from tests.simulation.world import Host, World

HOST: contextvars.ContextVar[Host] = contextvars.ContextVar("host")
"""Whose code runs; tasks inherit it."""
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


def _wall(clock: Callable[[], float]) -> type[datetime]:
    class Wall(datetime):
        """The simulated date."""

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Wall:
            return cls.fromtimestamp(EPOCH_S + clock(), tz)

    return Wall


@functools.cache
def _shared_metrics() -> BinderMetrics:
    return BinderMetrics(api=dict)


def _metrics(**_: Any) -> BinderMetrics:
    """One set of counters for all: they are written only, and take long to make."""
    return _shared_metrics()


@contextlib.contextmanager
def simulated(world: World, kube: KubeNetwork, rpc: RpcNetwork) -> Iterator[None]:
    """Replace them."""

    def chance(*seed: Any) -> random.Random:
        return REAL_RANDOM(*seed) if seed else REAL_RANDOM(world.rng.random())

    clock = world.loop.time

    def wall() -> float:
        return EPOCH_S + clock()

    def server(listen: str, **_: Any) -> RpcServer:
        return RpcServer(rpc, HOST.get(), listen)

    def dialer(target: str, **_: Any) -> Dialer:
        return Dialer(rpc, HOST.get(), target)

    def transport(host: Host, **_: Any) -> Transport:
        return Transport(kube, host)

    with contextlib.ExitStack() as stack:
        for owner, name, stand_in in (
            (socket, "gethostname", lambda: "simulated"),
            *((module, "datetime", _wall(clock)) for module in WALL_CLOCKS),
            (time, "monotonic", clock),
            (time, "time", wall),
            (random, "Random", chance),
            (uuid, "uuid4", lambda: uuid.UUID(int=world.rng.getrandbits(128))),
            (os, "_exit", lambda code: HOST.get().exit(code)),
            (gc, "collect", lambda *_: 0),
            (gc, "freeze", lambda: None),
            (stretto.kube.client, "Transport", transport),
            (binder.process, "RpcServer", server),
            (binder.process, "TelemetryServer", Silent),
            (binder.process, "BinderMetrics", _metrics),
            (dispatcher.process, "RpcServer", server),
            (dispatcher.telemetry, "TelemetryServer", Silent),
            (dispatcher.follow, "Dialer", dialer),
            (dispatcher.outcomes_client, "Dialer", dialer),
        ):
            stack.enter_context(mock.patch.object(owner, name, stand_in))
        for default, stand_in, classes in (
            ("clock", clock, (Core, EventWriter, LeaseKeeper, Reflector)),
            ("wall", wall, (ConditionWriter, OrderWriter, EventWriter)),
        ):
            for each in classes:
                defaults = each.__init__.__kwdefaults__  # type: ignore[misc]
                assert default in (defaults or {}), f"{each} asks the clock elsewhere"
                stack.enter_context(mock.patch.dict(defaults, {default: stand_in}))
        yield
