"""Whether a server may hold a ledger: its settings, its version, and what our user may do there.

The rights are asked for with ACL DRYRUN, which executes nothing; a stolen password shall be worth
the ledger's own keys, not the server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import redis.asyncio
from redis.exceptions import AuthenticationError, AuthorizationError, RedisError, ResponseError

from stretto.ledger.types import LedgerRefused, LedgerUnavailable

logger = logging.getLogger(__name__)

OPEN_TIMEOUT_S = 5.0
"""For the look at the server when it is opened, some round trips and connections."""
REFUSALS = (AuthenticationError, AuthorizationError, ResponseError)
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


async def check_server(
    server: redis.asyncio.Redis, *, where: str, key: str, restricted: bool, timeout_s: float
) -> None:
    """Make sure that a server may hold a ledger. ``restricted``: our user must have the ledger's
    rights, and nobody be let in without a login. ``key`` is one of the ledger's.

    Raises:
        LedgerUnavailable: it does not answer.
        LedgerRefused: the login is refused, our user may do too little or too much, or the server
            evicts keys, is too old or a replica.
    """
    problem = ""
    limit_s = max(OPEN_TIMEOUT_S, timeout_s)
    try:
        async with asyncio.timeout(limit_s):
            if restricted:
                problem = await login_problem(server, key=key, timeout_s=OPEN_TIMEOUT_S)
            if problem:
                raise LedgerRefused(f"the server at {where} {problem}")
            info: dict[str, Any] = await server.info()
    except (RedisError, OSError) as error:
        # While a connection is made, redis-py wraps what the server answers.
        if isinstance(error.__cause__ or error, REFUSALS):
            raise LedgerRefused(
                f"the ledger at {where} refuses our login: {error}; "
                "put the user in --redis-url and its password in --redis-password-file"
            ) from None
        raise LedgerUnavailable(
            f"{silent(where, error, limit_s)}; check the address and that the server runs"
        ) from None
    if problem := server_problem(info):
        raise LedgerRefused(f"the server at {where} {problem}")
    if hole := known_hole(info):
        logger.warning("the ledger at %s %s", where, hole)
    if not int(info.get("aof_enabled", 1)):
        logger.warning(
            "the ledger at %s has no append-only file: each restart costs a rebuild; "
            "set appendonly yes",
            where,
        )


def silent(where: str, error: BaseException, limit_s: float) -> str:
    """No answer within so many seconds, or none at all."""
    why = str(error) or f"nothing within {limit_s:g} s"
    return f"the ledger at {where} does not answer ({why})"


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
    except ResponseError as error:
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
