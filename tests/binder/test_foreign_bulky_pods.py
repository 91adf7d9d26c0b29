"""Pods of very many parts that others bind: read beside the loop, by the label keys of then."""

from __future__ import annotations

import json

import pytest

from stretto.kube.reflections import Event, EventKind
from stretto.model.objects import Pod, decode_pod
from tests.binder.shells import Rig, simulated


def shown(uid: str, version: int, *, containers: int, cpu: str = "1m") -> Event[Pod]:
    document = {
        "metadata": {"name": uid, "namespace": "default", "uid": uid, "labels": {"app": "web"}},
        "spec": {
            "nodeName": "n1",
            "containers": [
                {"name": f"c{n}", "image": "i", "resources": {"requests": {"cpu": cpu}}}
                for n in range(containers)
            ],
        },
    }
    pod = decode_pod(json.dumps(document).encode())
    return Event(EventKind.ADDED, "default", uid, uid, version, new=pod)


async def test_they_are_read_beforehand_and_again_if_other_labels_count_by_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with simulated() as (_, client):
        rig = Rig(client, epoch=1)
        await rig.open(clean=True)
        rig.start()
        try:
            cluster, watches = rig.machine.cluster, rig.watches
            read_here: list[str] = []
            plain = watches._maker.shape_of

            def noting(pod: Pod, **kwargs: object) -> object:
                read_here.append(pod.metadata.name)
                return plain(pod, **kwargs)  # type: ignore[arg-type]

            monkeypatch.setattr(watches._maker, "shape_of", noting)
            events = [
                shown("small", 11, containers=1),
                shown("large", 12, containers=1_001),
                shown("late", 13, containers=1_001),
                shown("unreadable", 14, containers=1_001, cpu="much"),
            ]
            await watches._bulky.read(events)
            for event in (events[0], events[1], events[3]):
                watches._pod(event)
            assert read_here == ["small"]
            assert cluster.nodes[cluster.node_uid_of("n1")].frozen  # by the unreadable one
            cluster.read_labels(["app"])
            watches._pod(events[2])
            assert read_here == ["small", "late"]
            assert all(cluster.knows(uid) for uid in ("small", "large", "late"))
        finally:
            await rig.stop()
