"""Where the API server is, and how to identify ourselves to it.

The official loader does the reading of certificates and paths; what it would do that a scheduler
must not have done to it silently (run a plug-in program, follow an expired OIDC token, fall back to
no credentials at all) is refused before, in one line. Tokens that live in a file are read again
when they are a minute old, because a projected service account token is replaced while the process
runs.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import yaml
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.kube_config import KubeConfigLoader

from stretto.kube.errors import ConfigError

SERVICE_ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_AGE_S = 60.0
"""How long a token that came from a file is used before the file is read again; client-go's
period."""
_VISIBLE = re.compile(r"[ -~]+\Z")
_REFUSED_USER_FIELDS = {
    "exec": "an exec plug-in",
    "auth-provider": "an auth-provider plug-in",
    "act-as": "impersonation",
    "as": "impersonation",
}


class KubeConfig:
    """An API server and our credentials for it, ready for a client. Immutable but for the token's
    age."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        origin: str,
        token_file: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.configuration = configuration
        self.origin = origin
        """Where this came from, for messages."""
        self._token_file = token_file
        self._clock = clock
        self._token_read_at = -TOKEN_AGE_S
        self._authorization = str(configuration.api_key.get("BearerToken", "")).strip()
        if self._authorization and not _VISIBLE.match(self._authorization):
            raise ConfigError(f"{origin}: the token has characters that no token has; correct it")

    @classmethod
    async def from_file(cls, path: str | Path, context: str | None = None) -> KubeConfig:
        """The named or the current context of a kubeconfig file. Raises :class:`ConfigError`."""
        file, document = _read_document(path)
        configuration = Configuration()
        try:
            loader = KubeConfigLoader(
                document, active_context=context, config_base_path=str(file.resolve().parent)
            )
            user = _user_of(document, loader.current_context["context"].get("user"))
            _refuse_unusable(user, file)
            token_file = _token_file_of(user, file)
            await loader.load_and_set(configuration)
        except (ConfigException, OSError, TypeError, AttributeError, ValueError) as error:
            raise ConfigError(f"kubeconfig {file}: {error}; correct the file") from error
        configuration.host = _checked_url(configuration.host, f"kubeconfig {file}: server")
        return cls(configuration, origin=str(file), token_file=token_file)

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
        configuration = Configuration(host=f"https://{f'[{host}]' if ':' in host else host}:{port}")
        authority = folder / "ca.crt"
        if not authority.is_file():
            raise ConfigError(
                f"{authority} is missing; mount the service account token into the pod"
            )
        configuration.ssl_ca_cert = str(authority)
        config = cls(configuration, origin=str(folder), token_file=folder / "token")
        config.authorization()
        return config

    @classmethod
    def from_url(cls, url: str) -> KubeConfig:
        """An API server that asks for no credentials, such as the simulator."""
        return cls(Configuration(host=_checked_url(url, "the address")), origin=url)

    @property
    def url(self) -> str:
        """The base address, without a slash at its end."""
        return cast("str", self.configuration.host)

    def authorization(self, *, fresh: bool = False) -> str:
        """The value of the Authorization header, or ''; re-read from its file if old or if
        ``fresh``."""
        if self._token_file is None:
            return self._authorization
        now = self._clock()
        if fresh or now - self._token_read_at >= TOKEN_AGE_S:
            self._authorization = f"Bearer {_read_token(self._token_file)}"
            self._token_read_at = now
        return self._authorization

    @property
    def renewable(self) -> bool:
        """Whether reading the token afresh may help after a 401."""
        return self._token_file is not None


def _read_document(path: str | Path) -> tuple[Path, dict[str, Any]]:
    file = Path(path).expanduser()
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"kubeconfig {file}: {error.strerror}; name another file with --kubeconfig"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        text = " ".join(str(error).split())
        raise ConfigError(f"kubeconfig {file}: not YAML: {text}; correct the file") from error
    if not isinstance(document, dict) or not isinstance(document.get("clusters"), list):
        raise ConfigError(f"kubeconfig {file}: has no list of clusters; it is not a kubeconfig")
    return file, document


def _user_of(document: dict[str, Any], name: object) -> dict[str, Any]:
    for entry in document.get("users") or []:
        if entry.get("name") == name:
            return dict(entry.get("user") or {})
    return {}


def _refuse_unusable(user: dict[str, Any], file: Path) -> None:
    for field, words in _REFUSED_USER_FIELDS.items():
        if user.get(field):
            raise ConfigError(
                f"kubeconfig {file}: the user relies on {words} ({field}), which is not supported; "
                "use a token, a tokenFile or a client certificate (kubectl create token …)"
            )


def _token_file_of(user: dict[str, Any], file: Path) -> Path | None:
    if user.get("token") or not user.get("tokenFile"):
        return None
    return file.resolve().parent / str(user["tokenFile"])


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
