"""The official client's TLS set-up and HTTP session, set up for this use.

Two things differ from how the session ships. ``trust_env`` is off, since with it aiohttp reads
``.netrc`` and the proxy variables for every request, which costs five times the request itself; a
machine behind a proxy turns it on. And nothing is retried below us: a retried write that was
carried out the first time would be counted as one.
"""

from __future__ import annotations

import ssl
from typing import cast

import aiohttp
from kubernetes.aio.client.rest import RESTClientObject

from stretto.kube.config import KubeConfig
from stretto.kube.errors import ConfigError

READ_BUFFER = 128 * 1024
"""Bytes. A watch hands on at most twice this at once, so that decoding one piece stalls the loop by
under 1 ms."""
HEADERS = {
    "Accept": "application/json",
    # Compressing costs the API server more than loopback or a rack's network gains.
    "Accept-Encoding": "identity",
    "User-Agent": "stretto",
}


class Sessions(RESTClientObject):  # type: ignore[misc]
    """Builds what the official client would build; certificates are its business."""

    def open_session(self) -> aiohttp.ClientSession:
        """A session with a pool of its own."""
        return cast("aiohttp.ClientSession", self._create_pool_manager())

    @property
    def tls(self) -> ssl.SSLContext:
        """The context with the authority to trust and our client certificate."""
        return cast("ssl.SSLContext", self.ssl_context)


def sessions_of(config: KubeConfig, *, connections: int, trust_env: bool) -> Sessions:
    """Raises :class:`ConfigError` if the certificates of ``config`` cannot be loaded."""
    configuration = config.configuration
    configuration.retries = None
    configuration.connection_pool_maxsize = connections
    configuration.client_session_kwargs = {
        "trust_env": trust_env,
        "read_bufsize": READ_BUFFER,
        "raise_for_status": False,
        "cookie_jar": aiohttp.DummyCookieJar(),
        "headers": HEADERS,
    }
    try:
        return Sessions(configuration)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(
            f"{config.origin}: the certificates cannot be loaded: {error}; correct the file"
        ) from error
