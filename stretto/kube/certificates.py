"""TLS towards the API server: whom we trust, and who we are.

Kept as files and bytes until a client is opened, so that a certificate that cannot be loaded is
told where the address and the credentials are told. Files are read again when they change, for the
connections that are opened from then on.
"""

from __future__ import annotations

import contextlib
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from stretto.config.renewable import Renewable
from stretto.kube.errors import ConfigError

Pem = Path | bytes
"""A file, or what would be in it."""


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """What a connection has to be set up with."""

    authority: Pem | None = None
    """Who signs the server's certificate; None: whom the machine trusts."""
    certificate: Pem | None = None
    """Ours, for the server to know us by."""
    key: Pem | None = None
    """Of our certificate; None: in the same file."""
    verify: bool = True
    server_name: str | None = None
    """The name to find in the server's certificate, if not its host's."""

    def renewable(self, *, origin: str) -> Renewable[ssl.SSLContext]:
        """What to connect with, made anew when a file has changed. Raises :class:`ConfigError` for
        what cannot be loaded; ``origin`` says where it came from."""
        pems = (self.authority, self.certificate, self.key)

        def load() -> ssl.SSLContext:
            try:
                return self._context()
            except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
                raise ConfigError(
                    f"{origin}: the certificates cannot be loaded: {error}; correct the file"
                ) from error

        return Renewable([pem for pem in pems if isinstance(pem, Path)], load)

    def _context(self) -> ssl.SSLContext:
        authority = self.authority
        if isinstance(authority, bytes):
            context = ssl.create_default_context(cadata=authority.decode("ascii"))
        else:
            context = ssl.create_default_context(cafile=authority)
        if self.certificate is not None:
            with _file_of(self.certificate) as certificate, _file_of(self.key) as key:
                context.load_cert_chain(certificate, key, _no_passphrase)  # type: ignore[arg-type]
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def _no_passphrase() -> str:
    """OpenSSL would ask the terminal for one, and a role would stand still until it had it."""
    raise ValueError("the key is encrypted; give one without a passphrase")


@contextlib.contextmanager
def _file_of(pem: Pem | None) -> Iterator[Path | None]:
    """OpenSSL takes a key from a file only; nobody but us can read ours, while it is there."""
    if not isinstance(pem, bytes):
        yield pem
        return
    with tempfile.NamedTemporaryFile(prefix="stretto-", suffix=".pem") as file:
        file.write(pem)
        file.flush()
        yield Path(file.name)
