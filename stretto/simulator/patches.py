"""Patches: strategic merge, JSON merge, and JSON patch."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from stretto.simulator.answers import Refusal, bad_request, invalid
from stretto.simulator.records import Body, decode

_MERGE_KEYS = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "hostIPs": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "ports": "containerPort",
    "reservedFor": "uid",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""Lists that are merged item by item, by the key named here. All others are replaced whole."""
_MERGED_SETS = frozenset({"finalizers"})
"""Lists of plain values that are joined."""


def patched(body: Body, patch: bytes, content_type: str, *, kind: str, name: str) -> Body:
    """The object with a patch applied; ``body`` may be changed.

    Raises:
        Refusal: 400, 415 or 422.
    """
    try:
        change = decode(patch)
    except ValueError as error:
        raise bad_request(f"the patch is not JSON: {error}") from None
    if content_type == "application/json-patch+json":
        return _json_patched(body, change, kind=kind, name=name)
    if not isinstance(change, dict):
        raise bad_request("the patch is not an object")
    if content_type == "application/merge-patch+json":
        return _merged(body, change)
    if content_type == "application/strategic-merge-patch+json":
        return strategic_merge(body, change)
    raise Refusal(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in an unknown format - {content_type!r}; accepted are "
        "application/json-patch+json, application/merge-patch+json, "
        "application/strategic-merge-patch+json",
    )


def _merged(old: Any, patch: Body) -> Body:
    """RFC 7386."""
    out = old if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        elif isinstance(value, dict):
            out[key] = _merged(out.get(key), value)
        else:
            out[key] = value
    return out


def strategic_merge(old: Body, patch: Body) -> Body:
    """Merge as Kubernetes does for its own types: some lists item by item."""
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            old[field] = [item for item in old.get(field) or [] if item not in value]
        elif key.startswith("$"):
            continue  # $setElementOrder and $retainKeys: order is kept as it comes
        elif value is None:
            old.pop(key, None)
        elif isinstance(value, dict):
            before = old.get(key)
            old[key] = strategic_merge(before if isinstance(before, dict) else {}, value)
        elif isinstance(value, list) and key in _MERGE_KEYS:
            old[key] = _merged_list(old.get(key) or [], value, by=_MERGE_KEYS[key])
        elif isinstance(value, list) and key in _MERGED_SETS:
            before = old.get(key) or []
            old[key] = before + [item for item in value if item not in before]
        else:
            old[key] = value
    return old


def _merged_list(old: list[Any], patch: list[Any], *, by: str) -> list[Any]:
    if not all(isinstance(item, dict) for item in (*old, *patch)):
        return patch
    out = list(old)
    for item in patch:
        if item.get("$patch") == "replace":
            return [other for other in patch if "$patch" not in other]
        place = next((k for k, was in enumerate(out) if was.get(by) == item.get(by)), None)
        if item.get("$patch") == "delete":
            if place is not None:
                del out[place]
        elif place is None:
            out.append(strategic_merge({}, item))
        else:
            out[place] = strategic_merge(out[place], item)
    return out


def _json_patched(body: Body, steps: Any, *, kind: str, name: str) -> Body:
    """RFC 6902, whole or not at all."""
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise bad_request("a JSON patch is a list of objects")
    out = copy.deepcopy(body)
    for number, step in enumerate(steps):
        try:
            _apply_step(out, step)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise invalid(kind, name, f"step {number} of the patch: {error!r}") from None
    return out


def _apply_step(body: Any, step: Body) -> None:
    operation = step["op"]
    if operation in ("move", "copy"):
        value = copy.deepcopy(_at(body, _pointer(step["from"])))
        if operation == "move":
            _apply_step(body, {"op": "remove", "path": step["from"]})
        operation = "add"
    else:
        value = step.get("value")
    *parents, last = _pointer(step["path"])
    place = _at(body, parents)
    if operation == "test":
        if _at(place, [last]) != value:
            raise ValueError(f"{step['path']} is not {value!r}")
    elif isinstance(place, list):
        _apply_to_list(place, operation, last, value)
    elif operation == "add" or (operation == "replace" and last in place):
        place[last] = value
    elif operation == "remove":
        del place[last]
    else:
        raise ValueError(f"cannot {operation} {step['path']}")


def _apply_to_list(place: list[Any], operation: str, last: str, value: Any) -> None:
    if operation == "add":
        place.insert(len(place) if last == "-" else int(last), value)
    elif operation == "replace":
        place[int(last)] = value
    elif operation == "remove":
        del place[int(last)]
    else:
        raise ValueError(f"cannot {operation} in a list")


def _pointer(text: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _at(body: Any, path: Iterable[str]) -> Any:
    for part in path:
        body = body[int(part)] if isinstance(body, list) else body[part]
    return body
