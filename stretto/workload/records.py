"""Pods and nodes as traces describe them, before they become Kubernetes objects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

GPU = "nvidia.com/gpu"
"""Whole GPUs."""
GPU_MILLI = "stretto.io/gpu-milli"
"""Thousandths of a GPU, summed per node: whole-GPU pods and pods that share one draw from the same
pool. Which device a share is on is not looked at."""
MODEL_LABEL = "stretto.io/gpu-model"
"""Label of nodes: what kind of GPU they have."""
MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRecord:
    """A pod of a trace; times in trace seconds."""

    name: str
    cpu_milli: int
    memory: int
    """Bytes."""
    extra: dict[str, int] = field(default_factory=dict)
    """Extended resources."""
    created_s: float = 0.0
    ends_s: float | None = None
    """None: the trace does not say, or after its end."""
    labels: dict[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    """GPU models that will do; empty: any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """A node of a trace."""

    name: str
    cpu_milli: int
    memory: int
    """Bytes."""
    extra: dict[str, int] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    pods: int = 110


class ScheduledPod(NamedTuple):
    """A pod to create, and when."""

    at_s: float
    """Seconds from the start of the run."""
    lifetime_s: float | None
    """How long it runs once it is bound; None for ever."""
    manifest: dict[str, Any]
