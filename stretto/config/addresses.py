"""Addresses as flags give them."""

from __future__ import annotations

import ipaddress

from stretto.model.errors import OperatorError


class AddressError(OperatorError, ValueError):
    """A text that is not host:port."""


def split_address(address: str, *, flag: str = "") -> tuple[str, int]:
    """host:port, with an IPv6 host in brackets; ``flag`` is named in the refusal.

    Raises:
        AddressError: not of that form.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port[:6]) > 65535:
        named = f"{flag} " if flag else ""
        raise AddressError(
            f"{named}{address[:80]!r} is not an address: write host:port, such as 127.0.0.1:7070"
        )
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """The host is this machine and cannot be reached from another."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
