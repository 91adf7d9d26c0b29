"""Two Binders and two dispatchers, under faults that only somebody with a fellow can stand.

Besides everything that other runs have: a host stands still and goes on later, as the leader that
it was or thinks it is; a role is asked to end (SIGTERM) and gives its Lease up; somebody deletes a
Lease by hand; a request arrives at the API server twice. What the one that stood still does when it
goes on has to come to nothing, and its fellow has to begin with the picture that it kept warm.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.simulation.apart import SETS, Apart
from tests.simulation.cluster import SHORT, Settings, Simulation
from tests.simulation.history import KINDS
from tests.simulation.jobs import FEW, JobsRun
from tests.simulation.loop import FreezingLoop
from tests.simulation.preempting_gangs import FULL, PreemptingGangs
from tests.simulation.world import HOST

ALL_THAT = {"faults": 7, "fault_s": 12.0, "lease_s": 2.0, "list_s": 2.0}
PAIRS = dataclasses.replace(SHORT, deletes=8, **ALL_THAT)  # type: ignore[arg-type]
STILL_S = 7.0
"""A host stands still for so long at most: three Leases."""
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


class Standbys(Simulation):
    """One run; see the module docstring."""

    make_loop = FreezingLoop

    def __init__(self, seed: int, settings: Settings = PAIRS) -> None:
        super().__init__(seed, settings)
        loop: Any = self.world.loop
        loop.frozen = lambda context: host.parked if (host := context.get(HOST)) else None
        self.frozen = self.stopped = self.deleted = 0
        """How often a host stood still, a role was asked to end, a Lease was deleted."""

    def _start_all(self) -> None:
        super()._start_all()
        self.start("binder-2")
        self.start("dispatcher-2")

    def _some_fault(self) -> None:
        kinds = [self._freeze, self._freeze, self._stop_some, self._delete_lease, self._twice]
        if self.world.chance(0.5):
            self.world.rng.choice(kinds)()
        else:
            super()._some_fault()

    def _freeze(self) -> None:
        """Leaders most of all."""
        role = self.world.rng.choice(sorted(self.hosts))
        if self.world.chance(0.7):
            role = self._leader(self.world.rng.choice(("binder", "dispatcher"))) or role
        host = self.hosts[role]
        if not host.dead and host.parked is None:
            self.world.fault(f"{host.name} stands still")
            self.frozen += 1
            host.freeze()
            self.world.loop.call_later(self.world.rng.random() * STILL_S, self._thaw, host)

    def _thaw(self, host: Any) -> None:
        if host.parked is not None:
            self.world.note(f"{host.name} goes on")
            host.thaw()

    def _stop_some(self) -> None:
        role = self.world.rng.choice(sorted(self.stops))
        self.world.fault(f"SIGTERM {role}")
        self.stopped += 1
        self.stops[role].set()

    def _delete_lease(self) -> None:
        names = [lease.name for lease in self.kube.api.store(KINDS["leases"]).records()]
        if names:
            name = self.world.rng.choice(sorted(names))
            self.world.fault(f"Lease {name} is deleted")
            self.deleted += 1
            self.kube.call("DELETE", f"{LEASES}/{name}")

    def _twice(self) -> None:
        self.world.fault("requests arrive twice")
        self.kube.twice = 0.1
        self.world.loop.call_later(3.0, setattr, self.kube, "twice", 0.0)

    def _heal(self) -> None:
        for host in self.hosts.values():
            self._thaw(host)
        super()._heal()

    def _leader(self, kind: str) -> str:
        """The role of this kind that leads, or thinks so; "" if none does."""
        for role in (kind, f"{kind}-2"):
            process, host = self.processes.get(role), self.hosts[role]
            if process is not None and not host.dead and process._leadership.valid():
                return role
        return ""

    def _parts(self) -> Any:
        role = self._leader("binder")
        return self.processes[role]._parts if role else None


class StandbysJobs(Standbys, JobsRun):
    """Jobs that wait for their queue's room."""


class StandbysGangs(Standbys, PreemptingGangs):
    """A gang of high priority that takes others' room."""


class StandbysApart(Standbys, Apart):
    """Pods that keep apart."""


OTHERS = {
    "standbys-jobs": (StandbysJobs, FEW),
    "standbys-gangs": (StandbysGangs, FULL),
    "standbys-apart": (StandbysApart, SETS),
}
"""The same faults for what other runs are about: name, kind, settings."""


def with_other(name: str, seed: int) -> Standbys:
    """A run of :data:`OTHERS`."""
    kind, settings = OTHERS[name]
    return kind(seed, dataclasses.replace(settings, **ALL_THAT))  # type: ignore[arg-type]
