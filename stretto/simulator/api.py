"""The API server's verbs on objects of any kind: a plain synchronous class.

What is special about pods is in :mod:`stretto.simulator.pods`; HTTP is in
:mod:`stretto.simulator.http_server`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stretto.simulator.answers import (
    Answer,
    Refusal,
    already_exists,
    bad_request,
    invalid,
    modified,
    not_found,
    precondition,
)
from stretto.simulator.kinds import Kind, Route, kind_of, no_such_path, route_of
from stretto.simulator.patches import patched
from stretto.simulator.pods import PodVerbs
from stretto.simulator.records import RECORDS, Body, Record, decode, encode
from stretto.simulator.selectors import selects
from stretto.simulator.store import Page, Store, Versions, Watch

VERSION = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.2+stretto-simulator",
    "platform": "linux/amd64",
}
NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
MAX_BODY = 3 * 1024 * 1024
"""Bytes of a request, as kube-apiserver limits them."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\Z")
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_STATUS_KEPT = frozenset({"nodes", "pods"})
"""Kinds whose status changes through their status subresource only."""
_NAMELESS = frozenset({"namespaces", "nodes", "persistentvolumes"})
"""Kinds that have no namespace."""


@dataclass
class Request:
    """A request as HTTP brought it."""

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    content_type: str = "application/json"

    @property
    def is_watch(self) -> bool:
        """Whether the answer has no end."""
        return self.method == "GET" and self.params.get("watch", "") in ("1", "true")


