"""A whole consistent list, for those who read once and do not watch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from stretto.kube.client import KubeClient
from stretto.kube.errors import KubeRefused
from stretto.kube.readers import KubeObject, Reader, Unreadable

K = TypeVar("K", bound=KubeObject)
PAGE = 500


async def read_all(
    client: KubeClient, path: str, *, kind: type[K], params: Mapping[str, str] | None = None
) -> list[K]:
    """All objects of a kind, from one consistent chain of pages.

    Raises:
        KubeUnreachable, KubeRefused: the list could not be read to its end.
    """
    reader = Reader(kind)
    found: list[K] = []
    token = ""
    while True:
        answer = await client.list_page(path, params or {}, limit=PAGE, continue_token=token)
        if not answer.ok:
            raise KubeRefused(f"listing {path}: {answer.text}", status=answer.status)
        page = reader.page(answer.body)
        found += [item for item in page.items if not isinstance(item, Unreadable)]
        token = page.continue_token
        if not token:
            return found
