"""The serving end: a grpc.aio server in read/write style with the limits that all processes share.

Handlers get an iterator of decoded messages and a ``send``. Bytes are decoded here and not by grpc,
so that a malformed message ends the stream of that peer with INVALID_ARGUMENT and a sentence, and
nobody else's. Messages that many peers get (Follow) may be sent as bytes that were encoded once.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn, TypeVar

import grpc
import grpc.aio

from stretto.config.addresses import split_address
from stretto.rpc.errors import RpcConfigError, RpcError, WireError
from stretto.rpc.messages import (
    FollowMessage,
    FollowRequest,
    FromShard,
    OutcomeBatch,
    OutcomeRequest,
    ProposalBatch,
    ToShard,
    VerdictBatch,
)
from stretto.rpc.security import Security, names_of
from stretto.rpc.services import FOLLOW, OUTCOMES, PROPOSE, WORK, Service

logger = logging.getLogger(__name__)
Req = TypeVar("Req")
Resp = TypeVar("Resp")
Handler = Callable[[AsyncIterator[Req], Callable[[Resp], Awaitable[None]], str], Awaitable[None]]
"""(messages of the peer, send, the peer's address). The stream ends when it returns. When the peer
goes away it is cancelled; when the peer is merely done sending, the iterator ends."""
FollowSend = Callable[[FollowMessage | bytes], Awaitable[None]]
FollowHandler = Callable[[AsyncIterator[FollowRequest], FollowSend, str], Awaitable[None]]

MESSAGE_LIMIT = 64 * 1024 * 1024
"""Bytes; a snapshot chunk of 500 nodes is below 1 MiB, so what is larger is not ours."""
REQUEST_LIMIT = 16 * 1024 * 1024
"""Bytes that a client may send in one message: a batch of units with new shapes, or the uids of
300,000 pods in doubt. Smaller than what a server sends, because a peer can make us hold it."""
STREAMS_A_CONNECTION = 8
"""A client of ours opens one stream on each."""
COMPLAINTS = 100
"""Refused (caller, conversation) pairs that are logged; each once, as clients ask every second."""
COMMON_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MESSAGE_LIMIT),
    ("grpc.max_send_message_length", MESSAGE_LIMIT),
    # A peer that vanished without a FIN is noticed within 2 + 2 s. The keepalive time-out alone
    # does nothing while the ping's own time-out, a minute by default, is longer.
    ("grpc.keepalive_time_ms", 2_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.ping_timeout_ms", 2_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    *(option for option in COMMON_OPTIONS if option[0] != "grpc.max_receive_message_length"),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
    # Off: a second process on the same port must fail, not take half of the connections.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", REQUEST_LIMIT),
    ("grpc.max_concurrent_streams", STREAMS_A_CONNECTION),
)


class RpcServer:
    """Listens on one address; register handlers with the ``add_…`` functions before
    :meth:`start`."""

    def __init__(self, listen: str, *, security: Security) -> None:
        self.listen = listen
        self.port = 0
        """The port in use, after :meth:`start`."""
        self.streams = 0
        """Streams open now."""
        self._host, self._wanted = split_address(listen)
        self._credentials = security.server_credentials(listen)
        self._refused: set[str] = set()
        self._handlers: list[grpc.GenericRpcHandler] = []
        self._server: grpc.aio.Server | None = None
        self._defect: BaseException | None = None
        self._defective = asyncio.Event()

    async def failed(self) -> NoReturn:
        """Wait for a conversation that ends with what nobody expects, and raise that: grpc would
        log it and tell the peer, and the role would go on with what is half done."""
        await self._defective.wait()
        assert self._defect is not None
        raise self._defect

    def add(self, service: Service[Req, Resp], handler: Callable[..., Awaitable[None]]) -> None:
        """Serve one of the conversations."""
        package, method = service.path.strip("/").split("/")
        if service.one_request:

            async def answer(request: bytes, context: Any) -> None:
                await self._run(service, handler, context, first=request)

            entry: Any = grpc.unary_stream_rpc_method_handler(answer)
        else:

            async def converse(_requests: Any, context: Any) -> None:
                # Read before the handler may answer and return: a client whose first message finds
                # the stream ended does not get to see the answer.
                first = await context.read()
                if first is not grpc.aio.EOF:
                    await self._run(service, handler, context, first=first)

            entry = grpc.stream_stream_rpc_method_handler(converse)
        self._handlers.append(grpc.method_handlers_generic_handler(package, {method: entry}))

    async def start(self) -> None:
        """Begin to listen.

        Raises:
            RpcConfigError: the address cannot be bound; says why and what to do.
        """
        self._probe()
        # Made no earlier: a grpc server has to be stopped in its loop even if it never started.
        server = self._server = grpc.aio.server(options=list(SERVER_OPTIONS))
        server.add_generic_rpc_handlers(tuple(self._handlers))
        address = f"[{self._host}]:{self._wanted}" if ":" in self._host else self.listen
        try:
            if self._credentials is None:
                self.port = server.add_insecure_port(address)
            else:
                self.port = server.add_secure_port(address, self._credentials)
        except RuntimeError:
            await server.stop(None)
            raise self._cannot_listen("grpc refused it") from None
        await server.start()

    async def stop(self, grace_s: float = 1.0) -> None:
        """Take no new streams, give the open ones ``grace_s`` to end, then cut them."""
        if self._server is not None:
            await self._server.stop(grace_s)

    def _probe(self) -> None:
        """Bind once by hand: grpc does not tell the reason of its failure."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((self._host, self._wanted))
        except OSError as error:
            reason = "the port is in use"
            if error.errno != errno.EADDRINUSE:
                reason = str(error.strerror or error)
            raise self._cannot_listen(reason) from None

    def _cannot_listen(self, reason: str) -> RpcConfigError:
        return RpcConfigError(
            f"cannot listen on {self.listen}: {reason}; stop the other process or choose another "
            "address with --listen"
        )

    def _refusal(self, service: Service[Req, Resp], context: Any) -> str:
        """Why this caller may not have this conversation; empty if it may. Without certificates
        (loopback, or ``--insecure``) there is nobody to tell apart."""
        if self._credentials is None:
            return ""
        names = names_of(context.auth_context())
        if names.intersection(service.callers):
            return ""
        return (
            f"{service.name} is for a certificate with the DNS name {' or '.join(service.callers)}"
            f"; this one names {', '.join(sorted(names))[:200] or 'nobody'}"
        )

    async def _run(
        self,
        service: Service[Req, Resp],
        handler: Callable[..., Awaitable[None]],
        context: Any,
        *,
        first: bytes,
    ) -> None:
        peer = str(context.peer())
        if refusal := self._refusal(service, context):
            if refusal not in self._refused and len(self._refused) < COMPLAINTS:
                self._refused.add(refusal)
                logger.warning("refused %s: %s", peer, refusal)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, refusal)
        writing = asyncio.Lock()

        async def send(message: Resp | bytes) -> None:
            data = message if isinstance(message, bytes) else service.encode_response(message)
            async with writing:
                await context.write(data)

        self.streams += 1
        try:
            await handler(_incoming(service, context, first), send, peer)
        except WireError as error:
            logger.warning("%s: ended the stream of %s: %s", service.name, peer, error)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except (RpcError, grpc.RpcError, grpc.aio.BaseError):
            raise  # the peer or its connection went
        except Exception as error:
            logger.exception("%s with %s: a defect", service.name, peer)
            self._defect = self._defect or error
            self._defective.set()
            raise
        finally:
            self.streams -= 1


async def _incoming(service: Service[Req, Resp], context: Any, first: bytes) -> AsyncIterator[Req]:
    yield service.decode_request(first)
    if service.one_request:
        return
    while (raw := await context.read()) is not grpc.aio.EOF:
        yield service.decode_request(raw)


def add_work(server: RpcServer, handler: Handler[FromShard, ToShard]) -> None:
    """Serve Work (at the dispatcher)."""
    server.add(WORK, handler)


def add_follow(server: RpcServer, handler: FollowHandler) -> None:
    """Serve Follow (at the Binder); ``send`` also takes bytes of :func:`encode_follow`."""
    server.add(FOLLOW, handler)


def add_propose(server: RpcServer, handler: Handler[ProposalBatch, VerdictBatch]) -> None:
    """Serve Propose (at the Binder)."""
    server.add(PROPOSE, handler)


def add_outcomes(server: RpcServer, handler: Handler[OutcomeRequest, OutcomeBatch]) -> None:
    """Serve Outcomes (at the Binder)."""
    server.add(OUTCOMES, handler)
