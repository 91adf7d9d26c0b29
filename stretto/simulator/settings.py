"""Settings of the simulated cluster."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from pathlib import Path

from stretto.simulator.amounts import AmountError, amount

MAX_NODES = 100_000
MAX_PODS = 1_000_000


class KubeletMode(enum.StrEnum):
    """What the simulated kubelets do about bound pods."""

    RUN = "run"
    """Admit or reject, start, finish and remove them, and write their status."""
    COUNT = "count"
    """Judge and add up only; write nothing (the API server alone, with its overcommit oracle)."""
    OFF = "off"
    """Nothing."""


@dataclass(frozen=True, kw_only=True)
class SimulatorSettings:
    """How a simulated cluster is served and what it holds at the start."""

    host: str = field(
        default="127.0.0.1",
        metadata={
            "help": "address to serve on; it asks nobody for credentials, so keep to loopback"
        },
    )
    port: int = field(default=0, metadata={"help": "port to serve on; 0 takes a free one"})
    kubeconfig: Path | None = field(
        default=None, metadata={"help": "write a kubeconfig for this cluster to this file"}
    )
    kubelet: KubeletMode = field(
        default=KubeletMode.RUN,
        metadata={"help": "run: admit and run bound pods; count: only judge and add up; off"},
    )
    start_delay_s: float = field(
        default=0.0, metadata={"help": "seconds from the bind until a kubelet has started a pod"}
    )
    termination_s: float = field(
        default=0.0, metadata={"help": "seconds a kubelet takes to end a deleted pod"}
    )
    nodes: int = field(default=0, metadata={"help": "nodes that exist at the start"})
    node_cpu: str = field(default="32", metadata={"help": "allocatable cpu of each of them"})
    node_memory: str = field(default="128Gi", metadata={"help": "allocatable memory of each"})
    node_pods: str = field(default="110", metadata={"help": "pods each may run"})
    node_zones: int = field(default=3, metadata={"help": "zones they are spread over"})
    pods: int = field(default=0, metadata={"help": "pending pods that exist at the start"})
    pod_shapes: int = field(default=1, metadata={"help": "different requests among those pods"})
    pod_scheduler_name: str = field(
        default="stretto", metadata={"help": "schedulerName of those pods"}
    )
    watch_window: int = field(
        default=200_000,
        metadata={"help": "changes per kind that a watch may start behind; 410 beyond"},
    )
    event_window: int = field(
        default=20_000, metadata={"help": "Event objects kept; the oldest give way"}
    )
    bookmark_s: float = field(default=60.0, metadata={"help": "seconds between bookmarks"})
    seed: int | None = field(
        default=None,
        metadata={"help": "seed of uids, generated names and faults; without it, fresh ones"},
    )
    log_format: str = field(default="text", metadata={"help": "json or text"})
    log_level: str = field(default="warning", metadata={"help": "debug, info, warning or error"})

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        for name, value, limit in (
            ("port", self.port, 65_535),
            ("nodes", self.nodes, MAX_NODES),
            ("pods", self.pods, MAX_PODS),
        ):
            if not 0 <= value <= limit:
                raise ValueError(f"--{name} {value}: take 0 to {limit}")
        for name, value in (
            ("pod-shapes", self.pod_shapes),
            ("node-zones", self.node_zones),
            ("watch-window", self.watch_window),
            ("event-window", self.event_window),
        ):
            if value < 1:
                raise ValueError(f"--{name} {value}: take at least 1")
        for name, text in (
            ("node-cpu", self.node_cpu),
            ("node-memory", self.node_memory),
            ("node-pods", self.node_pods),
        ):
            check_quantity(text, flag=f"--{name}")
        if self.bookmark_s <= 0 or self.start_delay_s < 0 or self.termination_s < 0:
            raise ValueError("--bookmark-s must be positive, the delays not negative")


def check_quantity(text: str, *, flag: str) -> None:
    """Refuse what a node cannot say of itself.

    Raises:
        ValueError: naming the flag.
    """
    try:
        if amount(text, milli=True) >= 0:
            return
    except AmountError:
        pass
    raise ValueError(f"{flag} {text[:40]!r}: take a quantity of 0 or more, such as 32 or 128Gi")
