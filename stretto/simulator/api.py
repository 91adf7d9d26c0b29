"""The API server's verbs on objects of any kind: a plain synchronous class.

What is special about pods is in :mod:`stretto.simulator.pods`; HTTP is in
:mod:`stretto.simulator.http_server`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from stretto.simulator.answers import (
    Answer,
    Refusal,
    already_exists,
    bad_request,
    delete_precondition,
    invalid,
    modified,
    not_found,
    precondition,
)
from stretto.simulator.field_types import Unreadable, typed
from stretto.simulator.identity import Identities
from stretto.simulator.kinds import Kind, Route, kind_of, no_such_path, route_of
from stretto.simulator.object_rules import check_rules
from stretto.simulator.patches import patched
from stretto.simulator.pod_defaults import (
    SYSTEM_PRIORITIES,
    set_pod_defaults,
)
from stretto.simulator.pods import ENDED, PodVerbs
from stretto.simulator.records import RECORDS, Body, PodRecord, Record, encode
from stretto.simulator.request import Clock, Request, not_allowed, number
from stretto.simulator.selectors import selects
from stretto.simulator.store import Page, Store, Versions, Watch

VERSION = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.2+stretto-simulator",
    "platform": "linux/amd64",
}
DISCOVERED = {
    "/apis/resource.k8s.io/v1": (
        "deviceclasses", "devicetaintrules", "resourceclaims", "resourceclaimtemplates",
        "resourceslices",
    ),
    "/apis/scheduling.k8s.io/v1beta1": ("podgroups",),
}  # fmt: skip
"""Optional APIs that are served, by the path that lists their resources."""
DEFINITIONS = kind_of("apiextensions.k8s.io", "v1", "customresourcedefinitions")
NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_STATUS_KEPT = frozenset({"jobs", "nodes", "podgroups", "pods"})
"""Kinds whose status changes through their status subresource only."""
_MADE_BY_UPDATE = frozenset({"leases"})
"""Kinds of which a PUT makes an object that does not exist."""


class ApiServer:
    """State and verbs of a cluster; time and randomness are passed in."""

    def __init__(
        self,
        *,
        now: Clock,
        rng: random.Random,
        watch_window: int = 200_000,
        event_window: int = 20_000,
    ) -> None:
        self.now = now
        self._window = watch_window
        self._event_window = event_window
        self._versions = Versions()
        self._stores: dict[tuple[str, str], Store] = {}
        self._identities = Identities(
            rng, now=now, taken=lambda kind, *key: self.store(kind).get(*key) is not None
        )
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
        of_group = request.path.startswith("/apis/") and request.path.count("/") == 3
        if of_group or not request.path.startswith(("/api/", "/apis/")):
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
        if found := [*DISCOVERED.get(request.path, ()), *self._defined(request.path)]:
            resources = [{"name": name} for name in found]
            return Answer(200, encode({"kind": "APIResourceList", "resources": resources}))
        raise no_such_path()

    def _defined(self, path: str) -> Iterator[str]:
        """Resources of a group's version that a CustomResourceDefinition names."""
        for record in self.store(DEFINITIONS):
            spec = record.body()["spec"]
            for version in spec["versions"]:
                if path == f"/apis/{spec['group']}/{version['name']}":
                    yield spec["names"]["plural"]

    def _on_collection(self, request: Request, route: Route) -> Answer:
        if request.method == "GET":
            return Answer(200, self._list(request, route))
        if request.method == "POST":
            if route.kind.namespaced not in (None, bool(route.namespace)):
                raise not_allowed()
            record = self.create(route.kind, request.decoded(), namespace=route.namespace)
            return Answer(201, alone(route.kind, record))
        if request.method == "DELETE":
            return self._delete_collection(request, route)
        raise not_allowed()

    def _on_object(self, request: Request, route: Route) -> Answer:
        record = self.store(route.kind).get(route.namespace, route.name)
        if record is None:
            if request.method == "PUT" and route.kind.resource in _MADE_BY_UPDATE:
                return self._make_by_update(route, request.decoded())
            raise not_found(route.kind.qualified, route.name)
        if request.method == "GET":
            return Answer(200, alone(route.kind, record))
        if request.method == "DELETE":
            options = request.decoded() if request.body else {}
            return Answer(200, self.delete(route.kind, record, options))
        if request.method == "PATCH":
            body = patched(
                record.body(),
                request.body,
                request.content_type.partition(";")[0],
                kind=route.kind.name,
                name=record.name,
            )
            try:
                changed = self.update(route, record, body, by_patch=True)
            except Unreadable as refusal:
                raise refusal.of_patch from None
        elif request.method == "PUT":
            changed = self.update(route, record, request.decoded(), by_patch=False)
        else:
            raise not_allowed()
        return Answer(200, alone(route.kind, changed))

    def _make_by_update(self, route: Route, body: Body) -> Answer:
        kind, uid = route.kind, body.get("metadata", {}).get("uid")
        if uid:  # it means one that is gone
            raise precondition(
                kind.qualified, route.namespace, route.name, field="UID", wanted=uid, found=""
            )
        return Answer(201, alone(kind, self.create(kind, body, namespace=route.namespace)))

    # --- reads ---------------------------------------------------------------------------------

    def store(self, kind: Kind) -> Store:
        """The objects of a kind; versions of one group share them."""
        key = (kind.group, kind.resource)
        if key not in self._stores:
            self._stores[key] = Store(kind, self._versions, window=self._window)
        return self._stores[key]

    def _list(self, request: Request, route: Route) -> bytes:
        params, store = request.params, self.store(route.kind)
        limit = number(params, "limit")
        if token := params.get("continue", ""):
            page = store.next_page(token, limit=limit)
        else:
            predicate = selects(params.get("fieldSelector", ""), params.get("labelSelector", ""))
            exact = params.get("resourceVersionMatch") == "Exact"
            page = store.first_page(
                namespace=route.namespace, predicate=predicate, limit=limit,
                version=number(params, "resourceVersion") if exact else 0,
            )  # fmt: skip
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
        fields = typed(kind, body)
        meta = body["metadata"] = body.get("metadata") or {}
        if meta.get("resourceVersion"):
            raise Refusal(500, "", "resourceVersion should not be set on objects to be created")
        self._identities.give(kind, meta, namespace)
        if namespace and not self._namespace_exists(namespace):
            raise not_found("namespaces", namespace)
        if kind.resource == "pods":
            set_pod_defaults(body, priorities=self._priority, now=self.now())
        elif kind.resource == "nodes":
            body.setdefault("spec", {})
        elif kind.resource == "namespaces":
            body.setdefault("spec", {"finalizers": ["kubernetes"]})
            body.setdefault("status", {"phase": "Active"})
        check_rules(kind, fields, name=meta["name"])
        store = self.store(kind)
        if store.get(namespace, meta["name"]) is not None:
            raise already_exists(kind.qualified, meta["name"])
        record = store.create(new_record(kind, body))
        if kind.resource == "events" and len(store) > self._event_window:
            store.forget_oldest()
        return record

    def _priority(self, name: str) -> tuple[int, str] | None:
        """See :data:`~stretto.simulator.pod_defaults.Priorities`."""
        if name in SYSTEM_PRIORITIES:
            return SYSTEM_PRIORITIES[name], "PreemptLowerPriority"
        classes = self.store(kind_of("scheduling.k8s.io", "v1", "priorityclasses"))
        if name:
            record = classes.get("", name)
        else:
            record = next((one for one in classes if one.body().get("globalDefault")), None)
        if record is None:
            return None if name else (0, "PreemptLowerPriority")
        body = record.body()
        return int(body.get("value", 0)), str(body.get("preemptionPolicy", "PreemptLowerPriority"))

    def _namespace_exists(self, name: str) -> bool:
        return self._stores["", "namespaces"].get("", name) is not None

    def update(self, route: Route, old: Record, body: Body, *, by_patch: bool) -> Record:
        """Put a changed object in the place of ``old``; the same object leaves its version.

        Raises:
            Refusal: 409 or 422.
        """
        fields = typed(route.kind, body)
        kind, meta = route.kind, body.setdefault("metadata", {})
        if meta.get("name", old.name) != old.name:
            raise bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL "
                f"({old.name})"
            )
        version = str(meta.get("resourceVersion") or "")
        if not version and kind.resource == "leases" and not by_patch:
            raise invalid(
                kind.qualified,
                old.name,
                "metadata.resourceVersion: Invalid value: 0: must be specified for an update",
            )
        uid = meta.get("uid") or old.uid
        if uid != old.uid and not by_patch:
            raise precondition(
                kind.qualified, old.namespace, old.name, field="UID", wanted=uid, found=old.uid
            )
        if version not in ("", str(old.version)):
            raise modified(kind.qualified, old.name)
        if uid != old.uid:
            raise invalid(
                kind.name, old.name, f'metadata.uid: Invalid value: "{uid}": field is immutable'
            )
        before = old.body()
        self._keep_fixed(route, before, body)
        if kind.resource == "pods":
            self.pods.complete_change(before, body, name=old.name)
            self.pods.check_change(before, body, name=old.name)
            if before["spec"] != body["spec"]:
                meta["generation"] = meta.get("generation", 1) + 1
        new = new_record(kind, body)
        if new.same_as(old):
            return old
        if kind.resource != "pods" or before["spec"] != body["spec"]:
            check_rules(kind, fields, name=old.name)
        if before["metadata"].get("deletionTimestamp") and self._may_go(new, meta):
            return new.at(self.store(kind).remove(old).version)
        return self.store(kind).replace(old, new)

    @staticmethod
    def _may_go(record: Record, meta: Mapping[str, Any]) -> bool:
        """Whether nothing holds a deleted object any more: no finalizer, and no kubelet."""
        return not meta.get("finalizers") and not (
            isinstance(record, PodRecord) and record.node_name and record.phase not in ENDED
        )

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
        meta["deletionTimestamp"] = self.now(grace_s)
        if "generation" in meta:
            meta["generation"] += 1
        meta["deletionGracePeriodSeconds"] = grace_s
        return self.store(kind).replace(record, new_record(kind, body))

    def _delete_collection(self, request: Request, route: Route) -> Answer:
        options = request.decoded() if request.body else {}
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

    def forget_watched(self) -> None:
        """Answer 410 to watches of the past, as a server that was started again."""
        for store in self._stores.values():
            store.forget_watched()

    def compact(self) -> None:
        """Forget all past changes and lists under way: what asks for them gets 410."""
        self._versions.compacted = self._versions.current
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
    """Compare a deletion's preconditions with the object.

    Raises:
        Refusal: 409, naming the first that does not hold.
    """
    pairs = (
        ("UID", str(wanted.get("uid") or ""), record.uid),
        ("ResourceVersion", str(wanted.get("resourceVersion") or ""), str(record.version)),
    )
    for name, value, found in pairs:
        if value and value != found:
            raise delete_precondition(kind.name, record.name, field=name, wanted=value, found=found)
