"""What a dispatcher is told that asks where a pod is."""

from __future__ import annotations

from binder.server import BinderServer
from stretto.rpc.messages import OwnedSet
from stretto.telemetry.binder_metrics import BinderMetrics
from tests.binder.world import World, shape_of


def test_a_pod_that_is_bound_to_a_node_nobody_knows_is_bound() -> None:
    """Called unknown, it would be decided again every few seconds until its node comes."""
    world = World()
    world.node("n1")
    here, there, pending = (world.api.create(name, shape_of(100)) for name in ("a", "b", "c"))
    world.api.put(here, "n1", foreign=True)
    world.api.put(there, "gone", foreign=True)
    world.deliver(9)
    server, answer = BinderServer(leader=lambda: "", metrics=BinderMetrics()), OwnedSet()
    for pod in (here, there, pending):
        server._place(world.machine, pod.uid, answer)
    assert answer.bound_uid == [here.uid, there.uid]
    assert answer.unknown_uid == [pending.uid]
