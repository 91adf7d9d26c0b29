"""Where the API server is, and how to identify ourselves to it.

Tokens that live in a file are read again when they are a minute old, because a projected service
account token is replaced while the process runs. If the file cannot be read then, the former token
is used on, as client-go does: it may be good for hours, and whether it is, the API server says.
"""

from __future__ import annotations

import base64
import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from stretto.kube import kubeconfig
from stretto.kube.certificates import Tls
from stretto.kube.errors import ConfigError

log = logging.getLogger(__name__)

SERVICE_ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_AGE_S = 60.0
"""How long a token that came from a file is used before the file is read again; client-go's
period."""
_VISIBLE = re.compile(r"[ -~]+\Z")


class KubeConfig:
    """An API server and our credentials for it, ready for a client. Immutable but for the token's
    age."""

    def __init__(
        self,
        url: str,
        *,
        origin: str,
        authorization: str = "",
        tls: Tls | None = None,
        proxy: str | None = None,
        token_file: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url = url
        """The base address, without a slash at its end."""
        self.origin = origin
        """Where this came from, for messages."""
        self.tls = tls or Tls()
        self.proxy = proxy
        """The address of an HTTP proxy that is in the way."""
        self._token_file = token_file
        self._clock = clock
        self._token_read_at = -TOKEN_AGE_S
        self._authorization = authorization.strip()
        if self._authorization and not _VISIBLE.match(self._authorization):
            raise ConfigError(f"{origin}: the token has characters that no token has; correct it")

    @classmethod
    async def from_file(cls, path: str | Path, context: str | None = None) -> KubeConfig:
        """The named or the current context of a kubeconfig file. Raises :class:`ConfigError`."""
        file, chosen = kubeconfig.read(path, context=context)
        url = _checked_url(chosen.cluster.server, f"kubeconfig {file}: server")
        user = chosen.user
        token_file = chosen.path(user.token_file) if user.token_file and not user.token else None
        try:
            config = cls(
                url,
                origin=str(file),
                authorization=_authorization_of(user),
                tls=chosen.tls() if url.startswith("https:") else None,
                proxy=chosen.cluster.proxy_url or None,
                token_file=token_file,
            )
            config.authorization()
        except (OSError, ValueError) as error:
            raise ConfigError(f"kubeconfig {file}: {error}; correct the file") from error
        except ConfigError as error:
            raise ConfigError(f"kubeconfig {file}: {error}") from error
        return config

    @classmethod
    def in_cluster(
        cls,
        *,
        environ: Mapping[str, str] = os.environ,
        folder: Path = SERVICE_ACCOUNT_FOLDER,
    ) -> KubeConfig:
        """The service account that the pod runs as. Raises :class:`ConfigError` outside a
        cluster."""
        host = environ.get("KUBERNETES_SERVICE_HOST", "")
        port = environ.get("KUBERNETES_SERVICE_PORT", "")
        if not host or not port:
            raise ConfigError(
                "not inside a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not "
                "set; name a file with --kubeconfig"
            )
        authority = folder / "ca.crt"
        if not authority.is_file():
            raise ConfigError(
                f"{authority} is missing; mount the service account token into the pod"
            )
        config = cls(
            f"https://{f'[{host}]' if ':' in host else host}:{port}",
            origin=str(folder),
            tls=Tls(authority=authority),
            token_file=folder / "token",
        )
        config.authorization()
        return config

    @classmethod
    def from_url(cls, url: str) -> KubeConfig:
        """An API server that asks for no credentials, such as the simulator."""
        return cls(_checked_url(url, "the address"), origin=url)

    def authorization(self, *, fresh: bool = False) -> str:
        """The value of the Authorization header, or ''; re-read from its file if old or if
        ``fresh``. Raises :class:`ConfigError` if the file gives none and never gave one."""
        if self._token_file is None:
            return self._authorization
        now = self._clock()
        if fresh or now - self._token_read_at >= TOKEN_AGE_S:
            self._token_read_at = now
            try:
                self._authorization = f"Bearer {_read_token(self._token_file)}"
            except ConfigError as error:
                if not self._authorization:
                    raise
                log.warning("%s; the former token is used on", error)
        return self._authorization

    @property
    def renewable(self) -> bool:
        """Whether reading the token afresh may help after a 401."""
        return self._token_file is not None


def _authorization_of(user: kubeconfig.User) -> str:
    if user.token:
        return f"Bearer {user.token}"
    if user.username is not None and user.password is not None:
        pair = f"{user.username}:{user.password}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"
    return ""


def _read_token(file: Path) -> str:
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"token file {file} cannot be read: {error}; check the mount") from error
    if not token or not _VISIBLE.match(token):
        raise ConfigError(f"token file {file} holds no token; check the mount")
    return token


def _checked_url(url: str, what: str) -> str:
    """The address of an API server without a slash at its end, safe to be put into a request."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number
        usable = False
    if not usable or "@" in url or not _VISIBLE.match(url) or " " in url:
        raise ConfigError(f"{what} {url!r} is not an API server's; give http(s)://HOST:PORT")
    return url.rstrip("/")
