"""Errors of the streams."""

from __future__ import annotations

from stretto.model.errors import OperatorError


class RpcError(Exception):
    """Base of what goes wrong on a stream in normal life; the caller reconnects."""


class PeerGone(RpcError):  # noqa: N818  a result in normal life, not an error
    """The stream broke or could not be opened; the text names the peer and the reason."""


class NotLeader(RpcError):  # noqa: N818
    """The peer is a standby."""

    def __init__(self, leader: str, *, peer: str = "") -> None:
        """``peer``: the address of who said so; the Lease may name it still from its last life."""
        named = bool(leader) and leader == peer
        text = ", though the Lease names it" if named else f"; it is {leader or 'unknown'}"
        super().__init__(f"not the leader{text}")
        self.leader = leader


class WireError(RpcError, ValueError):
    """A message that breaks the contract: which field, what it holds, what was expected.

    The server ends the stream of that peer with INVALID_ARGUMENT; other streams go on.
    """


def check_profiles(theirs: str, ours: str, *, peer: str) -> None:
    """Refuse a peer that decides by another configuration than ours.

    Raises:
        WireError: the digests differ.
    """
    if theirs != ours:
        raise WireError(
            f"{peer} decides by configuration {theirs}, this process by {ours}; start both with "
            "the same --config, --feature-gates and plugins"
        )


class RpcConfigError(OperatorError):
    """An address, a certificate file or a port that cannot be used."""
