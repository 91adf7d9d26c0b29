"""Settings of the load generator; each becomes a flag of ``stretto loadgen``."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from pathlib import Path

from stretto.config.common import check_name

RUN_LENGTH = 40
"""Characters of a run's name: with a pod's it must fit into a name and a label."""


class Arrival(enum.StrEnum):
    """When pods come."""

    STEADY = "steady"
    """At a fixed rate."""
    BURST = "burst"
    """All at once, as fast as the API takes them."""
    RAMP = "ramp"
    """From one rate to another, growing evenly."""
    TRACE = "trace"
    """When the trace says, compressed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """What to create, how fast, and how long to wait for the end."""

    kubeconfig: Path | None = field(
        default=None,
        metadata={
            "help": "kubeconfig of the cluster; without it the in-cluster account",
            "env": "KUBECONFIG",
        },
    )
    namespace: str = field(
        default="default", metadata={"help": "namespace of the pods; it must exist"}
    )
    scheduler_name: str = field(
        default="stretto", metadata={"help": "spec.schedulerName of the pods"}
    )
    run: str = field(
        default="",
        metadata={"help": "name of the run, part of every pod's name and label; drawn if empty"},
    )
    arrival: Arrival = field(
        default=Arrival.BURST, metadata={"help": "when pods come; trace needs --trace"}
    )
    pods: int = field(
        default=1000,
        metadata={"help": "pods to create; with --trace the first so many, 0 for all of them"},
    )
    shapes: int = field(
        default=20, metadata={"help": "how many kinds of pods there are (requests differ)"}
    )
    replicas: int = field(
        default=50,
        metadata={"help": "pods of one shape that come in a row, as a Deployment makes them"},
    )
    rate: float = field(
        default=200.0, metadata={"help": "pods per second: steady's rate, the end of ramp"}
    )
    rate_from: float = field(
        default=10.0, metadata={"help": "pods per second at the beginning of ramp"}
    )
    lifetime_s: float = field(
        default=0.0,
        metadata={"help": "mean lifetime in seconds (exponential); 0: pods run for ever"},
    )
    delete: bool = field(
        default=False,
        metadata={
            "help": "delete pods when their lifetime is over; without it the simulated kubelet "
            "ends them, a real one does not"
        },
    )
    trace: str = field(
        default="",
        metadata={
            "help": 'pods from a trace: "openb" (built in) or a CSV file, see '
            "docs/load-generator.md"
        },
    )
    trace_format: str = field(
        default="auto", metadata={"help": "format of the trace; auto goes by the header line"}
    )
    span_s: float = field(
        default=60.0,
        metadata={"help": "a trace is compressed so that its last pod comes after so many seconds"},
    )
    max_gap_s: float = field(
        default=0.0,
        metadata={
            "help": "pauses of the trace longer than this (in trace seconds) are cut to it before "
            "it is compressed; 0: none is"
        },
    )
    nodes: str = field(
        default="",
        metadata={
            "help": 'nodes to create first: "openb", a CSV file, or a number of generated ones; '
            "empty: the cluster has its own"
        },
    )
    concurrency: int = field(
        default=32, metadata={"help": "create requests in flight at most; bounds memory and load"}
    )
    settle_s: float = field(
        default=30.0,
        metadata={
            "help": "seconds to wait after the last creation without any news before pods that "
            "are not bound count as unfinished"
        },
    )
    cleanup: bool = field(
        default=False, metadata={"help": "delete the pods and nodes of the run at the end"}
    )
    seed: int = field(default=1, metadata={"help": "of lifetimes; same seed, same pods"})
    report: Path | None = field(
        default=None, metadata={"help": "write the report to this HTML file, and JSON beside it"}
    )

    def unused(self) -> frozenset[str]:
        """Fields without an effect beside the others, which a report had better not show."""
        if self.trace:
            names = {"shapes", "replicas", "lifetime_s", "seed"}
            names |= {"trace_format"} if self.trace == "openb" else set()
        else:
            names = {"trace", "trace_format", "span_s", "max_gap_s"}
            names |= set() if self.lifetime_s else {"seed"}
        if self.arrival is not Arrival.RAMP:
            names |= {"rate_from"}
        if self.arrival in (Arrival.BURST, Arrival.TRACE):
            names |= {"rate"}
        return frozenset(names)

    def __post_init__(self) -> None:
        check_name(self.namespace, flag="--namespace")
        if self.run:
            check_name(self.run, flag="--run", most=RUN_LENGTH)
        for name in ("shapes", "replicas", "concurrency"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} {getattr(self, name)}: take 1 or more")
        for name in ("rate", "rate_from", "span_s"):
            if not getattr(self, name) > 0:
                flag = name.replace("_", "-")
                raise ValueError(f"--{flag} {getattr(self, name):g}: take more than 0")
        for name in ("pods", "lifetime_s", "settle_s", "max_gap_s"):
            if getattr(self, name) < 0:
                flag = name.replace("_", "-")
                raise ValueError(f"--{flag} {getattr(self, name):g}: take 0 or more")
        if self.arrival is Arrival.TRACE and not self.trace:
            raise ValueError("--arrival trace: name a trace with --trace")
        if self.trace_format != "auto" and (not self.trace or self.trace == "openb"):
            raise ValueError(
                f"--trace-format {self.trace_format}: only for a file that --trace names"
            )
        if self.pods < 1 and not self.trace:
            raise ValueError(f"--pods {self.pods}: take 1 or more, or name a trace with --trace")
