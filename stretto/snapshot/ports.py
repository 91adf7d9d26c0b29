"""Host ports in use, a sparse table: (protocol, port) → row → ip → pods."""

from __future__ import annotations

from collections.abc import Iterable

from stretto.model.shape import HostPort

ANY_IP = "0.0.0.0"  # noqa: S104  the wildcard of the Pod API, nothing is bound here


class PortTable:
    """Which host ports the pods of each node hold. Two ports clash when protocol and port are equal
    and the ips are equal or either is the wildcard (upstream HostPortInfo)."""

    def __init__(self) -> None:
        self._used: dict[tuple[str, int], dict[int, dict[str, int]]] = {}

    def shift(self, row: int, ports: Iterable[HostPort], by: int) -> None:
        """Count ``by`` more (or fewer) pods with these ports on a row."""
        for port in ports:
            rows = self._used.setdefault((port.protocol, port.port), {})
            ips = rows.setdefault(row, {})
            left = ips.get(port.ip, 0) + by
            if left > 0:
                ips[port.ip] = left
                continue
            ips.pop(port.ip, None)
            if not ips:
                del rows[row]
                if not rows:
                    del self._used[port.protocol, port.port]

    def clashes(self, row: int, ports: Iterable[HostPort]) -> bool:
        """Whether any of the ports is taken on a row."""
        for port in ports:
            ips = self._used.get((port.protocol, port.port), _NONE).get(row)
            if ips and (port.ip == ANY_IP or port.ip in ips or ANY_IP in ips):
                return True
        return False

    def clashing_rows(self, ports: Iterable[HostPort]) -> list[int]:
        """Rows on which any of the ports is taken; may repeat a row."""
        found: list[int] = []
        for port in ports:
            rows = self._used.get((port.protocol, port.port), _NONE)
            if port.ip == ANY_IP:
                found.extend(rows)
            else:
                found.extend(r for r, ips in rows.items() if port.ip in ips or ANY_IP in ips)
        return found

    def clear(self, row: int) -> None:
        """Forget a row."""
        for key in [key for key, rows in self._used.items() if row in rows]:
            del self._used[key][row]
            if not self._used[key]:
                del self._used[key]

    def content(self) -> dict[tuple[str, int], dict[int, dict[str, int]]]:
        """The table itself, for comparing."""
        return self._used


_NONE: dict[int, dict[str, int]] = {}
