"""A bound pod that cannot be decoded at all: its node takes nothing more while it is there."""

from __future__ import annotations

from stretto.kube.reflections import Event, EventKind
from stretto.model.objects import Pod
from tests.binder.shells import Rig, simulated


def event(raw: bytes, *, kind: EventKind = EventKind.UNREADABLE) -> Event[Pod]:
    return Event(kind, "default", "odd", "odd-uid", 7, problem="spec: not a pod", raw=raw)


async def test_its_node_takes_nothing_more_until_it_is_gone() -> None:
    async with simulated() as (_, client):
        rig = Rig(client, epoch=1)
        await rig.open(clean=True)
        rig.start()
        try:
            cluster = rig.machine.cluster
            node = cluster.nodes[cluster.node_uid_of("n1")]
            rig.watches._broken_pod(event(b'{"spec":{"nodeName":"n1","containers":7}}'))
            assert node.frozen
            for raw in (b'{"spec":{"nodeName":["n1"]}}', b'{"spec":[]}', b"{}"):
                rig.watches._broken_pod(event(raw))  # nothing can be done, and nothing falls over
            rig.watches._pod(event(b"", kind=EventKind.DELETED))
            assert not node.frozen
        finally:
            await rig.stop()
