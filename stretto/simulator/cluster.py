"""A simulated cluster: API server, kubelets and faults behind one HTTP address."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import yaml

from stretto.model.errors import OperatorError
from stretto.simulator.answers import Answer, Refusal
from stretto.simulator.api import ApiServer
from stretto.simulator.faults import FaultOrder, Faults, read_order
from stretto.simulator.http_server import HttpServer
from stretto.simulator.kubelet_runner import KubeletRunner
from stretto.simulator.pods import PODS
from stretto.simulator.population import populate
from stretto.simulator.records import PodRecord, encode
from stretto.simulator.request import Request, not_allowed
from stretto.simulator.settings import KubeletMode, SimulatorSettings
from stretto.simulator.store import Change


class SimulatorError(OperatorError):
    """The simulated cluster cannot be served."""


class SimulatedCluster:
    """``async with SimulatedCluster(settings) as cluster``: served at ``cluster.url``."""

    def __init__(self, settings: SimulatorSettings | None = None) -> None:
        self.settings = settings or SimulatorSettings()
        rng = random.Random(self.settings.seed)
        self.faults = Faults(rng)
        self.api = ApiServer(
            now=_Clock(),
            rng=rng,
            watch_window=self.settings.watch_window,
            event_window=self.settings.event_window,
        )
        self.url = ""
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        settings = self.settings
        self.runner = KubeletRunner(
            self.api,
            mode=settings.kubelet,
            start_delay_s=settings.start_delay_s,
            termination_s=settings.termination_s,
        )
        self._bind_times = _BindTimes()
        self.api.store(PODS).observe(self._bind_times)
        populate(self.api, settings)
        self.http = HttpServer(
            self.api, self.faults, own_pages=self._own_pages, bookmark_s=settings.bookmark_s
        )
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                self.http.connection, settings.host, settings.port, backlog=1024
            )
        except socket.gaierror as error:
            raise SimulatorError(
                f"the simulator cannot listen on {settings.host}: {error.strerror}; name an "
                "address of this machine with --host"
            ) from error
        except OSError as error:
            raise SimulatorError(
                f"the simulator cannot listen on {settings.host} port {settings.port}: "
                f"{os.strerror(error.errno) if error.errno else error}; choose another with --port"
            ) from error
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://{settings.host}:{port}"
        if settings.kubeconfig is not None:
            self._write_kubeconfig()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None, "left without being entered"
        self._server.close()
        self.http.close()
        self.runner.close()
        await self._server.wait_closed()

    def stats(self) -> dict[str, Any]:
        """What the kubelets, the API server and the faults counted."""
        kubelets = self.runner.kubelets.statistics()
        if self.settings.kubelet is KubeletMode.OFF:
            kubelets = {}
        return {
            "kubelet": {**kubelets, "succeeded": self.runner.succeeded},
            "api": {
                "version": self.api.version,
                "bound": self.api.pods.bound,
                "first_bind_s": self._bind_times.first_s,
                "last_bind_s": self._bind_times.last_s,
                "objects": self.api.counts(),
                "requests": {
                    f"{method} {resource} {status}": count
                    for (method, resource, status), count in sorted(self.http.requests.items())
                },
            },
            "faults": self.faults.statistics(),
        }

    def cut_watches(self, resource: str = "") -> int:
        """Break all watches (of a resource); how many those were."""
        cut = self.http.cut_watches(resource)
        self.faults.cut += cut
        return cut

    def release_watches(self, resource: str = "") -> None:
        """Let held watches (of a resource) tell what they kept back."""
        self.faults.release(resource)
        self.http.flush_watches()

    def order(self, order: FaultOrder) -> None:
        """Carry out an order of faults."""
        if order.clear:
            self.faults.clear()
            self.http.flush_watches()
        self.faults.rules.extend(order.rules)
        for resource in order.hold:
            self.faults.hold(resource)
        for resource in order.release:
            self.release_watches(resource)
        if order.compact:
            self.api.compact()
        for resource in order.cut:
            self.cut_watches(resource)

    # --- inside --------------------------------------------------------------------------------

    def _own_pages(self, request: Request) -> Answer | None:
        """/simulator/stats, /simulator/nodes and /simulator/faults; None for all other paths."""
        if not request.path.startswith("/simulator/"):
            return None
        page: Callable[[], Any] | None = {
            "/simulator/stats": self.stats,
            "/simulator/nodes": self.runner.kubelets.sums,
            "/simulator/faults": self.faults.statistics,
        }.get(request.path)
        try:
            if page is None:
                raise Refusal(404, "NotFound", "there are stats, nodes and faults below /simulator")
            if request.method == "POST" and request.path == "/simulator/faults":
                self.order(read_order(request.body))
            elif request.method != "GET":
                raise not_allowed()
        except Refusal as refusal:
            return refusal.answer
        return Answer(200, encode(page()))

    def _write_kubeconfig(self) -> None:
        assert self.settings.kubeconfig is not None, "no file to write"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "simulator", "cluster": {"server": self.url}}],
            "users": [{"name": "anybody", "user": {}}],
            "contexts": [
                {"name": "simulator", "context": {"cluster": "simulator", "user": "anybody"}}
            ],
            "current-context": "simulator",
        }
        try:
            self.settings.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
            # Whoever waits for the file finds it whole.
            part = self.settings.kubeconfig.with_suffix(f".{os.getpid()}.part")
            part.write_text(yaml.safe_dump(document))
            part.replace(self.settings.kubeconfig)
        except OSError as error:
            raise SimulatorError(
                f"the kubeconfig cannot be written to {self.settings.kubeconfig}: {error.strerror}"
            ) from error


class _BindTimes:
    """When the first and the latest bind happened, in seconds of the monotonic clock."""

    def __init__(self) -> None:
        self.first_s = 0.0
        self.last_s = 0.0

    def __call__(self, change: Change) -> None:
        old, new = change.old, change.new
        if not isinstance(old, PodRecord) or not isinstance(new, PodRecord):
            return
        if new.node_name and not old.node_name:
            self.last_s = time.monotonic()
            self.first_s = self.first_s or self.last_s


class _Clock:
    """The time as RFC 3339 text; made once a second."""

    def __init__(self) -> None:
        self._second = 0
        self._text = ""

    def __call__(self, later_s: int = 0) -> str:
        second = int(time.time())
        if later_s:
            return _text_of(second + later_s)
        if second != self._second:
            self._second, self._text = second, _text_of(second)
        return self._text


def _text_of(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))


__all__ = ["SimulatedCluster", "SimulatorError", "SimulatorSettings"]
