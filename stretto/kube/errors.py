"""What can go wrong with the API server, each as one line that says what, where and what to do."""

from __future__ import annotations

from stretto.model.errors import OperatorError


class KubeError(OperatorError):
    """Base of everything that Kubernetes access raises; its text is one line for the operator."""


class ConfigError(KubeError):
    """The credentials or the address cannot be used as given."""


class KubeUnreachable(KubeError):  # noqa: N818 - reads as a result
    """No usable answer came. Whether a write was carried out is unknown.

    ``sent`` is False only when the connection could not even be opened, so that nothing was carried
    out.
    """

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class KubeRefused(KubeError):  # noqa: N818
    """The API server answered a read with something other than success."""

    def __init__(self, message: str, *, status: int, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


class WatchGone(KubeError):  # noqa: N818
    """The version to continue from is too old (410): the list has to be read anew."""


class WatchStaleError(KubeError):
    """A watch does not show what the API server says: only a new list helps."""
