"""What a server checks of the first message of a stream, before it believes a word of it."""

from __future__ import annotations

from stretto.rpc.errors import WireError, check_profiles
from stretto.rpc.messages import PROTOCOL, ShardHello


def checked_hello(hello: ShardHello | None, *, message: str, profiles: str) -> ShardHello:
    """The hello of a stream's first ``message``, of a shard that speaks and decides as we do.

    Raises:
        WireError: there is none, or it is of another protocol or another configuration.
    """
    if hello is None:
        raise WireError(f"{message}.hello: the first message of a stream must say who the shard is")
    check_protocol(hello.protocol, field="ShardHello.protocol")
    check_profiles(hello.profiles, profiles, peer=f"shard {hello.shard}")
    return hello


def check_protocol(spoken: int, *, field: str) -> None:
    """Refuse a peer of another protocol.

    Raises:
        WireError: naming both.
    """
    if spoken != PROTOCOL:
        raise WireError(
            f"{field} is {spoken}, this process speaks {PROTOCOL}; upgrade the older of the two"
        )
