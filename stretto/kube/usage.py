"""How many requests were sent, by verb, resource and answer: what a scheduler costs its API
server."""

from __future__ import annotations

from typing import NamedTuple

DENIED = 403
READS = ("list", "watch")
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Call(NamedTuple):
    """What is counted together. All three are closed sets, fit for metric labels."""

    verb: str
    """As in RBAC: get, list, watch, create, update, patch, delete."""
    resource: str
    """Plural, with the subresource: ``pods/binding``."""
    code: int
    """The HTTP status; 0 if no answer arrived."""


class Usage:
    """A counter per :class:`Call`; monotone, read by metrics and tests."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str, int], int] = {}
        self._denied: dict[tuple[str, str], None] = {}

    def add(self, verb: str, resource: str, code: int) -> None:
        """Count one request."""
        key = (verb, resource, code)
        self._calls[key] = self._calls.get(key, 0) + 1
        if verb not in READS:  # a refused write may say something of the object
            return
        if code == DENIED:
            self._denied[verb, resource] = None
        elif code and self._denied:
            self._denied.pop((verb, resource), None)

    def denied(self) -> list[tuple[str, str]]:
        """(verb, resource) of lists and watches that the role has no right to, by the last answer
        to each."""
        return list(self._denied)

    def snapshot(self) -> dict[Call, int]:
        """The counts so far."""
        return {Call(*key): count for key, count in self._calls.items()}

    def total(self, verb: str = "", resource: str = "") -> int:
        """How many requests match; an empty word matches all."""
        return sum(
            count
            for call, count in self.snapshot().items()
            if verb in ("", call.verb) and resource in ("", call.resource)
        )


def resource_of(path: str) -> tuple[str, bool]:
    """The resource a path names, and whether it names one object: ``/api/v1/nodes/n1`` → ("nodes",
    True)."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    if parts[0] not in ("api", "apis") or not rest:
        return "/" + parts[0], True
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    if len(rest) > 2:
        return f"{rest[0]}/{rest[2]}", True
    return rest[0], len(rest) == 2


def verb_of(method: str, *, one_object: bool, watch: bool) -> str:
    """The RBAC verb of a request."""
    if method != "GET":
        return _VERBS[method]
    if watch:
        return "watch"
    return "get" if one_object else "list"


def right_to(path: str) -> str:
    """What to do about a list or a watch that was answered 403."""
    return (
        f"give the role of this process list and watch of {resource_of(path)[0]} "
        "(deploy/base/rbac-*.yaml); it is tried again"
    )
