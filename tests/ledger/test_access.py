"""Who we are to the ledger's server, what we may do there, and what is refused."""

from __future__ import annotations

import asyncio
import pathlib
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
import redis.asyncio
from redis.exceptions import NoPermissionError, ResponseError

from stretto.config.addresses import is_loopback
from stretto.ledger.access import Access, is_local
from stretto.ledger.calls import SCRIPT
from stretto.ledger.client import Ledger
from stretto.ledger.server import EmbeddedServer
from stretto.ledger.server_check import (
    COMMANDS,
    FORBIDDEN,
    KEY_PATTERN,
    forbidden,
    known_hole,
    needed,
)
from stretto.ledger.types import LedgerRefused, LedgerUnavailable
from tests.ledger.records import node, unit
from tests.ledger.users import PASSWORD, acl_lines, by_hand
from tests.rpc.certificates import Authority, Issued

KEY = "{stretto:o}:meta"


def rules() -> list[str]:
    """Of the Binder's user in the deployment."""
    (words,) = [line for line in acl_lines() if line[0] == "stretto-binder"]
    return words


def test_the_deployed_rules_are_the_ledgers_commands_on_its_keys() -> None:
    words = rules()
    assert {w[1:] for w in words if w.startswith("+")} == set(COMMANDS)
    assert [w for w in words if w.startswith(("-", "~", "&"))] == [f"~{KEY_PATTERN}", "-@all"]
    assert not [w for w in words if w.startswith((">", "nopass"))], "the hash, not the password"
    (default,) = [line for line in acl_lines() if line[0] == "default"]
    assert default[1] == "off"


def test_the_script_calls_what_is_allowed() -> None:
    called = {w.lower() for w in re.findall(rb"redis\.p?call\('(\w+)'", SCRIPT)}
    assert called
    assert {word.decode() for word in called} <= set(COMMANDS)


async def test_the_binders_user_can_do_its_work_and_no_harm(server_url: str) -> None:
    """Not by the server's word: each forbidden command is really sent."""
    async with redis.asyncio.Redis.from_url(server_url) as client:
        for command in forbidden(KEY):
            # DEBUG is off in the server itself.
            with pytest.raises(ResponseError, match=r"(?i)no permissions|not allowed"):
                await client.execute_command(*command)
        refused = []
        for command in needed(KEY):
            try:
                await client.execute_command(*command)
            except NoPermissionError:
                refused.append(command)
            except ResponseError:  # NOSCRIPT
                pass
        assert not refused


@pytest.mark.parametrize("lacking", sorted(COMMANDS))
async def test_a_user_that_may_do_too_little_is_refused(server_url: str, lacking: str) -> None:
    """The line names what is missing, or how to let it be found out."""
    words = [w for w in rules() if w != f"+{lacking}"]
    url = await with_user(server_url, *words[1:])
    with pytest.raises(LedgerRefused, match=re.escape(lacking)) as caught:
        await Ledger.open(url, owner="o")
    assert "\n" not in str(caught.value)
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize("command", FORBIDDEN, ids=lambda c: "-".join(c[:2]))
async def test_a_user_that_may_do_too_much_is_refused(
    server_url: str, command: tuple[str, ...]
) -> None:
    more = ["~not-a-ledger"] if "OTHER" in command else [f"+{command[0]}"]
    url = await with_user(server_url, *rules()[1:], *more)
    with pytest.raises(LedgerRefused, match=f"more than the ledger needs: .*{command[0]}"):
        await Ledger.open(url, owner="o")
    ledger = await Ledger.open(url, owner="o", access=Access(insecure=True))
    await ledger.close()


async def with_user(url: str, *words: str) -> str:
    """A user of a server with these rules; the URL as that user."""
    async with by_hand(url) as hand:
        await hand.execute_command("ACL", "SETUSER", "other", "reset", *words)
    return url.replace("stretto-binder:", "other:")


async def test_a_server_that_lets_strangers_in_is_refused(tmp_path: pathlib.Path) -> None:
    """Our own user is as it should be, but so may anybody be."""
    async with EmbeddedServer(folder=tmp_path) as server:
        async with redis.asyncio.Redis.from_url(server.url) as hand:
            await hand.execute_command("ACL", "SETUSER", *rules())
        url = server.url.replace("://", f"://stretto-binder:{PASSWORD}@")
        with pytest.raises(LedgerRefused, match="without a login"):
            await Ledger.open(url, owner="o")


async def test_the_password_of_a_file_is_read_at_each_connection(
    server_url: str, tmp_path: pathlib.Path
) -> None:
    """A password may be changed under a Binder that runs."""
    file = tmp_path / "password"
    file.write_text(PASSWORD + "\n")
    url = server_url.replace(f":{PASSWORD}@", "@")
    ledger = await Ledger.open(url, owner="password", access=Access(password_file=file))
    await ledger.install(1)
    await ledger.set_accounts([node("n1")])
    try:
        async with by_hand(server_url) as hand:
            await hand.execute_command("ACL", "SETUSER", "stretto-binder", "resetpass", ">changed")
            await hand.execute_command("CLIENT", "KILL", "USER", "stretto-binder")
            file.write_text("changed")
            assert (await ledger.reserve([unit("u1", "n1")]))[0].kind.name == "GRANTED"
            await hand.execute_command(
                "ACL", "SETUSER", "stretto-binder", "resetpass", f">{PASSWORD}"
            )
    finally:
        await ledger.close()


