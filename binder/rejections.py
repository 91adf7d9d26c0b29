"""Pods that we bound and the kubelet would not have: why, for the metrics.

Such a pod is Failed for ever, and its owner makes another. That it fitted here and not there is a
defect of ours, a foreign pod that came at the same time, or a kubelet that is behind. The watch of
bound pods does not say why: what fails leaves its selector, and is told as it was before. So a pod
that leaves without having run or having been deleted is read once, a few a second at most. What is
more than that (pods that are deleted without grace look the same) is counted as unread.
"""

from __future__ import annotations

import asyncio

import msgspec

from stretto.kube.client import KubeClient
from stretto.kube.errors import KubeError
from stretto.model.errors import OperatorError
from stretto.model.objects import Pod, decode_pod
from stretto.telemetry.binder_metrics import BinderMetrics

WAITING = 64
"""Pods that may wait to be read."""
PAUSE_S = 0.05
"""Between two reads."""
REASONS = frozenset((
    "OutOfcpu", "OutOfmemory", "OutOfpods", "OutOfephemeral-storage", "NodeAffinity",
    "NodeShutdown", "TopologyAffinityError", "UnexpectedAdmissionError",
))  # fmt: skip
"""Of the kubelet's admission; other text of a pod's status is no label."""
OUT_OF_OTHER = "OutOfOther"
"""For ``OutOf`` any extended resource."""
UNREAD = "unread"


def unstarted(pod: Pod) -> bool:
    """Whether a pod that has left, as it was before, had neither run nor been deleted."""
    return pod.status.phase == "Pending" and pod.metadata.deletion_timestamp is None


class Rejections:
    """See the module docstring; ``run`` is its task."""

    def __init__(self, client: KubeClient, metrics: BinderMetrics) -> None:
        self._client = client
        self._rejections = metrics.kubelet_rejections
        self._waiting: asyncio.Queue[tuple[str, str, str]] = asyncio.Queue(WAITING)

    def left(self, namespace: str, name: str, uid: str) -> None:
        """A pod of ours has left its node and had not run."""
        try:
            self._waiting.put_nowait((namespace, name, uid))
        except asyncio.QueueFull:
            self._rejections.labels(UNREAD).inc()

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            reason = await self._reason(*await self._waiting.get())
            if reason:
                self._rejections.labels(reason).inc()
            await asyncio.sleep(PAUSE_S)

    async def _reason(self, namespace: str, name: str, uid: str) -> str:
        """Why the kubelet refused it; "" if it did not, or the pod is gone."""
        try:
            answer = await self._client.get_pod(namespace, name)
            if answer.status == 404:
                return ""
            if not answer.ok:
                return UNREAD
            pod = decode_pod(answer.body)
        except (KubeError, OperatorError, msgspec.DecodeError):
            return UNREAD
        if pod.metadata.uid != uid or pod.status.phase != "Failed":
            return ""
        reason = pod.status.reason or ""
        if reason in REASONS:
            return reason
        return OUT_OF_OTHER if reason.startswith("OutOf") else "other"
