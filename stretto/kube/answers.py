"""What an answer of the API server proves.

The table for bindings is exhaustive: whatever it does not list is UNKNOWN, and unknown is never
taken for "not done". All refusals of a bind arrive as 409 and differ by text only; the text serves
metrics and logs, the decision is taken on a fresh read of the pod.
"""

from __future__ import annotations

import enum

import msgspec

DEFAULT_RETRY_AFTER_S = 1.0
"""For a 429 that names no time, as client-go assumes."""


class Status(msgspec.Struct, gc=False):
    """The part of ``meta/v1 Status`` that is looked at."""

    kind: str = ""
    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0


class Response(msgspec.Struct, frozen=True, gc=False):
    """An answer that arrived whole."""

    status: int
    """The HTTP status."""
    body: bytes
    retry_after: float | None = None
    """Seconds; set on 429 and on any other answer that names a time."""

    @property
    def ok(self) -> bool:
        """Whether the request was carried out."""
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """One line for logs: the message of a ``Status``, else the beginning of the body."""
        status = decode_status(self.body)
        if status is not None and status.message:
            return one_line(status.message)
        return one_line(self.body[:300].decode("utf-8", "replace"))


class BindKind(enum.IntEnum):
    """What the answer to a binding POST proves."""

    BOUND = 1
    """201: carried out."""
    GONE = 2
    """404: the pod does not exist; not carried out."""
    CONFLICT = 3
    """409: not carried out by this request, maybe by an earlier copy of it. A read decides."""
    THROTTLED = 4
    """429: not carried out. Wait ``retry_after`` seconds, then send the same again."""
    UNAUTHORIZED = 5
    """401 even with a token read afresh: not carried out."""
    FORBIDDEN = 6
    """403: not carried out; the role lacks the verb, or the namespace is closing. Stop binding."""
    INVALID = 7
    """400, 413, 415, 422, or refused before sending (status 0): not carried out, a bug."""
    UNKNOWN = 8
    """Anything else: may or may not have been carried out. Resolve."""


class BindRefusal(enum.IntEnum):
    """Why a bind was answered 409; told apart by text, for metrics only."""

    NONE = 0
    RESOURCE_VERSION = 1
    UID = 2
    ASSIGNED = 3
    GATED = 4
    DELETING = 5
    OTHER = 6


class BindAnswer(msgspec.Struct, frozen=True, gc=False):
    """The answer to one binding POST."""

    kind: BindKind
    status: int
    """The HTTP status; 0 if none arrived."""
    text: str = ""
    retry_after: float | None = None
    """Seconds; set if THROTTLED."""
    refusal: BindRefusal = BindRefusal.NONE
    sent: bool = True
    """UNKNOWN only: False if the connection could not be opened, so that nothing was carried
    out."""


_BOUND = BindAnswer(kind=BindKind.BOUND, status=201)
_BY_STATUS = {
    401: BindKind.UNAUTHORIZED,
    403: BindKind.FORBIDDEN,
    409: BindKind.CONFLICT,
    429: BindKind.THROTTLED,
    400: BindKind.INVALID,
    413: BindKind.INVALID,
    415: BindKind.INVALID,
    422: BindKind.INVALID,
}
_REFUSAL_TEXTS = (
    ("ResourceVersion in precondition", BindRefusal.RESOURCE_VERSION),
    ("UID in precondition", BindRefusal.UID),
    ("already assigned to node", BindRefusal.ASSIGNED),
    ("schedulingGates", BindRefusal.GATED),
    ("being deleted", BindRefusal.DELETING),
    ("the object has been modified", BindRefusal.RESOURCE_VERSION),
)
_status_decoder = msgspec.json.Decoder(Status)


def decode_status(body: bytes) -> Status | None:
    """The ``Status`` in a body, or None if it is something else."""
    try:
        status = _status_decoder.decode(body)
    except msgspec.DecodeError:
        return None
    return status if status.kind == "Status" else None


def one_line(text: str, *, limit: int = 400) -> str:
    """Text of foreign origin, made fit for one line of a log."""
    return " ".join(text.split())[:limit]


def classify_bind(response: Response) -> BindAnswer:
    """What the answer to ``POST …/binding`` proves."""
    status = decode_status(response.body)
    if response.status == 201 and status is not None and status.status == "Success":
        return _BOUND
    kind = _BY_STATUS.get(response.status, BindKind.UNKNOWN)
    if response.status == 404 and status is not None and status.reason == "NotFound":
        # Only the API server's own 404 speaks about the pod; one from a proxy in between proves
        # nothing.
        kind = BindKind.GONE
    throttled = kind is BindKind.THROTTLED
    wait = DEFAULT_RETRY_AFTER_S if response.retry_after is None else response.retry_after
    return BindAnswer(
        kind=kind,
        status=response.status,
        text=response.text,
        retry_after=wait if throttled else None,
        refusal=refusal_of(response.text) if kind is BindKind.CONFLICT else BindRefusal.NONE,
    )


def refusal_of(text: str) -> BindRefusal:
    """Which of the known texts a 409 carries."""
    for part, refusal in _REFUSAL_TEXTS:
        if part in text:
            return refusal
    return BindRefusal.OTHER