@pytest.mark.parametrize(
    ("url", "access", "words"),
    [
        ("redis://10.0.0.1:1", Access(), "in plain text"),
        ("redis://user:pw@ledger:1", Access(), "in plain text"),
        ("redis://u:pw@localhost:1", Access(password_file=pathlib.Path("/dev/null")), "leave it"),
        ("redis://u@localhost:1", Access(password_file=pathlib.Path("/dev/null")), "is empty"),
        ("redis://u@localhost:1", Access(password_file=pathlib.Path("/absent")), "cannot be read"),
        ("rediss://u@ledger:1", Access(authority=pathlib.Path("/absent")), "--redis-authority"),
    ],
)
async def test_what_cannot_be_safe_is_refused_in_one_line(
    url: str, access: Access, words: str
) -> None:
    with pytest.raises(LedgerRefused, match=words) as caught:
        await Ledger.open(url, owner="o", access=access)
    assert "\n" not in str(caught.value)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    ("info", "known"),
    [
        ({"redis_version": "7.4.5"}, True),
        ({"redis_version": "7.4.6"}, False),
        ({"redis_version": "8.1.9"}, True),
        ({"redis_version": "8.4.0"}, False),
        ({"redis_version": "7.2.4", "valkey_version": "8.1.3"}, True),
        ({"redis_version": "7.2.4", "valkey_version": "9.1.2"}, False),
        ({"redis_version": "banana"}, False),
        ({}, False),
    ],
)
def test_a_server_with_a_known_hole_is_told_of(info: dict[str, str], known: bool) -> None:
    assert bool(known_hole(info)) is known


def test_what_is_on_this_machine() -> None:
    assert [is_local(u) for u in ("unix:///x", "redis://localhost:1", "redis://[::1]:1")] == [
        True, True, True,
    ]  # fmt: skip
    assert not is_local("redis://ledger:1")
    assert is_loopback("127.9.9.9")


# ------------------------------------------------------------------------------------------- TLS
@asynccontextmanager
async def behind_tls(url: str, own: Issued) -> AsyncIterator[int]:
    """A server's socket behind TLS that asks for a client's certificate; gives the port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.key)
    context.load_verify_locations(own.authority)
    context.verify_mode = ssl.CERT_REQUIRED
    path = re.sub(r"^unix://[^/]*", "", url)

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_unix_connection(path)
        await asyncio.gather(
            pump(reader, up_writer), pump(up_reader, writer), return_exceptions=True
        )

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@pytest.mark.parametrize("text", ["", "nonsense", "-----BEGIN CERTIFICATE-----\n"])
@pytest.mark.parametrize("flag", ["authority", "certificate", "key"])
async def test_a_file_that_is_no_certificate_is_named(
    tmp_path: pathlib.Path, flag: str, text: str
) -> None:
    """Not the server, which nobody has asked."""
    own = Authority(tmp_path).issue("stretto-binder")
    own_files = Access(authority=own.authority, certificate=own.certificate, key=own.key)
    broken = tmp_path / "broken"
    broken.write_text(text)
    access = msgspec.structs.replace(own_files, **{flag: broken})
    with pytest.raises(LedgerRefused, match=f"--redis-{flag} {broken}.*: not a PEM"):
        await Ledger.open("rediss://u@127.0.0.1:1", owner="o", access=access)


async def test_both_sides_prove_themselves(server_url: str, tmp_path: pathlib.Path) -> None:
    """The ledger over TLS: with our certificate; not with none, nor to somebody else's server."""
    authority = Authority(tmp_path / "ours")
    ours, other = authority.issue("stretto-binder"), Authority(tmp_path / "theirs").issue("x")
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    access = Access(
        password_file=file,
        authority=ours.authority,
        certificate=ours.certificate,
        key=ours.key,
    )
    async with behind_tls(server_url, authority.issue("ledger")) as port:
        url = f"rediss://stretto-binder@127.0.0.1:{port}"
        ledger = await Ledger.open(url, owner="tls", access=access)
        await ledger.install(1)
        await ledger.set_accounts([node("n1")])
        assert (await ledger.reserve([unit("u1", "n1")]))[0].kind.name == "GRANTED"
        await ledger.close()
        nameless = Access(password_file=file, authority=ours.authority)
        with pytest.raises(LedgerUnavailable, match="does not answer"):
            await Ledger.open(url, owner="tls", access=nameless)
    async with behind_tls(server_url, other) as port:
        with pytest.raises(LedgerUnavailable, match="certificate verify failed"):
            await Ledger.open(
                f"rediss://stretto-binder@127.0.0.1:{port}", owner="tls", access=access
            )
