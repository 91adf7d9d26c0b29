"""Which devices taints keep from a request."""

from __future__ import annotations

from stretto.model.devices import DeviceTaint, SubRequest, Toleration
from stretto.placement.devices.inventory import Device


def tainted_for(device: Device, wanted: SubRequest) -> bool:
    """Whether a taint keeps the request away."""
    return any(
        taint.effect in ("NoSchedule", "NoExecute")
        and not any(_tolerates(toleration, taint) for toleration in wanted.tolerations)
        for taint in device.taints
    )


def _tolerates(toleration: Toleration, taint: DeviceTaint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"
