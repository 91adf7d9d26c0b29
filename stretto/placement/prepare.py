"""What the first pod of its kind would have to wait for, done when a picture is complete.

Tables over all nodes or all objects follow their changes afterwards; only their beginning takes
long (at 5,000 nodes: devices 40 to 55 ms with the library of selectors, attachments 20 to 30 ms).
"""

from __future__ import annotations

from stretto.model.devices import CLASS
from stretto.placement.attached import Attached
from stretto.placement.devices.world import world_of
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.volume_rows import CSI_NODE


def prepare(snapshot: Snapshot) -> None:
    """Make the tables of a snapshot that its objects call for."""
    if snapshot.objects(CLASS):
        world_of(snapshot).ask_classes()
    if snapshot.objects(CSI_NODE):
        Attached.of(snapshot)
