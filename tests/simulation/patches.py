"""What of the real code is replaced while a simulation runs: clocks, chance, and the ways out.

Everything else is the code of the release: brains, shells, reflectors, leases, recovery.
"""

from __future__ import annotations

import contextlib
import contextvars
import gc
import os
import random
import time
import uuid
from collections.abc import Iterator
from typing import Any
from unittest import mock

import binder.process
import dispatcher.follow
import dispatcher.outcomes_client
import dispatcher.process
import dispatcher.telemetry
import stretto.kube.client
from dispatcher.core import Core
from stretto.kube.events import EventWriter
from stretto.kube.lease_keeper import LeaseKeeper
from stretto.kube.reflector import Reflector
from tests.simulation.kube import KubeNetwork, Transport
from tests.simulation.rpc import Dialer, RpcNetwork, RpcServer
from tests.simulation.world import Host, World

HOST: contextvars.ContextVar[Host] = contextvars.ContextVar("host")
"""Whose code runs; tasks inherit it."""
REAL_RANDOM = random.Random


class Silent:
    """Stands in for servers of metrics."""

    port = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def close(self) -> None:
        """Nothing to close."""


@contextlib.contextmanager
def simulated(world: World, kube: KubeNetwork, rpc: RpcNetwork) -> Iterator[None]:
    """Replace them."""

    def chance(*seed: Any) -> random.Random:
        return REAL_RANDOM(*seed) if seed else REAL_RANDOM(world.rng.random())

    def server(listen: str, **_: Any) -> RpcServer:
        return RpcServer(rpc, HOST.get(), listen)

    def dialer(target: str, **_: Any) -> Dialer:
        return Dialer(rpc, HOST.get(), target)

    def transport(host: Host, **_: Any) -> Transport:
        return Transport(kube, host)

    with contextlib.ExitStack() as stack:
        for owner, name, stand_in in (
            (time, "monotonic", lambda: world.now),
            (time, "time", lambda: 1.7e9 + world.now),
            (random, "Random", chance),
            (uuid, "uuid4", lambda: uuid.UUID(int=world.rng.getrandbits(128))),
            (os, "_exit", lambda code: HOST.get().exit(code)),
            (gc, "collect", lambda *_: 0),
            (gc, "freeze", lambda: None),
            (stretto.kube.client, "Transport", transport),
            (binder.process, "RpcServer", server),
            (binder.process, "TelemetryServer", Silent),
            (dispatcher.process, "RpcServer", server),
            (dispatcher.telemetry, "TelemetryServer", Silent),
            (dispatcher.follow, "Dialer", dialer),
            (dispatcher.outcomes_client, "Dialer", dialer),
        ):
            stack.enter_context(mock.patch.object(owner, name, stand_in))
        for timed in (Core, EventWriter, LeaseKeeper, Reflector):
            defaults = timed.__init__.__kwdefaults__
            stack.enter_context(mock.patch.dict(defaults, clock=lambda: world.now))
        yield
