"""Requests that the API server has put off (429 with Retry-After).

Whoever gets such an answer waits as it sees fit, some of them for less than they were asked to. The
same request is not sent again before its time: it is answered as before, with the time that is
left. Nothing waits in here: between the moment at which a Binder looks at its Lease and the moment
at which it writes no time may pass.

The same is what has the same method and path. Two patches of one pod's status by two writers share
a put-off, whatever their bodies are, and so do the pages of a list. That is meant: the API server
puts off a user, not a body, and of the two it would have refused either; each writer takes the
answer as it takes one from the server, and comes again. What is created in one folder (pods, claims
and Events, which have a path in common with all others of their namespace) never comes here, and so
no Event waits for another; nor do Leases. What keeps whole kinds of requests apart is the API
server's flow control (deploy/).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from stretto.kube.answers import Response

MOST = 1_024
"""Requests remembered before those whose time has come are looked for."""


class PutOff:
    """By method and path."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[tuple[str, str], tuple[float, Response]] = {}

    def answer(self, method: str, path: str) -> Response | None:
        """The answer to a request that is too early; None: send it."""
        if not self._until:
            return None
        found = self._until.get((method, path))
        if found is None:
            return None
        left_s = found[0] - self._clock()
        if left_s > 0:
            return msgspec.structs.replace(found[1], retry_after=left_s)
        del self._until[method, path]
        return None

    def note(self, method: str, path: str, answer: Response) -> None:
        """An answer has come."""
        if answer.status != 429 or not answer.retry_after:
            return
        now = self._clock()
        if len(self._until) >= MOST:
            self._until = {key: put for key, put in self._until.items() if put[0] > now}
        self._until[method, path] = (now + answer.retry_after, answer)
