"""What kube-scheduler decided, as golden files and the oracle write it (tests/golden/README.md)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec


class StatusAnswer(msgspec.Struct, rename="camel"):
    """A status, and the nodes (indices) that have it."""

    code: str
    plugin: str = ""
    reasons: list[str] = []
    nodes: list[int] = []

    @property
    def key(self) -> tuple[str, str, tuple[str, ...]]:
        """What is compared: code, plugin and sorted reasons."""
        return self.code, self.plugin, tuple(self.reasons)


class ScoresAnswer(msgspec.Struct):
    """Scores parallel to ``feasible``."""

    raw: dict[str, list[int]] = {}
    weighted: dict[str, list[int]] = {}
    total: list[int] = []


class CandidateAnswer(msgspec.Struct, rename="camel"):
    """A node on which preemption works."""

    node: int
    victims: list[str] = []
    pdb_violations: int = msgspec.field(name="pdbViolations", default=0)


class PostFilterAnswer(msgspec.Struct, rename="camel"):
    """The outcome of PostFilter."""

    code: str
    message: str = ""
    nominate: str | None = None
    victims: list[str] = []
    ties: list[str] = []
    candidates: list[CandidateAnswer] = []
    dry_run: list[StatusAnswer] = []


class PodAnswer(msgspec.Struct, rename="camel"):
    """What upstream decided about one pending pod."""

    pod: str
    pre_enqueue: StatusAnswer | None = None
    pre_filter: StatusAnswer | None = None
    pre_filter_nodes: list[int] | None = None
    filter: list[StatusAnswer] = []
    feasible: list[int] = []
    nominated_first: int | None = None
    scores: ScoresAnswer | None = None
    best: list[int] = []
    chosen: int | None = None
    reserve: StatusAnswer | None = None
    fit_error: str | None = None
    message: str | None = None
    scheduler_error: str | None = None
    post_filter: PostFilterAnswer | None = None

    def speaking(self) -> Iterator[str]:
        """Plugins that hold the pod, reject anything or add to any score."""
        tried = () if self.post_filter is None else self.post_filter.dry_run
        for status in (self.pre_enqueue, self.pre_filter, self.reserve, *self.filter, *tried):
            if status is not None and status.plugin:
                yield status.plugin
        if self.scores is not None:
            for plugin, values in self.scores.weighted.items():
                if any(values):
                    yield plugin


class Answers(msgspec.Struct):
    """The ``expect`` part of a line."""

    nodes: list[str]
    pods: list[PodAnswer]


class World(msgspec.Struct, rename="camel"):
    """The ``world`` part of a line."""

    id: str
    family: str
    pending: list[str]
    objects: list[msgspec.Raw]
    mode: str = "independent"
    config: dict[str, object] | None = None
    feature_gates: dict[str, bool] = {}


class Case(msgspec.Struct):
    """A line of a golden file."""

    world: World
    expect: Answers
