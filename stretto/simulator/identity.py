"""Names, uids and creation times of new objects."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

from stretto.simulator.answers import bad_request, invalid
from stretto.simulator.kinds import Kind
from stretto.simulator.request import Clock

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\Z")
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"

Taken = Callable[[Kind, str, str], bool]
"""Whether an object of that kind, namespace and name exists."""


class Identities:
    """Makes objects distinct. Time and randomness are passed in."""

    def __init__(self, rng: random.Random, *, now: Clock, taken: Taken) -> None:
        self._rng = rng
        self._now = now
        self._taken = taken

    def give(self, kind: Kind, meta: dict[str, Any], namespace: str) -> None:
        """Complete the metadata of a new object in place.

        Raises:
            Refusal: 400 or 422.
        """
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
        if meta.get("namespace", namespace) != namespace and kind.namespaced is not False:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the "
                "request"
            )
        if namespace:
            meta["namespace"] = namespace
        else:
            meta.pop("namespace", None)
        bits = f"{self._rng.getrandbits(128):032x}"
        meta["uid"] = f"{bits[:8]}-{bits[8:12]}-4{bits[13:16]}-a{bits[17:20]}-{bits[20:]}"
        meta["creationTimestamp"] = self._now()
        meta.pop("deletionTimestamp", None)

    def _generated(self, kind: Kind, prefix: str, namespace: str) -> str:
        """A free name; a taken one is tried again, as the real server does."""
        while True:
            name = prefix + "".join(self._rng.choices(_SUFFIX, k=5))
            if not self._taken(kind, namespace, name):
                return name
