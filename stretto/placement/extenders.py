"""HTTP extenders as a configuration names them: what they are asked, and of which pods.

Asking them is the shard's shell's business (:mod:`scheduler_shard.extending`); here is only what
the brain needs to know.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

import msgspec

from stretto.model.shape import Shape
from stretto.placement.strict import (
    ProfileError,
    boolean,
    duration_s,
    integer,
    mapping,
    qualified_name,
    sequence,
    text,
)

DEFAULT_TIMEOUT_S = 5.0
MAX_EXTENDER_SCORE = 10
"""Upstream's MaxExtenderPriority; an extender's scores are 0..10 and count times weight times 10
beside the plugins' 0..100."""
_INT64 = (1 << 63) - 1
_FIELDS = (
    "urlPrefix", "filterVerb", "preemptVerb", "prioritizeVerb", "weight", "bindVerb", "enableHTTPS",
    "tlsConfig", "httpTimeout", "nodeCacheCapable", "managedResources", "ignorable",
)  # fmt: skip
_FILES = ("certFile", "keyFile", "caFile")
_DATA = ("certData", "keyData", "caData")


class ExtenderTls(msgspec.Struct, frozen=True):
    """How an extender is trusted. PEM as text, or names of files."""

    insecure: bool = False
    server_name: str = ""
    certificate_file: str = ""
    key_file: str = ""
    authority_file: str = ""
    certificate: str = ""
    key: str = ""
    authority: str = ""


class Extender(msgspec.Struct, frozen=True):
    """One HTTP extender."""

    url: str
    filter_verb: str = ""
    prioritize_verb: str = ""
    preempt_verb: str = ""
    bind_verb: str = ""
    weight: int = 0
    https: bool = False
    tls: ExtenderTls | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    node_cache_capable: bool = False
    """It knows the nodes: names are sent instead of objects."""
    managed: frozenset[str] = frozenset()
    """Extended resources; it is asked about pods that request one. Empty: about all pods."""
    ignored: frozenset[str] = frozenset()
    """Those of them that NodeResourcesFit does not check."""
    ignorable: bool = False
    """Pods go on without it when it cannot be reached."""

    def interested(self, resources: Iterable[str]) -> bool:
        """Whether it is asked about pods that name these resources."""
        return not self.managed or not self.managed.isdisjoint(resources)


def interested(extenders: Iterable[Extender], shape: Shape) -> tuple[Extender, ...]:
    """Those that filter or prioritise and are asked about pods of a shape."""
    names = [name for name, _ in shape.requests]
    return tuple(
        extender
        for extender in extenders
        if (extender.filter_verb or extender.prioritize_verb) and extender.interested(names)
    )


def preempting(extenders: Iterable[Extender], shape: Shape) -> tuple[Extender, ...]:
    """Those that are asked about victims for pods of a shape."""
    names = [name for name, _ in shape.requests]
    return tuple(each for each in extenders if each.preempt_verb and each.interested(names))


def read_extenders(raw: object, *, where: str) -> tuple[Extender, ...]:
    """The extenders of a configuration, ignorable ones last as upstream asks them.

    Raises:
        ProfileError: an unknown field or a value that cannot work.
    """
    found = [
        _extender(item, where=f"{where}[{i}]") for i, item in enumerate(sequence(raw, where=where))
    ]
    if sum(bool(extender.bind_verb) for extender in found) > 1:
        raise ProfileError(f"{where}: only one extender can have a bindVerb")
    managed = [name for extender in found for name in extender.managed]
    if len(set(managed)) < len(managed):
        raise ProfileError(f"{where}: a resource is managed by two extenders")
    return tuple(sorted(found, key=lambda extender: extender.ignorable))


def _extender(raw: object, *, where: str) -> Extender:
    fields = mapping(raw, _FIELDS, where=where)

    def verb(name: str) -> str:
        return text(fields.get(name) or "", where=f"{where}.{name}")

    url = text(fields.get("urlPrefix"), where=f"{where}.urlPrefix")
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise ProfileError(f"{where}.urlPrefix: {url!r} is not an http or https URL")
    weight = integer(fields.get("weight") or 0, where=f"{where}.weight", low=0, high=_INT64)
    if verb("prioritizeVerb") and not 0 < weight <= 1 << 31:
        raise ProfileError(f"{where}.weight: must be positive where prioritizeVerb is set")
    timeout = fields.get("httpTimeout")
    seconds = 0.0 if timeout is None else duration_s(timeout, where=f"{where}.httpTimeout")
    if seconds < 0:
        raise ProfileError(f"{where}.httpTimeout: must not be negative")
    managed, ignored = _managed(fields.get("managedResources"), where=f"{where}.managedResources")
    return Extender(
        url=url.rstrip("/"),
        filter_verb=verb("filterVerb"),
        prioritize_verb=verb("prioritizeVerb"),
        preempt_verb=verb("preemptVerb"),
        bind_verb=verb("bindVerb"),
        weight=weight,
        https=boolean(fields.get("enableHTTPS"), where=f"{where}.enableHTTPS"),
        tls=_tls(fields.get("tlsConfig"), where=f"{where}.tlsConfig"),
        timeout_s=seconds or DEFAULT_TIMEOUT_S,
        node_cache_capable=boolean(
            fields.get("nodeCacheCapable"), where=f"{where}.nodeCacheCapable"
        ),
        managed=managed,
        ignored=ignored,
        ignorable=boolean(fields.get("ignorable"), where=f"{where}.ignorable"),
    )


def _managed(raw: object, *, where: str) -> tuple[frozenset[str], frozenset[str]]:
    managed: list[str] = []
    ignored: set[str] = set()
    for i, item in enumerate(sequence(raw, where=where)):
        path = f"{where}[{i}]"
        fields = mapping(item, ("name", "ignoredByScheduler"), where=path)
        name = qualified_name(fields.get("name"), where=f"{path}.name")
        domain, slash, _ = name.rpartition("/")
        native = not slash or domain.endswith("kubernetes.io") or name.startswith("requests.")
        if native:
            raise ProfileError(f"{path}.name: {name!r} is not an extended resource")
        managed.append(name)
        if boolean(fields.get("ignoredByScheduler"), where=f"{path}.ignoredByScheduler"):
            ignored.add(name)
    if len(set(managed)) < len(managed):
        raise ProfileError(f"{where}: a resource is named twice")
    return frozenset(managed), frozenset(ignored)


def _tls(raw: object, *, where: str) -> ExtenderTls | None:
    if raw is None:
        return None
    fields = mapping(raw, ("insecure", "serverName", *_FILES, *_DATA), where=where)
    files = [text(fields.get(name) or "", where=f"{where}.{name}") for name in _FILES]
    data = [_pem(fields.get(name), where=f"{where}.{name}") for name in _DATA]
    return ExtenderTls(
        boolean(fields.get("insecure"), where=f"{where}.insecure"),
        text(fields.get("serverName") or "", where=f"{where}.serverName"),
        *files,
        *data,
    )


def _pem(raw: object, *, where: str) -> str:
    encoded = text(raw or "", where=where)
    try:
        return base64.b64decode(encoded, validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        raise ProfileError(f"{where}: is not base64 of PEM text") from None


def ignored_resources(extenders: Sequence[Extender]) -> frozenset[str]:
    """What NodeResourcesFit leaves to extenders; where there is any, it replaces the plugin's own
    ignoredResources, as upstream's does."""
    return frozenset(name for extender in extenders for name in extender.ignored)
