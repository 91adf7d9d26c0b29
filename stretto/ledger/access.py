"""Who we are to the ledger's server, and what we may do there.

Whoever writes to the ledger can have capacity given out twice, so beyond loopback the server must
prove itself (TLS), know us by a user of our own, and let that user do what the ledger does and no
more: a stolen password is then worth the ledger's own keys, not the server. The rights are asked
for with ACL DRYRUN, which executes nothing. On loopback and unix sockets a server without users is
somebody's laptop, and is taken as it is.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from redis.exceptions import RedisError

from stretto.config.addresses import is_loopback
from stretto.config.ledger import LedgerSettings
from stretto.ledger.types import LedgerRefused

KEY_PATTERN = "{stretto:*}:*"
"""Keys of every ledger; the tag holds cluster and Lease, see design §12.9."""
COMMANDS: dict[str, tuple[str, ...]] = {
    "evalsha": ("0" * 40, "1", "KEY"),
    "script|load": ("return 1",),
    "info": (),
    "hget": ("KEY", "field"),
    "hmget": ("KEY", "field"),
    "hset": ("KEY", "field", "value"),
    "hdel": ("KEY", "field"),
    "hlen": ("KEY",),
    "hscan": ("KEY", "0"),
    "unlink": ("KEY",),
    "acl|whoami": (),
    "acl|dryrun": ("default", "ping"),
}
"""What the script and the client call, with arguments that would be valid."""
FORBIDDEN: tuple[tuple[str, ...], ...] = (
    ("eval", "return 1", "0"),
    ("function", "list"),
    ("script", "flush"),
    ("config", "get", "port"),
    ("acl", "setuser", "x"),
    ("debug", "jmap"),
    ("keys", "*"),
    ("scan", "0"),
    ("flushall",),
    ("flushdb",),
    ("shutdown",),
    ("replicaof", "no", "one"),
    ("monitor",),
    ("client", "kill", "0.0.0.0:0"),
    ("set", "KEY", "value"),
    ("del", "KEY"),
    ("hget", "OTHER", "field"),
    ("hset", "OTHER", "field", "value"),
)
"""What nobody needs: one of each kind of harm, and keys that are not a ledger's."""
PATCHED = {"redis": {62: 20, 72: 11, 74: 6, 80: 4, 82: 2}, "valkey": {72: 11, 80: 6, 81: 4}}
"""Last number of the first release of each line (7.4 is 74) without CVE-2025-49844: a script of
anybody who may send one takes over the server. Lines above the last began without it."""
VERSION = ("major", "minor", "patch")
OTHER_KEY = "not-a-ledger"
RULES = "see the user of deploy/make-ledger-user.sh, or give --redis-insecure"


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


async def rights_problem(server: redis.asyncio.Redis, *, key: str) -> str:
    """What the user we are may do too little or too much; empty if neither.

    ``key`` is one of the ledger's.

    Raises:
        RedisError: the server does not answer.
    """
    try:
        user = (await server.execute_command("ACL", "WHOAMI")).decode()  # type: ignore[no-untyped-call]
        lacking = await _allowed(server, user, needed(key), wanted=False)
        beyond = await _allowed(server, user, forbidden(key), wanted=True)
    except redis.exceptions.ResponseError as error:
        return f"does not tell our rights ({error}); allow +acl|whoami and +acl|dryrun: {RULES}"
    if lacking:
        return f"does not let our user {user!r} {', '.join(lacking)} on {key}; {RULES}"
    if beyond:
        return f"lets our user {user!r} do more than the ledger needs: {', '.join(beyond)}; {RULES}"
    return ""


def needed(key: str) -> list[list[str]]:
    """The commands of the ledger, on one of its keys."""
    return [
        [*name.split("|"), *(key if word == "KEY" else word for word in words)]
        for name, words in COMMANDS.items()
    ]


def forbidden(key: str) -> list[list[str]]:
    """What our user must not be able to do."""
    names = {"KEY": key, "OTHER": OTHER_KEY}
    return [[names.get(word, word) for word in words] for words in FORBIDDEN]


async def _allowed(
    server: redis.asyncio.Redis, user: str, commands: Sequence[list[str]], *, wanted: bool
) -> list[str]:
    """Names of those of the commands for which ``user`` may do it == ``wanted``; in one round."""
    pipeline = server.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command("ACL", "DRYRUN", user, *command)
    replies = await pipeline.execute()
    found = []
    for command, reply in zip(commands, replies, strict=True):
        if (reply == b"OK") is wanted:
            other = f" {OTHER_KEY}" if OTHER_KEY in command else ""
            sub = command[0] in ("acl", "script", "config", "client", "function")
            found.append("|".join(command[: 2 if sub else 1]) + other)
    return found


def known_hole(info: Mapping[str, Any]) -> str:
    """What is known against a server's version, from its INFO; empty for nothing. A warning only:
    distributions mend old versions without a new number."""
    name = "valkey" if "valkey_version" in info else "redis"
    text = str(info.get(f"{name}_version", ""))
    numbers = [int(part) for part in text.split(".") if part.isdigit()]
    if len(numbers) != len(VERSION):
        return ""
    line, lines = numbers[0] * 10 + numbers[1], PATCHED[name]
    if line > max(lines) or numbers[2] >= lines.get(line, 1 << 30):
        return ""
    return f"is {name} {text}, which has CVE-2025-49844 unless your distribution mended it"


async def lets_strangers_in(server: redis.asyncio.Redis, *, timeout_s: float) -> bool:
    """Whether the server answers somebody who has not logged in."""
    pool = server.connection_pool
    options = dict(pool.connection_kwargs)
    for name in ("username", "password", "credential_provider"):
        options.pop(name, None)
    stranger = pool.connection_class(**options)
    try:
        async with asyncio.timeout(timeout_s):
            await stranger.connect()  # type: ignore[no-untyped-call]
            await stranger.send_command("PING")
            return await stranger.read_response() in (b"PONG", "PONG")
    except (RedisError, OSError):
        return False
    finally:
        await stranger.disconnect()


async def login_problem(server: redis.asyncio.Redis, *, key: str, timeout_s: float) -> str:
    """Why our user, or that nobody needs one, is not safe; empty if it is."""
    problem = await rights_problem(server, key=key)
    if not problem and await lets_strangers_in(server, timeout_s=timeout_s):
        problem = "takes commands without a login; turn its user 'default' off"
    return problem


def server_problem(info: dict[str, Any]) -> str:
    """Why a server must not hold a ledger, from its INFO; empty if it may."""
    policy = str(info.get("maxmemory_policy", ""))
    if policy != "noeviction":
        return (
            f"evicts keys (maxmemory-policy {policy}), which would lose reservations in silence; "
            "set maxmemory-policy noeviction"
        )
    version = str(info.get("redis_version", "0"))
    major = version.split(".")[0]
    if not major.isdigit() or int(major) < 7:
        return f"is version {version}; Redis 7.0 or any Valkey is needed"
    if info.get("role", "master") != "master":
        return "is a replica, which takes no writes; give the primary's address in --redis-url"
    return ""
