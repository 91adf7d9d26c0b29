"""Who may talk to whom: mutual TLS from files, or plain text where that was allowed in so many
words.

A scheduler's streams carry the right to bind pods, so plain text is for the loopback interface.
Elsewhere it needs ``insecure`` (a mesh or a network policy does the rest); without either the
process refuses to start.

Who a peer is, is a DNS name in its certificate (``stretto-shard`` and so on, whole, without a
namespace); each conversation names the callers it is for. Files are read again when they change:
by a server before the next handshake, by a client at each dial. A connection that is open lives on
with the certificates it began with.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path

import grpc
import msgspec

from stretto.config.addresses import is_loopback, split_address
from stretto.config.common import RoleSettings
from stretto.config.renewable import Renewable
from stretto.rpc.errors import RpcConfigError

SHARD = "stretto-shard"
DISPATCHER = "stretto-dispatcher"
"""The names that callers go by in their certificates."""


class Security(msgspec.Struct, frozen=True, kw_only=True):
    """The certificate, its key and the authority that signed the peers' certificates (PEM
    files)."""

    insecure: bool = False
    """Plain text allowed beyond loopback."""
    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None

    @classmethod
    def of(cls, settings: RoleSettings) -> Security:
        """What a role's flags say, for its start: the files are looked into.

        Raises:
            RpcConfigError: a file is missing, cannot be read or holds something else.
        """
        found = cls(
            insecure=settings.insecure,
            certificate=settings.tls_certificate,
            key=settings.tls_key,
            authority=settings.tls_authority,
        )
        if found.tls:
            found._files()
            found._check_contents()
        return found

    @property
    def tls(self) -> bool:
        """Certificates are configured."""
        return any((self.certificate, self.key, self.authority))

    def server_credentials(self, listen: str) -> grpc.ServerCredentials | None:
        """Credentials to listen with; None: plain text.

        Raises:
            RpcConfigError: plain text beyond loopback without ``insecure``, or an unreadable file.
        """
        if self.tls:
            files = self.renewable()
            return grpc.dynamic_ssl_server_credentials(
                files.value,
                files.renewed,  # type: ignore[arg-type]  # None is documented: nothing new
                require_client_authentication=True,
            )
        self._allow_plain(listen, verb="listen on")
        return None

    def channel_credentials(self, target: str) -> grpc.ChannelCredentials | None:
        """Credentials to dial with; None: plain text.

        Raises:
            RpcConfigError: as for :meth:`server_credentials`.
        """
        if self.tls:
            authority, key, certificate = self._files()
            return grpc.ssl_channel_credentials(authority, key, certificate)
        self._allow_plain(target, verb="dial")
        return None

    def _allow_plain(self, address: str, *, verb: str) -> None:
        if not self.insecure and not is_loopback(split_address(address)[0]):
            raise RpcConfigError(
                f"will not {verb} {address} in plain text: give --tls-certificate, --tls-key and "
                "--tls-authority, or --insecure if the network is trusted"
            )

    def renewable(self) -> Renewable[grpc.ServerCertificateConfiguration]:
        """The files, for a server: gRPC looks for new ones before each handshake."""
        files = (self.certificate, self.key, self.authority)
        return Renewable([path for path in files if path is not None], self.configuration)

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        """What the files hold now, for a server.

        Raises:
            RpcConfigError: a file cannot be read, or they do not fit each other.
        """
        authority, key, certificate = self._files()
        self._check_contents()
        return grpc.ssl_server_certificate_configuration(
            [(key, certificate)], root_certificates=authority
        )

    def _files(self) -> tuple[bytes, bytes, bytes]:
        return (
            _read(self.authority, flag="--tls-authority"),
            _read(self.key, flag="--tls-key"),
            _read(self.certificate, flag="--tls-certificate"),
        )

    def _check_contents(self) -> None:
        """gRPC takes any bytes, and then says only that nobody can be reached. Not
        done at each connection: files that are renewed one by one do not fit for a moment."""
        assert self.certificate is not None, "the files were read"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_cert_chain(self.certificate, self.key, password="")
        except OSError:
            raise RpcConfigError(
                f"--tls-certificate {self.certificate} and --tls-key {self.key}: not a PEM "
                "certificate and its key without a password"
            ) from None
        try:
            context.load_verify_locations(self.authority)
        except OSError:
            raise RpcConfigError(
                f"--tls-authority {self.authority}: holds no PEM certificate"
            ) from None


def names_of(auth_context: Mapping[str, Iterable[bytes]]) -> set[str]:
    """The DNS names (and the like) of a peer's certificate, which gRPC has verified."""
    names = auth_context.get("x509_subject_alternative_name", ())
    return {name.decode(errors="replace") for name in names}


def _read(path: Path | None, *, flag: str) -> bytes:
    if path is None:
        raise RpcConfigError(f"{flag} is missing: mutual TLS needs certificate, key and authority")
    try:
        return path.read_bytes()
    except OSError as error:
        raise RpcConfigError(f"{flag} {path}: cannot be read: {error.strerror}") from None
