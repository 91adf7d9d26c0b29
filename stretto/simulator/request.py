"""A request as the API server sees it, whatever carried it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from stretto.simulator.answers import Refusal, bad_request
from stretto.simulator.records import Body, decode

MAX_BODY = 3 * 1024 * 1024
"""Bytes of a request, as kube-apiserver limits them."""


class Clock(Protocol):
    """Tells the time as RFC 3339 text, in whole seconds, or what it will be in ``later_s``."""

    def __call__(self, later_s: int = 0) -> str:  # noqa: D102
        ...


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

    def decoded(self) -> Body:
        """The body as an object. Raises :class:`Refusal`: 400."""
        try:
            body = decode(self.body)
        except (ValueError, RecursionError) as error:
            raise bad_request(f"couldn't get version/kind; json parse error: {error}") from None
        if body is None:
            return {}
        if not isinstance(body, dict) or not isinstance(body.get("metadata", {}), dict):
            raise bad_request(
                "couldn't get version/kind; json parse error: the body is not an object with "
                "metadata"
            )
        return body


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
