"""The calls a scheduler makes, each answered by what it proves.

No call retries: a caller that sends again knows why it may. One that was put off (429) and comes
again too early is answered here (:mod:`stretto.kube.put_off`), but for Leases: losing one costs the
API server more than the request. A call that times out or loses its
connection raises :class:`~stretto.kube.errors.KubeUnreachable` (``bind`` answers UNKNOWN), and one
that is cancelled is as unknown as that: whoever cancels a task that writes has to read before it
acts.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode

import msgspec

from stretto.kube.answers import BindAnswer, BindKind, Response, classify_bind
from stretto.kube.config import KubeConfig
from stretto.kube.errors import KubeRefused, KubeUnreachable
from stretto.kube.patience import Patience
from stretto.kube.put_off import PutOff
from stretto.kube.transport import JSON, Transport
from stretto.kube.usage import Usage, resource_of, verb_of

STRATEGIC_MERGE = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
PAGE = 500
"""Objects a list page: 1.7 MB of pods, decoded in about 3 ms."""
_SAFE_NAME = re.compile(r"[A-Za-z0-9.\-]+\Z")
_encode = msgspec.json.Encoder().encode


class _Preconditions(msgspec.Struct, gc=False, rename="camel"):
    name: str
    namespace: str
    uid: str
    resource_version: str


class _Target(msgspec.Struct, gc=False):
    name: str
    kind: str = "Node"


class _Binding(msgspec.Struct, gc=False, rename="camel"):
    metadata: _Preconditions
    target: _Target
    api_version: str = "v1"
    kind: str = "Binding"


class KubeClient:
    """One API server, through a pool of connections. Use as an async context manager."""

    def __init__(
        self,
        config: KubeConfig,
        *,
        connections: int = 64,
        timeout_s: float = 10.0,
        list_timeout_s: float = 60.0,
        trust_env: bool = False,
    ) -> None:
        self._transport = Transport(
            config, connections=connections, timeout_s=timeout_s, trust_env=trust_env
        )
        self._patience = Patience(first_s=timeout_s, longest_s=list_timeout_s)
        self._put_off = PutOff(lambda: asyncio.get_running_loop().time())
        self.binds_in_flight = 0
        """Binding POSTs that have no answer yet; the slower lane yields to them."""

    async def __aenter__(self) -> Self:
        self._transport.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._transport.close()

    @property
    def usage(self) -> Usage:
        """Requests so far by verb, resource and answer."""
        return self._transport.usage

    @property
    def url(self) -> str:
        """The API server's address."""
        return self._transport.config.url

    # --- reads ---------------------------------------------------------------------------------

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Response:
        """A quorum read, unless ``params`` names a ``resourceVersion``."""
        return await self._call("GET", path, params=params)

    async def get_pod(self, namespace: str, name: str) -> Response:
        """The pod as it is now, never from a cache that may be stale."""
        return await self._call("GET", pod_path(namespace, name))

    async def list_page(
        self, path: str, params: Mapping[str, str], *, limit: int = PAGE, continue_token: str = ""
    ) -> Response:
        """One page of a consistent list; the pages of one chain of tokens show one version.

        How long it may take: :mod:`stretto.kube.patience`.
        """
        asked = dict(params)
        if limit:
            asked["limit"] = str(limit)
        if continue_token:
            asked["continue"] = continue_token
        name, began = f"{path}?{urlencode(params)}", time.monotonic()
        patience_s = self._patience.of(name, now=began)
        try:
            answer = await self._call("GET", path, params=asked, timeout_s=patience_s)
        except KubeUnreachable:
            self._patience.failed(name, began=began, now=time.monotonic())
            raise
        self._patience.answered(name, began=began, now=time.monotonic())
        return answer

    def watch(
        self, path: str, params: Mapping[str, str], *, silence_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The pieces of a watch as they arrive; see :meth:`Transport.stream` for how it ends."""
        resource, _ = resource_of(path)
        return self._transport.stream(
            path, {**params, "watch": "1"}, counted=("watch", resource), silence_s=silence_s
        )

    async def check(self) -> str:
        """The server's version, asked for at start to find out whether it can be used at all.

        Raises :class:`KubeUnreachable` or :class:`KubeRefused` with one line for the user.
        """
        try:
            answer = await self._call("GET", "/version")
        except KubeUnreachable as error:
            if not error.sent:
                raise
            advice = "check that a Kubernetes API server listens there, and by http or https"
            raise KubeUnreachable(f"{error}; {advice}") from None
        if not answer.ok:
            origin = self._transport.config.origin
            wrong = "credentials" if answer.status in (401, 403) else "address"
            raise KubeRefused(
                f"the API server at {self.url} answered {answer.status} ({answer.text}); "
                f"check the {wrong} in {origin}",
                status=answer.status,
            )
        try:
            return str(msgspec.json.decode(answer.body)["gitVersion"])
        except (msgspec.DecodeError, KeyError, TypeError) as error:
            raise KubeRefused(
                f"what answers at {self.url} is not a Kubernetes API server; check the address",
                status=answer.status,
            ) from error

    # --- writes --------------------------------------------------------------------------------

    async def post(self, path: str, body: bytes | Mapping[str, Any]) -> Response:
        """Create an object, or call a subresource such as an eviction."""
        return await self._call("POST", path, body=body)

    async def put(self, path: str, body: bytes | Mapping[str, Any]) -> Response:
        """Replace an object; its ``metadata.resourceVersion`` is the precondition."""
        return await self._call("PUT", path, body=body)

    async def patch(
        self, path: str, body: bytes | Mapping[str, Any], *, content_type: str = STRATEGIC_MERGE
    ) -> Response:
        """Patch an object or a subresource."""
        return await self._call("PATCH", path, body=body, content_type=content_type)

    async def delete(self, path: str, body: bytes | Mapping[str, Any] | None = None) -> Response:
        """Delete an object; ``body`` may be DeleteOptions."""
        return await self._call("DELETE", path, body=body)

    async def patch_pod_status(
        self, namespace: str, name: str, patch: Mapping[str, Any]
    ) -> Response:
        """Strategic-merge patch of ``pods/status``; ``metadata.resourceVersion`` in it is a must.

        Without that precondition, a patch that lands after the bind would set PodScheduled=False on
        a bound pod. 409: the pod changed; drop the patch and decide anew. 422: ``metadata.uid`` is
        another pod's.
        """
        assert patch["metadata"]["resourceVersion"], "a status patch without its precondition"
        return await self._call("PATCH", pod_path(namespace, name) + "/status", body=patch)

    async def create_events(self, events: Sequence[tuple[str, bytes]]) -> list[Response]:
        """Create ``events.k8s.io/v1`` Events, given with their namespaces, in a row: the answers in
        their order. Those that got none are unknown; to send them again is safe, as their names
        are taken then (409).

        Raises :class:`KubeUnreachable` when none could be sent.
        """
        return await self._transport.send_row(
            [f"/apis/events.k8s.io/v1/namespaces/{path_part(where)}/events" for where, _ in events],
            [body for _, body in events],
            counted=("create", "events"),
        )

    async def evict(self, namespace: str, name: str, *, uid: str) -> Response:
        """Ask for the eviction of the pod that has this uid. 429: its disruption budget is
        spent."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        return await self._call("POST", pod_path(namespace, name) + "/eviction", body=body)

    async def bind(
        self, *, namespace: str, name: str, uid: str, resource_version: int | str, node: str
    ) -> BindAnswer:
        """Bind the pod that has this uid, as it was at this version, to a node.

        Raises nothing but cancellation, after which the outcome is unknown. The API server does not
        check that the node exists.
        """
        if not (namespace and name and uid and node and resource_version):
            # A malformed Binding would be answered 500, which counts as unknown.
            return BindAnswer(
                kind=BindKind.INVALID, status=0, text="a field of the binding is empty"
            )
        body = _encode(
            _Binding(
                metadata=_Preconditions(
                    name=name, namespace=namespace, uid=uid, resource_version=str(resource_version)
                ),
                target=_Target(name=node),
            )
        )
        path = pod_path(namespace, name) + "/binding"
        self.binds_in_flight += 1
        try:
            answer = await self._transport.send(
                "POST", path, body, counted=("create", "pods/binding")
            )
        except KubeUnreachable as error:
            return BindAnswer(kind=BindKind.UNKNOWN, status=0, text=str(error), sent=error.sent)
        finally:
            self.binds_in_flight -= 1
        return classify_bind(answer)

    async def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | Mapping[str, Any] | None = None,
        content_type: str = "",
        timeout_s: float | None = None,
    ) -> Response:
        resource, one_object = resource_of(path)
        # What is created in one folder are different requests, of which the path does not tell.
        may_be_early = resource != "leases" and (one_object or method != "POST")
        if may_be_early:
            early = self._put_off.answer(method, path)
            if early is not None:
                return early
        answer = await self._transport.send(
            method,
            path,
            body if body is None or isinstance(body, bytes) else _encode(body),
            counted=(verb_of(method, one_object=one_object, watch=False), resource),
            params=params,
            content_type=content_type or (STRATEGIC_MERGE if method == "PATCH" else JSON),
            timeout_s=timeout_s,
        )
        if may_be_early:
            self._put_off.note(method, path, answer)
        return answer


def path_part(text: str) -> str:
    """A name as a part of a path. Valid names pass as they are; anything else is
    percent-encoded."""
    return text if _SAFE_NAME.match(text) else quote(text, safe="")


def pod_path(namespace: str, name: str) -> str:
    """The path of a pod."""
    return f"/api/v1/namespaces/{path_part(namespace)}/pods/{path_part(name)}"
