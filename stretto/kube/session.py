"""The HTTP session of the official client, set up for this use.

Two things differ from how it ships. ``trust_env`` is off, since with it aiohttp reads ``.netrc``
and the proxy variables for every request, which costs five times the request itself; a machine
behind a proxy turns it on. And nothing is retried below us: a retried write that was carried out
the first time would be counted as one.
"""

from __future__ import annotations

from typing import cast

import aiohttp
from kubernetes.aio.client.rest import RESTClientObject

from stretto.kube.config import KubeConfig
from stretto.kube.errors import ConfigError

READ_BUFFER = 128 * 1024
"""Bytes. A watch hands on at most twice this at once, so that decoding one piece stalls the loop by
under 1 ms."""


class _Sessions(RESTClientObject):  # type: ignore[misc]
    """Builds the session as the official client would; TLS and client certificates are its
    business."""

    def open(self) -> aiohttp.ClientSession:
        """A session of its own pool."""
        return cast("aiohttp.ClientSession", self._create_pool_manager())


def open_session(config: KubeConfig, *, connections: int, trust_env: bool) -> aiohttp.ClientSession:
    """A session for ``config``. Raises :class:`ConfigError` if its certificates cannot be
    loaded."""
    configuration = config.configuration
    configuration.retries = None
    configuration.connection_pool_maxsize = connections
    configuration.client_session_kwargs = {
        "trust_env": trust_env,
        "read_bufsize": READ_BUFFER,
        "raise_for_status": False,
        "cookie_jar": aiohttp.DummyCookieJar(),
        # Compressing costs the API server more than loopback or a rack's network gains.
        "headers": {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "stretto",
        },
    }
    try:
        return _Sessions(configuration).open()
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(
            f"{config.origin}: the certificates cannot be loaded: {error}; correct the file"
        ) from error
