"""Who we are to the ledger's server, and by which way we reach it.

Whoever writes to the ledger can have capacity given out twice, so beyond loopback the server must
prove itself (TLS), know us by a user of our own, and let that user do what the ledger does and no
more (:mod:`stretto.ledger.server_check`). On loopback and unix sockets a server without users is
somebody's laptop, and is taken as it is.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider

from stretto.config.addresses import is_loopback
from stretto.config.ledger import LedgerSettings
from stretto.ledger.types import LedgerRefused


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """How to log in; the default is what a URL says by itself."""

    password_file: Path | None = None
    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    insecure: bool = False
    """Plain text beyond loopback, and any rights."""

    @classmethod
    def of(cls, settings: LedgerSettings) -> Access:
        """What the flags say."""
        return cls(
            password_file=settings.redis_password_file,
            authority=settings.redis_authority,
            certificate=settings.redis_certificate,
            key=settings.redis_key,
            insecure=settings.redis_insecure,
        )

    def connect(self, url: str, *, timeout_s: float) -> redis.asyncio.Redis:
        """A client of the server; connects at the first command.

        Raises:
            LedgerRefused: the URL or a file cannot be used, or the way is not safe.
        """
        plain, login = self._login(url)
        options: dict[str, Any] = {} if login is None else {"credential_provider": login}
        if plain.startswith("rediss:"):
            options |= self._tls_options()
        try:
            server = redis.asyncio.Redis.from_url(
                plain,
                socket_timeout=None,  # the ledger has one for the whole exchange, and cheaper
                socket_connect_timeout=timeout_s,
                retry=Retry(NoBackoff(), 0),
                protocol=2,
                driver_info=None,  # the user may not name itself
                **options,
            )
        except ValueError as error:
            raise LedgerRefused(
                f"--redis-url {safe_url(url)}: {error}; use redis://host:port/db or unix://path"
            ) from None
        if plain.startswith("redis:") and not self.insecure and not is_local(url):
            raise LedgerRefused(
                f"will not speak to {safe_url(url)} in plain text: use rediss:// with "
                "--redis-authority, or --redis-insecure if the network is trusted"
            )
        return server

    def restricted(self, url: str) -> bool:
        """Whether the rights must be exactly the ledger's."""
        return not self.insecure and (not is_local(url) or bool(urlsplit(url).username))

    def _login(self, url: str) -> tuple[str, Login | None]:
        """The URL without what the password file says instead, and that."""
        if self.password_file is None:
            return url, None
        parts = urlsplit(url)
        if parts.password:
            raise LedgerRefused(
                f"--redis-url {safe_url(url)} has a password, and so has --redis-password-file; "
                "leave it out of the URL"
            )
        login = Login(unquote(parts.username or ""), self.password_file)
        login.get_credentials()
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit(parts._replace(netloc=host)), login

    def _tls_options(self) -> dict[str, Any]:
        files = (
            ("--redis-authority", self.authority, "ssl_ca_certs"),
            ("--redis-certificate", self.certificate, "ssl_certfile"),
            ("--redis-key", self.key, "ssl_keyfile"),
        )
        options: dict[str, Any] = {"ssl_check_hostname": True}
        for flag, path, option in files:
            if path is not None:
                readable(path, flag=flag)
                options[option] = str(path)
        self._check_pem()
        return options

    def _check_pem(self) -> None:
        """Each connection reads the files anew and would blame the server for them."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.authority is not None:
            try:
                context.load_verify_locations(self.authority)
            except OSError:
                raise LedgerRefused(
                    f"--redis-authority {self.authority}: not a PEM certificate"
                ) from None
        if self.certificate is not None:
            try:
                context.load_cert_chain(self.certificate, self.key, password=no_password)
            except (OSError, ValueError):
                raise LedgerRefused(
                    f"--redis-certificate {self.certificate} and --redis-key "
                    f"{self.key or self.certificate}: not a PEM "
                    "certificate and its key without a password"
                ) from None


def no_password() -> str:
    """Instead of a question at the terminal."""
    return ""


class Login(CredentialProvider):
    """A user, and a password that is read anew for each connection."""

    def __init__(self, user: str, file: Path) -> None:
        self._user = user
        self._file = file

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """As redis-py wants them.

        Raises:
            LedgerRefused: the file cannot be read, or is empty.
        """
        password = readable(self._file, flag="--redis-password-file").strip()
        if not password:
            raise LedgerRefused(f"--redis-password-file {self._file} is empty")
        return (self._user, password) if self._user else (password,)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        """The same; a file of some bytes needs no thread."""
        return self.get_credentials()


def readable(path: Path, *, flag: str) -> str:
    """A file's text.

    Raises:
        LedgerRefused: it cannot be read; names the flag.
    """
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text"
        raise LedgerRefused(f"{flag} {path}: cannot be read: {reason}") from None


def safe_url(url: str) -> str:
    """The address without credentials, for messages."""
    if "://" not in url:
        return url.rpartition("@")[2]
    parts = urlsplit(url)
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        port = ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"


def is_local(url: str) -> bool:
    """Nobody else is on the way: a unix socket, or loopback."""
    parts = urlsplit(url)
    return parts.scheme == "unix" or is_loopback(parts.hostname or "localhost")