class ApiServer:
    """State and verbs of a cluster; time and randomness are passed in."""

    def __init__(
        self,
        *,
        now: Callable[[], str],
        rng: random.Random,
        watch_window: int = 200_000,
        event_window: int = 20_000,
    ) -> None:
        self.now = now
        """The time as RFC 3339 text, in whole seconds."""
        self._rng = rng
        self._window = watch_window
        self._event_window = event_window
        self._versions = Versions()
        self._stores: dict[tuple[str, str], Store] = {}
        self.pods = PodVerbs(self)
        for name in NAMESPACES:
            self.create(kind_of("", "v1", "namespaces"), {"metadata": {"name": name}})

    # --- entry ---------------------------------------------------------------------------------

    def handle(self, request: Request) -> Answer:
        """Carry out a request that is not a watch."""
        try:
            return self._handle(request)
        except Refusal as refusal:
            return refusal.answer

    def _handle(self, request: Request) -> Answer:
        if not request.path.startswith(("/api/", "/apis/")):
            return self._about(request)
        route = route_of(request.path)
        if route.kind.resource == "pods" and route.subresource not in ("", "status"):
            return self.pods.handle(request, route)
        if route.subresource not in ("", "status"):
            raise no_such_path()
        if not route.name:
            return self._on_collection(request, route)
        return self._on_object(request, route)

    def _about(self, request: Request) -> Answer:
        if request.path == "/version":
            return Answer(200, encode(VERSION))
        if request.path in ("/healthz", "/livez", "/readyz"):
            return Answer(200, b"ok")
        raise no_such_path()

    def _on_collection(self, request: Request, route: Route) -> Answer:
        if request.method == "GET":
            return Answer(200, self._list(request, route))
        if request.method == "POST":
            record = self.create(route.kind, self._decoded(request), namespace=route.namespace)
            return Answer(201, alone(route.kind, record))
        if request.method == "DELETE":
            return self._delete_collection(request, route)
        raise not_allowed()

    def _on_object(self, request: Request, route: Route) -> Answer:
        record = self.find(route)
        if request.method == "GET":
            return Answer(200, alone(route.kind, record))
        if request.method == "DELETE":
            options = self._decoded(request) if request.body else {}
            return Answer(200, self.delete(route.kind, record, options))
        if request.method == "PATCH":
            body = patched(
                record.body(),
                request.body,
                request.content_type.partition(";")[0],
                kind=route.kind.name,
                name=record.name,
            )
            changed = self.update(route, record, body, by_patch=True)
        elif request.method == "PUT":
            changed = self.update(route, record, self._decoded(request), by_patch=False)
        else:
            raise not_allowed()
        return Answer(200, alone(route.kind, changed))

    def _decoded(self, request: Request) -> Body:
        try:
            body = decode(request.body)
        except ValueError as error:
            raise bad_request(f"the body is not JSON: {error}") from None
        if not isinstance(body, dict) or not isinstance(body.get("metadata", {}), dict):
            raise bad_request("the body is not an object with metadata")
        return body

    # --- reads ---------------------------------------------------------------------------------

    def store(self, kind: Kind) -> Store:
        """The objects of a kind; versions of one group share them."""
        key = (kind.group, kind.resource)
        if key not in self._stores:
            self._stores[key] = Store(kind, self._versions, window=self._window)
        return self._stores[key]

    def find(self, route: Route) -> Record:
        """The object a route names.

        Raises:
            Refusal: 404.
        """
        record = self.store(route.kind).get(route.namespace, route.name)
        if record is None:
            raise not_found(route.kind.qualified, route.name)
        return record

    def _list(self, request: Request, route: Route) -> bytes:
        params, store = request.params, self.store(route.kind)
        limit = number(params, "limit")
        if token := params.get("continue", ""):
            page = store.next_page(token, limit=limit)
        else:
            predicate = selects(params.get("fieldSelector", ""), params.get("labelSelector", ""))
            page = store.first_page(namespace=route.namespace, predicate=predicate, limit=limit)
        return list_body(route.kind, page)

    def watch(self, request: Request, *, wake: Callable[[], None]) -> tuple[Store, Watch]:
        """Begin a watch; ``wake`` is called when its lines are no longer empty.

        Raises:
            Refusal: 400 or 404; 410 is raised too, and is told inside the watch by its caller.
        """
        route, params = route_of(request.path), request.params
        store = self.store(route.kind)
        fields = params.get("fieldSelector", "")
        if route.name:
            fields = f"metadata.name={route.name}"
        predicate = selects(fields, params.get("labelSelector", ""))
        watch = Watch(
            head=route.kind.head, namespace=route.namespace, predicate=predicate, wake=wake
        )
        since = number(params, "resourceVersion")
        initial = params.get("sendInitialEvents") == "true"
        if initial or not since:
            for record in store.records(namespace=route.namespace, predicate=predicate):
                watch.push(watch.line(b"ADDED", record))
            if initial:
                watch.bookmark(store.version, initial_end=True)
            since = store.version
        store.watch(watch, since=since)
        return store, watch

    # --- writes --------------------------------------------------------------------------------

    def create(self, kind: Kind, body: Body, *, namespace: str = "") -> Record:
        """Create an object.

        Raises:
            Refusal: 400, 404 (no such namespace), 409 or 422.
        """
        meta = body.setdefault("metadata", {})
        self._fill_identity(kind, meta, namespace)
        if namespace and not self._namespace_exists(namespace):
            raise not_found("namespaces", namespace)
        store = self.store(kind)
        if store.get(namespace, meta["name"]) is not None:
            raise already_exists(kind.qualified, meta["name"])
        if kind.resource == "pods":
            self.pods.set_defaults(body)
        elif kind.resource == "namespaces":
            body.setdefault("spec", {"finalizers": ["kubernetes"]})
            body.setdefault("status", {"phase": "Active"})
        record = store.create(new_record(kind, body))
        if kind.resource == "events" and len(store) > self._event_window:
            store.forget_oldest()
        return record

    def _fill_identity(self, kind: Kind, meta: dict[str, Any], namespace: str) -> None:
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = self._generated(kind, str(meta["generateName"])[:247], namespace)
        name = meta.get("name") or ""
        if not name:
            raise invalid(
                kind.name, "", "metadata.name: Required value: name or generateName is required"
            )
        if not isinstance(name, str) or not (_NAME.match(name) or kind.group.startswith("rbac.")):
            raise invalid(
                kind.name,
                str(name)[:300],
                "metadata.name: Invalid value: a lowercase RFC 1123 subdomain must consist of "
                "lower case alphanumeric characters, '-' or '.', and must start and end with an "
                "alphanumeric character",
            )
        if meta.get("namespace", namespace) != namespace and kind.resource not in _NAMELESS:
            raise bad_request(
                f"the namespace of the provided object does not match the namespace sent on the "
                f"request ({meta['namespace']!r}, {namespace!r})"
            )
        if namespace:
            meta["namespace"] = namespace
        else:
            meta.pop("namespace", None)
        bits = f"{self._rng.getrandbits(128):032x}"
        meta["uid"] = f"{bits[:8]}-{bits[8:12]}-4{bits[13:16]}-a{bits[17:20]}-{bits[20:]}"
        meta["creationTimestamp"] = self.now()
        meta.pop("deletionTimestamp", None)

    def _generated(self, kind: Kind, prefix: str, namespace: str) -> str:
        """A free name; a taken one is tried again, as the real server does."""
        store = self.store(kind)
        while True:
            name = prefix + "".join(self._rng.choices(_SUFFIX, k=5))
            if store.get(namespace, name) is None:
                return name

    def _namespace_exists(self, name: str) -> bool:
        return self._stores["", "namespaces"].get("", name) is not None

    def update(self, route: Route, old: Record, body: Body, *, by_patch: bool) -> Record:
        """Put a changed object in the place of ``old``; the same object leaves its version.

        Raises:
            Refusal: 409 or 422.
        """
        kind, meta = route.kind, body.setdefault("metadata", {})
        version = str(meta.get("resourceVersion") or "")
        if not version and kind.resource == "leases" and not by_patch:
            raise invalid(
                kind.qualified,
                old.name,
                "metadata.resourceVersion: Invalid value: 0: must be specified for an update",
            )
        uid = meta.get("uid") or old.uid
        if uid != old.uid and not by_patch:
            raise precondition(kind.qualified, old.name, field="UID", wanted=uid, found=old.uid)
        if version not in ("", str(old.version)):
            raise modified(kind.qualified, old.name)
        if uid != old.uid or meta.get("name", old.name) != old.name:
            raise invalid(
                kind.name, old.name, f'metadata.uid: Invalid value: "{uid}": field is immutable'
            )
        before = old.body()
        self._keep_fixed(route, before, body)
        if kind.resource == "pods":
            self.pods.check_change(before, body, name=old.name)
        new = new_record(kind, body)
        if new.same_as(old):
            return old
        changed = self.store(kind).replace(old, new)
        if before["metadata"].get("deletionTimestamp") and not meta.get("finalizers"):
            self.pods.finish_if_free(kind, changed)
        return changed

    @staticmethod
    def _keep_fixed(route: Route, before: Body, body: Body) -> None:
        """What an update of this path may not change stays as it was."""
        meta, was = body["metadata"], before["metadata"]
        for name in ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp",
                     "deletionGracePeriodSeconds", "generation"):  # fmt: skip
            if name in was:
                meta[name] = was[name]
            else:
                meta.pop(name, None)
        if route.subresource == "status":
            status = body.get("status")
            body.clear()
            body.update(before)
            body["metadata"] = meta
            kept = "status" if status is not None else ""
            if kept:
                body["status"] = status
        elif route.kind.resource in _STATUS_KEPT:
            body.pop("status", None)
            if "status" in before:
                body["status"] = before["status"]

    def delete(self, kind: Kind, record: Record, options: Mapping[str, Any]) -> bytes:
        """Delete an object as DeleteOptions ask; what is returned is the body of the answer.

        Raises:
            Refusal: 409, a precondition does not hold.
        """
        check_preconditions(kind, record, options.get("preconditions") or {})
        if kind.resource == "pods":
            return alone(kind, self.pods.delete(record, options))
        if record.body()["metadata"].get("finalizers"):
            return alone(kind, self.mark_deleted(kind, record, grace_s=0))
        self.store(kind).remove(record)
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {"name": record.name, "kind": kind.resource, "uid": record.uid},
        }
        return encode(status)

    def mark_deleted(self, kind: Kind, record: Record, *, grace_s: int) -> Record:
        """Set the deletion timestamp; whoever holds the object removes it later."""
        body = record.body()
        meta = body["metadata"]
        if meta.get("deletionTimestamp"):
            return record
        meta["deletionTimestamp"] = self.now()
        meta["deletionGracePeriodSeconds"] = grace_s
        return self.store(kind).replace(record, new_record(kind, body))

    def _delete_collection(self, request: Request, route: Route) -> Answer:
        options = self._decoded(request) if request.body else {}
        predicate = selects(
            request.params.get("fieldSelector", ""), request.params.get("labelSelector", "")
        )
        records = self.store(route.kind).records(namespace=route.namespace, predicate=predicate)
        for record in records:
            self.delete(route.kind, record, options)
        return Answer(200, list_body(route.kind, Page(self._versions.current, records, "", 0)))

    @property
    def version(self) -> int:
        """The newest resourceVersion."""
        return self._versions.current

    def counts(self) -> dict[str, int]:
        """Objects by kind."""
        return {store.kind.qualified: len(store) for store in self._stores.values()}

    def compact(self) -> None:
        """Forget all past changes and lists under way: what asks for them gets 410."""
        for store in self._stores.values():
            store.compact()


