"""Who may read metrics beyond loopback: whoever the API server says may, or who has a certificate
for it.

Metrics name no pods, but they tell how large and how busy a cluster is, and a scrape costs CPU. As
on kube-scheduler's secure port, a bearer token is shown to the API server (TokenReview), which then
says whether its user may ``get`` the path (SubjectAccessReview). Processes without an account, the
shards, take a client's certificate instead: signed by our authority, with the DNS name
``stretto-metrics``. Health stays open: a kubelet's probe has neither. Whatever goes wrong closes.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import enum
import logging
import ssl
from collections.abc import Awaitable, Callable

from stretto.config.addresses import is_loopback, split_address
from stretto.config.common import RoleSettings
from stretto.config.renewable import Renewable
from stretto.model.errors import OperatorError

logger = logging.getLogger(__name__)
READER = "stretto-metrics"
"""The name in the certificate of whoever may read."""
REVIEW_S = 5.0
"""Seconds that a review may take; kube-scheduler waits for 10."""
MAX_TOKEN = 16 * 1024
"""Characters; tokens of the API server have about 1,000."""


class TelemetryError(OperatorError):
    """The HTTP side cannot listen."""


class Verdict(enum.Enum):
    """On a request for a path that not everybody may read."""

    ALLOWED = 200
    UNAUTHENTICATED = 401
    FORBIDDEN = 403
    UNKNOWN = 503
    """The API server does not say, so the answer is no."""


Review = Callable[[str, str], Awaitable[Verdict]]
"""(token, path) → what the API server says."""


class Guard:
    """Of one listening address. :meth:`verdict` is called on the HTTP server's threads."""

    def __init__(
        self,
        tls: Renewable[ssl.SSLContext],
        *,
        review: Review | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._tls = tls
        self._review = review
        self._loop = loop

    def context(self) -> ssl.SSLContext:
        """To shake hands with."""
        self._tls.renewed()
        return self._tls.value

    def verdict(self, path: str, *, authorization: str, names: frozenset[str]) -> Verdict:
        """May whoever sends this header, and has a certificate with these names, read it?"""
        if READER in names:
            return Verdict.ALLOWED
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or len(token) > MAX_TOKEN:
            return Verdict.UNAUTHENTICATED
        if self._review is None or self._loop is None:
            return Verdict.UNAUTHENTICATED
        asking = asyncio.run_coroutine_threadsafe(_asked(self._review, token, path), self._loop)
        try:
            return asking.result(REVIEW_S)
        except (TimeoutError, concurrent.futures.CancelledError):
            asking.cancel()
            return Verdict.UNKNOWN
        except Exception:
            logger.exception("a reader of %s could not be reviewed", path)
            return Verdict.UNKNOWN


async def _asked(review: Review, token: str, path: str) -> Verdict:
    return await review(token, path)


def names_in(certificate: object) -> frozenset[str]:
    """The DNS names of a peer's certificate, as ``ssl`` gives it once it has verified it."""
    if not isinstance(certificate, dict):
        return frozenset()
    names = certificate.get("subjectAltName", ())
    return frozenset(value for kind, value in names if kind == "DNS")


def guard_of(settings: RoleSettings, listen: str, *, review: Review | None = None) -> Guard | None:
    """What the address needs: nothing on loopback, or with ``--insecure`` and no certificates.

    Raises:
        TelemetryError: beyond loopback with neither; a file cannot be used.
    """
    if is_loopback(split_address(listen, flag="--telemetry-listen")[0]):
        return None
    files = (settings.tls_certificate, settings.tls_key, settings.tls_authority)
    certificate, key, authority = files
    if certificate is None or key is None or authority is None:
        if settings.insecure:
            return None
        raise TelemetryError(
            f"will not serve metrics to everybody on {listen}: give --tls-certificate, --tls-key "
            "and --tls-authority, or --insecure if the network is trusted"
        )

    def make() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_OPTIONAL
        try:
            context.load_cert_chain(certificate, key, password="")
            context.load_verify_locations(authority)
        except OSError:
            raise TelemetryError(
                f"--tls-certificate {certificate}, --tls-key, --tls-authority: not a PEM "
                "certificate, its key and the authority's certificate"
            ) from None
        return context

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        loop = None
    return Guard(Renewable((certificate, key, authority), make), review=review, loop=loop)
