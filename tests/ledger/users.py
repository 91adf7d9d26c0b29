"""The users of deploy/make-ledger-user.sh on a test's own server, and a hand that may do all."""

from __future__ import annotations

import pathlib
import subprocess
from urllib.parse import urlsplit

import redis
import redis.asyncio
import yaml

SCRIPT = pathlib.Path(__file__).parents[2] / "deploy" / "make-ledger-user.sh"
PASSWORD = "the-binders-password"
HAND = ("hand", "the-hands-password")


def acl_lines() -> list[list[str]]:
    """The words of each user's rules, as the manifest gives them."""
    done = subprocess.run([SCRIPT, "stretto", PASSWORD], capture_output=True, text=True, check=True)
    text = yaml.safe_load(done.stdout)["stringData"]["users.acl"]
    return [line.split()[1:] for line in text.splitlines()]


def put_in_force(url: str) -> str:
    """Give a server these users, and a hand for the tests; the URL of the Binder's user."""
    with redis.Redis.from_url(url) as server:
        server.execute_command("ACL", "SETUSER", HAND[0], "on", f">{HAND[1]}", "~*", "&*", "+@all")
        for words in reversed(acl_lines()):  # the default user, who is us, last
            server.execute_command("ACL", "SETUSER", *words)
    return url.replace("://", f"://stretto-binder:{PASSWORD}@")


def login_of(url: str) -> tuple[str, ...]:
    """User and password in a URL."""
    parts = urlsplit(url)
    return (parts.username, parts.password or "") if parts.username else ()


def by_hand(url: str) -> redis.asyncio.Redis:
    """A connection that may do all, to a server with our users."""
    return redis.asyncio.Redis(
        unix_socket_path=urlsplit(url).path, username=HAND[0], password=HAND[1]
    )


def sync_hand(url: str) -> redis.Redis:
    """The same, for code without a loop."""
    return redis.Redis(unix_socket_path=urlsplit(url).path, username=HAND[0], password=HAND[1])