def new_record(kind: Kind, body: Body) -> Record:
    """The record of a body; its version is set when it is stored."""
    record_type = RECORDS.get(kind.resource, Record)
    try:
        return record_type(body, version=0)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        name = str(body.get("metadata", {}).get("name", ""))[:300]
        raise invalid(
            kind.name, name, f"it does not have the form of its kind: {error!r}"
        ) from None


def alone(kind: Kind, record: Record) -> bytes:
    """An object as it is answered by itself."""
    return kind.head + record.raw[1:]


def list_body(kind: Kind, page: Page) -> bytes:
    """A list as it is answered."""
    meta: dict[str, Any] = {"resourceVersion": str(page.version)}
    if page.token:
        meta |= {"continue": page.token, "remainingItemCount": page.remaining}
    return b'{"kind":"%bList","apiVersion":"%b","metadata":%b,"items":[%b]}' % (
        kind.name.encode(),
        kind.api_version.encode(),
        encode(meta),
        b",".join([record.raw for record in page.records]),
    )


def check_preconditions(kind: Kind, record: Record, wanted: Mapping[str, Any]) -> None:
    """Compare a request's preconditions with the object.

    Raises:
        Refusal: 409, naming the first that does not hold.
    """
    pairs: Iterable[tuple[str, str, str]] = (
        ("UID", str(wanted.get("uid") or ""), record.uid),
        ("ResourceVersion", str(wanted.get("resourceVersion") or ""), str(record.version)),
    )
    for name, value, found in pairs:
        if value and value != found:
            raise precondition(kind.qualified, record.name, field=name, wanted=value, found=found)


def number(params: Mapping[str, str], name: str) -> int:
    """A number among the parameters, 0 if absent.

    Raises:
        Refusal: 400, it is not one.
    """
    text = params.get(name) or "0"
    if not text.isdecimal() or len(text) > 19:
        raise bad_request(f'{name}: Invalid value: "{text[:50]}": a number is expected')
    return int(text)


def not_allowed() -> Refusal:
    """405."""
    return Refusal(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
    )
