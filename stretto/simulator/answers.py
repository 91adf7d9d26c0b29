"""Answers as an API server words them."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

_encode = msgspec.json.Encoder().encode


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    body: bytes
    retry_after_s: int | None = None
    """Seconds for the Retry-After header, if it has one."""


class Refusal(Exception):  # noqa: N818 - a verdict, not a defect
    """A request that is answered with a failure Status."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.details = details
        self.retry_after_s = retry_after_s

    @property
    def status(self) -> dict[str, Any]:
        """The Status object."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
        }
        if self.details:
            body["details"] = self.details
        body["code"] = self.code
        return body

    @property
    def answer(self) -> Answer:
        """The whole answer."""
        return Answer(self.code, _encode(self.status), self.retry_after_s)


SUCCESS_CREATED = Answer(
    201,
    b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}',
)
"""What a binding and an eviction are answered with."""


def _details(qualified: str, name: str) -> dict[str, Any]:
    resource, _, group = qualified.partition(".")
    return {"name": name, **({"group": group} if group else {}), "kind": resource}


def not_found(qualified: str, name: str) -> Refusal:
    """404: there is no such object."""
    return Refusal(
        404, "NotFound", f'{qualified} "{name}" not found', details=_details(qualified, name)
    )


def already_exists(qualified: str, name: str) -> Refusal:
    """409: the name is taken."""
    return Refusal(
        409,
        "AlreadyExists",
        f'{qualified} "{name}" already exists',
        details=_details(qualified, name),
    )


def conflict(qualified: str, name: str, why: str) -> Refusal:
    """409: the object is not as the request supposes."""
    return Refusal(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {qualified} "{name}": {why}',
        details=_details(qualified, name),
    )


def modified(qualified: str, name: str) -> Refusal:
    """409: the request knows an older version."""
    return conflict(
        qualified,
        name,
        "the object has been modified; please apply your changes to the latest version and try "
        "again",
    )


def precondition(
    qualified: str, namespace: str, name: str, *, field: str, wanted: str, found: str
) -> Refusal:
    """409: a precondition of a write on the uid or the resourceVersion does not hold."""
    key = "/".join(part for part in (qualified.partition(".")[0], namespace, name) if part)
    return conflict(
        qualified,
        name,
        f"StorageError: invalid object, Code: 4, Key: /registry/{key}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: {field} in precondition: {wanted}, "
        f"{field} in object meta: {found}",
    )


def delete_precondition(kind: str, name: str, *, field: str, wanted: str, found: str) -> Refusal:
    """409: a precondition of a deletion does not hold."""
    perhaps = "deleted and then recreated" if field == "UID" else "modified"
    return conflict(
        kind,
        name,
        f"the {field} in the precondition ({wanted}) does not match the {field} in record "
        f"({found}). The object might have been {perhaps}",
    )


def invalid(kind: str, name: str, why: str) -> Refusal:
    """422: the object would break a rule."""
    return Refusal(
        422,
        "Invalid",
        f'{kind} "{name}" is invalid: {why}',
        details={"name": name, "kind": kind},
    )


def bad_request(why: str) -> Refusal:
    """400: the request cannot be read."""
    return Refusal(400, "BadRequest", why)


def expired(why: str) -> Refusal:
    """410: what is asked for is too old."""
    return Refusal(410, "Expired", why)


def too_large(version: int, current: int) -> Refusal:
    """504: a version is asked for that is yet to come."""
    why = f"Timeout: Too large resource version: {version}, current: {current}"
    return Refusal(504, "Timeout", why)
