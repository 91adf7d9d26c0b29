"""Bulky pods that others bind, read beside the loop before a batch of the watch is told.

What the watch tells of pods waits for that; the loop, and with it commits and binds, does not.
"""

from __future__ import annotations

from functools import partial

from binder.machine import Machine
from stretto.aside import aside
from stretto.kube.reflections import Event, EventKind
from stretto.model.bulk import bulky_to_read
from stretto.model.errors import OperatorError
from stretto.model.objects import Pod
from stretto.model.shape import Shape
from stretto.model.shaping import ShapeMaker, shape_of


class BulkyReads:
    """See the module docstring."""

    def __init__(self, machine: Machine, maker: ShapeMaker) -> None:
        self._machine = machine
        self._maker = maker
        self._read: dict[tuple[str, int], tuple[tuple[str, ...], Shape | OperatorError]] = {}
        """By uid and version, with the label keys that they were read by."""

    async def read(self, batch: list[Event[Pod]]) -> None:
        """Read those of a batch that have to be read whole."""
        self._read.clear()
        for event in batch:
            pod = event.new
            if pod is None or event.kind is EventKind.DELETED or pod.ended:
                continue
            node_name = pod.spec.node_name or ""
            if not node_name or not self._machine.needs_shape(event.uid, node_name):
                continue
            if bulky_to_read(pod):
                keys = self._machine.cluster.label_keys
                shape = await aside(partial(_shape_or_error, pod, keys))
                self._read[event.uid, event.resource_version] = keys, shape

    def shape_of(self, event: Event[Pod], pod: Pod) -> Shape:
        """The shape of a pod that is on a node, read now if it was not, or by other label keys.

        Raises:
            OperatorError: it cannot be read.
        """
        keys = self._machine.cluster.label_keys
        read, shape = self._read.pop((event.uid, event.resource_version), ((), None))
        if shape is None or read != keys:
            return self._maker.shape_of(pod, label_keys=keys, placed=True)
        if isinstance(shape, OperatorError):
            raise shape
        return shape


def _shape_or_error(pod: Pod, keys: tuple[str, ...]) -> Shape | OperatorError:
    """Read a pod, in any thread."""
    try:
        return shape_of(pod, label_keys=keys, placed=True)
    except OperatorError as error:
        return error
