"""A KubeSchedulerConfiguration v1 as a whole: profiles, extenders, backoff.

Read as kube-scheduler 1.37 reads it: unknown fields are errors, values are checked by upstream's
rules (apis/config/validation). Fields of kube-scheduler's own process that have no meaning here are
checked and listed in :attr:`Configuration.without_effect`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from stretto.placement.arguments import API
from stretto.placement.extenders import Extender, ignored_resources, read_extenders
from stretto.placement.extension import OwnPlugin
from stretto.placement.profiles import GATES, Profiles, percentage
from stretto.placement.strict import (
    DEFAULT_DIGEST,
    ProfileError,
    boolean,
    duration_s,
    integer,
    mapping,
    text,
)

KIND = "KubeSchedulerConfiguration"
_INT32 = (1 << 31) - 1
_INT64 = (1 << 63) - 1
_TOP = (
    "apiVersion", "kind", "parallelism", "leaderElection", "clientConnection", "enableProfiling",
    "enableContentionProfiling", "percentageOfNodesToScore", "podInitialBackoffSeconds",
    "podMaxBackoffSeconds", "delayCacheUntilActive", "profiles", "extenders",
)  # fmt: skip
_UNUSED = (
    "parallelism", "leaderElection", "clientConnection", "enableProfiling",
    "enableContentionProfiling", "percentageOfNodesToScore", "delayCacheUntilActive",
)  # fmt: skip
_ELECTION = (
    "leaderElect", "leaseDuration", "renewDeadline", "retryPeriod", "resourceLock", "resourceName",
    "resourceNamespace",
)  # fmt: skip
_CONNECTION = ("kubeconfig", "acceptContentTypes", "contentType", "qps", "burst")


class Configuration(msgspec.Struct, frozen=True):
    """What the roles of a deployment share."""

    profiles: Profiles
    extenders: tuple[Extender, ...] = ()
    """In the order in which they are asked."""
    initial_backoff_s: int | None = None
    """None: without a file, which always says it (1 and 10 by default)."""
    max_backoff_s: int | None = None
    without_effect: tuple[str, ...] = ()
    """Fields that were given and mean nothing here."""
    digest: str = DEFAULT_DIGEST
    """Equal where two processes decide alike; exchanged when they greet."""

    @property
    def names(self) -> tuple[str, ...]:
        """The schedulerNames."""
        return self.profiles.names


def default_configuration(
    names: Sequence[str], *, gates: Mapping[str, bool] | None = None
) -> Configuration:
    """kube-scheduler's defaults under the given names."""
    check_gates(gates or {})
    return Configuration(
        Profiles.default(names, gates=gates), digest=_digest({}, gates) if gates else DEFAULT_DIGEST
    )


def read_configuration(
    raw: object,
    *,
    gates: Mapping[str, bool] | None = None,
    own: Mapping[str, type[OwnPlugin]] | None = None,
    installed: str = "",
) -> Configuration:
    """Read a configuration that was already parsed from YAML or JSON.

    ``own``: plugins beside kube-scheduler's, by name; ``installed`` says their versions, which are
    part of the digest.

    Raises:
        ProfileError: an unknown field, plugin or value; the message says where.
    """
    check_gates(gates or {})
    top = mapping(raw, _TOP, where="the configuration")
    if top.get("apiVersion") != API or top.get("kind") != KIND:
        raise ProfileError(f"apiVersion and kind must be {API} and {KIND}")
    _check_unused(top)
    initial = _seconds(top, "podInitialBackoffSeconds", low=1, default=1)
    highest = _seconds(top, "podMaxBackoffSeconds", low=0, default=10)
    if highest < initial:
        raise ProfileError("podMaxBackoffSeconds: must not be below podInitialBackoffSeconds")
    extenders = read_extenders(top.get("extenders"), where="extenders")
    profiles = Profiles.from_configuration(
        top, gates=gates, ignored=ignored_resources(extenders), own=own
    )
    return Configuration(
        profiles,
        extenders=extenders,
        initial_backoff_s=initial,
        max_backoff_s=highest,
        without_effect=tuple(name for name in _UNUSED if top.get(name) is not None),
        digest=_digest(top, gates, installed),
    )


def check_gates(gates: Mapping[str, bool]) -> None:
    """Refuse feature gates that nothing here reads.

    Raises:
        ProfileError: naming the gate.
    """
    for name in sorted(set(gates) - GATES):
        raise ProfileError(f"feature gate {name!r} is not known; known: {', '.join(sorted(GATES))}")


def _digest(
    top: Mapping[str, object], gates: Mapping[str, bool] | None, installed: str = ""
) -> str:
    """Over what decides: the same whatever the order of fields and the format of the file."""
    decisive = [top.get("profiles"), top.get("extenders"), dict(gates or {}), installed]
    data = msgspec.json.encode(decisive, order="deterministic")
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _seconds(top: Mapping[str, object], name: str, *, low: int, default: int) -> int:
    given = top.get(name)
    return default if given is None else integer(given, where=name, low=low, high=_INT64)


def _check_unused(top: Mapping[str, object]) -> None:
    """What kube-scheduler would refuse in the fields that mean nothing here."""
    if top.get("parallelism") is not None:
        integer(top["parallelism"], where="parallelism", low=1, high=_INT32)
    for name in ("enableProfiling", "enableContentionProfiling", "delayCacheUntilActive"):
        boolean(top.get(name), where=name)
    percentage(top.get("percentageOfNodesToScore"), where="percentageOfNodesToScore")
    _check_election(mapping(top.get("leaderElection"), _ELECTION, where="leaderElection"))
    connection = mapping(top.get("clientConnection"), _CONNECTION, where="clientConnection")
    for name in ("kubeconfig", "acceptContentTypes", "contentType"):
        text(connection.get(name) or "", where=f"clientConnection.{name}")
    integer(connection.get("burst") or 0, where="clientConnection.burst", low=0, high=_INT32)
    qps = connection.get("qps") or 0
    if isinstance(qps, bool) or not isinstance(qps, int | float):
        raise ProfileError("clientConnection.qps: must be a number")


def _check_election(fields: Mapping[str, object]) -> None:
    def seconds(name: str, default: float) -> float:
        raw = fields.get(name)
        found = 0.0 if raw is None else duration_s(raw, where=f"leaderElection.{name}")
        return found or default

    elect = fields.get("leaderElect")
    lease, renew = seconds("leaseDuration", 15), seconds("renewDeadline", 10)
    retry = seconds("retryPeriod", 2)
    names = {
        name: text(fields.get(name) or "", where=f"leaderElection.{name}")
        for name in ("resourceLock", "resourceName", "resourceNamespace")
    }
    if elect is not None and not boolean(elect, where="leaderElection.leaderElect"):
        return
    if names["resourceLock"] not in ("", "leases"):
        raise ProfileError('leaderElection.resourceLock: must be "leases"')
    if not 0 < renew < lease or retry <= 0:
        raise ProfileError(
            "leaderElection: take 0 < renewDeadline < leaseDuration, retryPeriod > 0"
        )
