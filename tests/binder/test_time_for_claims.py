"""How long the claims of a pod may take, by its profile's configuration."""

from __future__ import annotations

import pytest

from binder.prebinder import limit_s
from binder.proposals import Reservation
from stretto.model.shape import Shape
from stretto.model.unit import Member
from stretto.placement.devices.plan import NO_DEVICES, DevicePlan
from stretto.placement.kernel import Kernel
from stretto.placement.profiles import Profiles
from stretto.placement.volume_plan import NO_VOLUMES, VolumePlan
from stretto.snapshot.columns import Snapshot

VOLUMES = VolumePlan(provision=("ns/data",))
DEVICES = DevicePlan(claims=("ns/gpu",))
ARGS = [
    {"name": "VolumeBinding", "args": {"bindTimeoutSeconds": 30}},
    {"name": "DynamicResources", "args": {"bindingTimeout": "45s"}},
]


@pytest.mark.parametrize(
    ("volumes", "devices", "own", "default"),
    [
        (VOLUMES, NO_DEVICES, 30, 600),
        (NO_VOLUMES, DEVICES, 45, 600),
        (VOLUMES, DEVICES, 75, 1200),
    ],
)
def test_volumes_and_devices_have_their_own_times(volumes, devices, own, default):
    profiles = [{"schedulerName": "own", "pluginConfig": ARGS}, {"schedulerName": "plain"}]
    kernel = Kernel(Snapshot(), Profiles.from_configuration({"profiles": profiles}))
    for name, limit in (("own", own), ("plain", default), ("unknown", default)):
        shape = Shape(name, "ns")
        held = Reservation(
            Member("uid", "ns", "pod", 1, 1), shape, "node-uid", "node", "unit", 1, "shard",
            volumes, devices,
        )  # fmt: skip
        assert limit_s(held, kernel) == limit
