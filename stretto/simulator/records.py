"""Stored objects: immutable records that keep their JSON in pieces.

Most writes change a version, a node name or a status and nothing else. So an object is not kept as
a decoded tree that is encoded again at each write, but as the encoded pieces around the parts that
change; a bind swaps two pieces, and all versions of a pod share the bytes of its spec. The tree is
decoded when a patch needs it.

A record never changes: a list in pages, the window of past changes and the watchers may hold it.
"""

from __future__ import annotations

from typing import Any, Self

import msgspec

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode
Body = dict[str, Any]
"""A decoded object."""


class Record:
    """An object of any kind, at one version."""

    __slots__ = ("_meta", "_rest", "labels", "name", "namespace", "uid", "version")

    def __init__(self, body: Body, *, version: int) -> None:
        meta = dict(body["metadata"])
        meta.pop("resourceVersion", None)
        self.namespace: str = meta.get("namespace", "")
        self.name: str = meta["name"]
        self.uid: str = meta["uid"]
        self.labels: dict[str, str] = meta.get("labels") or {}
        self.version = version
        self._meta = b"," + encode(meta)[1:]
        self._rest = self._encode_rest(body)

    def _encode_rest(self, body: Body) -> bytes:
        rest = {
            key: value
            for key, value in body.items()
            if key not in ("metadata", "kind", "apiVersion")
        }
        return b"," + encode(rest)[1:] if rest else b"}"

    @property
    def key(self) -> tuple[str, str]:
        """(namespace, name)."""
        return self.namespace, self.name

    @property
    def raw(self) -> bytes:
        """Its JSON, without kind and apiVersion, as in a list."""
        return b'{"metadata":{"resourceVersion":"%d"%b%b' % (self.version, self._meta, self._rest)

    def body(self) -> Body:
        """The object, decoded afresh: the caller may change it."""
        found: Body = decode(self.raw)
        return found

    def at(self, version: int) -> Self:
        """The same object under another version."""
        other = self._copy()
        other.version = version
        return other

    def same_as(self, other: Record) -> bool:
        """Whether nothing but the version differs."""
        return self._meta == other._meta and self._rest == other._rest

    def field(self, path: str) -> str | None:
        """The value of a field that may be selected by; None if it may not."""
        if path == "metadata.name":
            return self.name
        return self.namespace if path == "metadata.namespace" else None

    def _copy(self) -> Self:
        other = object.__new__(type(self))
        for name in Record.__slots__:
            setattr(other, name, getattr(self, name))
        return other


class NodeRecord(Record):
    """A node: may be selected by spec.unschedulable."""

    __slots__ = ("unschedulable",)

    def __init__(self, body: Body, *, version: int) -> None:
        super().__init__(body, version=version)
        self.unschedulable = bool((body.get("spec") or {}).get("unschedulable"))

    def field(self, path: str) -> str | None:
        """See :meth:`Record.field`."""
        if path == "spec.unschedulable":
            return "true" if self.unschedulable else "false"
        return super().field(path)

    def _copy(self) -> Self:
        other = super()._copy()
        other.unschedulable = self.unschedulable
        return other


class PodRecord(Record):
    """A pod, with its spec (less the node's name) and status as pieces of their own."""

    __slots__ = ("deleting", "gated", "held", "node_name", "phase", "scheduler_name", "spec",
                 "status")  # fmt: skip

    def __init__(self, body: Body, *, version: int) -> None:
        super().__init__(body, version=version)
        spec, status, meta = dict(body["spec"]), body.get("status") or {}, body["metadata"]
        self.node_name: str = spec.pop("nodeName", None) or ""
        self.scheduler_name: str = spec["schedulerName"]
        self.gated = bool(spec.get("schedulingGates"))
        self.spec = encode(spec)
        self.status = encode(status)
        self.phase: str = status.get("phase", "")
        self.deleting = bool(meta.get("deletionTimestamp"))
        self.held = bool(meta.get("finalizers"))

    def _encode_rest(self, body: Body) -> bytes:
        return b""

    @property
    def raw(self) -> bytes:
        """See :attr:`Record.raw`."""
        if self.node_name:
            return (
                b'{"metadata":{"resourceVersion":"%d"%b,"spec":{"nodeName":%b,%b,"status":%b}'
                % (
                    self.version,
                    self._meta,
                    encode(self.node_name),
                    self.spec[1:],
                    self.status,
                )
            )
        return b'{"metadata":{"resourceVersion":"%d"%b,"spec":%b,"status":%b}' % (
            self.version,
            self._meta,
            self.spec,
            self.status,
        )

    def same_as(self, other: Record) -> bool:
        """See :meth:`Record.same_as`."""
        return (
            isinstance(other, PodRecord)
            and super().same_as(other)
            and self.spec == other.spec
            and self.node_name == other.node_name
            and decode(self.status) == decode(other.status)
        )

    def with_status(self, status: bytes, *, phase: str, node_name: str = "") -> PodRecord:
        """The pod with another status, and bound if ``node_name`` is given; the version stays."""
        other = self._copy()
        other.status, other.phase = status, phase
        other.node_name = node_name or self.node_name
        return other

    def field(self, path: str) -> str | None:
        """See :meth:`Record.field`."""
        attribute = _POD_FIELDS.get(path)
        if attribute:
            return str(getattr(self, attribute))
        if path == "status.nominatedNodeName":
            # Most pods have none, and reading a status costs more than looking for the word.
            found = b"nominatedNodeName" in self.status and decode(self.status)
            return str(found.get("nominatedNodeName") or "") if found else ""
        if path in _POD_SPEC_DEFAULTS:
            value = decode(self.spec).get(path.partition(".")[2], _POD_SPEC_DEFAULTS[path])
            return str(value).lower() if isinstance(value, bool) else str(value)
        return super().field(path)

    def _copy(self) -> Self:
        other = super()._copy()
        for name in PodRecord.__slots__:
            setattr(other, name, getattr(self, name))
        return other


_POD_FIELDS = {
    "spec.nodeName": "node_name",
    "spec.schedulerName": "scheduler_name",
    "status.phase": "phase",
}
_POD_SPEC_DEFAULTS = {
    "spec.hostNetwork": "false",
    "spec.restartPolicy": "Always",
    "spec.serviceAccountName": "",
}


class EventRecord(Record):
    """An Event: may be selected by what it is about."""

    __slots__ = ()

    def field(self, path: str) -> str | None:
        """See :meth:`Record.field`."""
        if path in ("reason", "type"):
            return str(self.body().get(path, ""))
        head, _, tail = path.partition(".")
        if head in ("regarding", "involvedObject"):
            body = self.body()
            about = body.get("regarding") or body.get("involvedObject") or {}
            return str(about.get(tail, ""))
        return super().field(path)


RECORDS: dict[str, type[Record]] = {"pods": PodRecord, "nodes": NodeRecord, "events": EventRecord}
"""The record type by resource; :class:`Record` for the others."""
