"""What is read of a kubeconfig file: one context's cluster and user.

Read here and not by the official client's loader, because loading that takes as long as starting a
role does otherwise, and what it would do beyond this a scheduler must not have done to it silently:
run a plug-in program, follow an expired OIDC token, fall back to no credentials at all. These are
refused in one line.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from stretto.config.yaml_text import parsed
from stretto.kube.certificates import Pem, Tls
from stretto.kube.errors import ConfigError

_REFUSED = {
    "exec": "an exec plug-in",
    "auth-provider": "an auth-provider plug-in",
    "act-as": "impersonation",
    "as": "impersonation",
}


class Cluster(msgspec.Struct, rename="kebab", kw_only=True):
    """Where it is and whom to trust; file names count from the kubeconfig's folder."""

    server: str = ""
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None


class User(msgspec.Struct, rename="kebab", kw_only=True):
    """Who we are. A token goes before its file, and both before a password."""

    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    username: str | None = None
    password: str | None = None
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None


class _Context(msgspec.Struct, kw_only=True):
    cluster: str
    user: str | None = None


class _NamedContext(msgspec.Struct):
    name: str
    context: _Context


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: Cluster


class _NamedUser(msgspec.Struct):
    name: str
    user: dict[str, Any] | None = None
    """Any, because a field that is refused may hold anything."""


class _Document(msgspec.Struct, rename="kebab", kw_only=True):
    clusters: list[_NamedCluster]
    contexts: list[_NamedContext]
    users: list[_NamedUser] | None = None
    current_context: str | None = None


class Chosen(msgspec.Struct, kw_only=True):
    """What a context stands for."""

    cluster: Cluster
    user: User
    folder: Path
    """Of the kubeconfig, with links followed."""

    def path(self, name: str) -> Path:
        """A file that the kubeconfig names."""
        return self.folder / name

    def pem(self, *, data: str | None, name: str | None) -> Pem | None:
        """Data goes before a file. Raises ValueError, FileNotFoundError."""
        if data:
            try:
                return base64.b64decode("".join(data.split()), validate=True)
            except ValueError as error:
                raise ValueError(f"data that is not base64: {error}") from None
        if not name:
            return None
        file = self.path(name)
        if not file.is_file():
            raise FileNotFoundError(f"there is no file {file}")
        return file

    def tls(self) -> Tls:
        """Raises ValueError, FileNotFoundError."""
        cluster, user = self.cluster, self.user
        return Tls(
            authority=self.pem(
                data=cluster.certificate_authority_data, name=cluster.certificate_authority
            ),
            certificate=self.pem(data=user.client_certificate_data, name=user.client_certificate),
            key=self.pem(data=user.client_key_data, name=user.client_key),
            verify=not cluster.insecure_skip_tls_verify,
            server_name=cluster.tls_server_name or None,
        )


def read(path: str | Path, *, context: str | None) -> tuple[Path, Chosen]:
    """The file, and what the named or the current context in it stands for.

    Raises:
        ConfigError: it cannot be used.
    """
    file = Path(path).expanduser()
    raw = _read_yaml(file)
    try:
        document = msgspec.convert(raw, _Document)
        chosen = _chosen(document, context or document.current_context, file)
    except (msgspec.ValidationError, ValueError) as error:
        raise ConfigError(f"kubeconfig {file}: {error}; correct the file") from None
    return file, chosen


def _chosen(document: _Document, name: str | None, file: Path) -> Chosen:
    if not name:
        raise ValueError("it has no current-context")
    context = _named(document.contexts, name, what="context").context
    cluster = _named(document.clusters, context.cluster, what="cluster").cluster
    # A context may name a user that is not there, or none: then we are nobody.
    users = [each.user or {} for each in document.users or [] if each.name == context.user]
    user = users[0] if users else {}
    _refuse_unusable(user, file)
    return Chosen(cluster=cluster, user=msgspec.convert(user, User), folder=file.resolve().parent)


_Named = TypeVar("_Named", _NamedContext, _NamedCluster)


def _named(entries: list[_Named], name: str, *, what: str) -> _Named:
    for entry in entries:
        if entry.name == name:
            return entry
    raise ValueError(f"it has no {what} with the name {name}")


def _read_yaml(file: Path) -> dict[str, Any]:
    try:
        document = parsed(file.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"kubeconfig {file}: {error.strerror}; name another file with --kubeconfig"
        ) from error
    except ValueError as error:
        raise ConfigError(f"kubeconfig {file}: {error}; correct the file") from error
    if not isinstance(document, dict) or not isinstance(document.get("clusters"), list):
        raise ConfigError(f"kubeconfig {file}: has no list of clusters; it is not a kubeconfig")
    return document


def _refuse_unusable(user: dict[str, Any], file: Path) -> None:
    for field, words in _REFUSED.items():
        if user.get(field):
            raise ConfigError(
                f"kubeconfig {file}: the user relies on {words} ({field}), which is not supported; "
                "use a token, a tokenFile or a client certificate (kubectl create token …)"
            )
