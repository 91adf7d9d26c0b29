"""What is made of files that somebody renews, such as certificates: made again when they change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from stretto.model.errors import OperatorError

logger = logging.getLogger(__name__)
T = TypeVar("T")
Marks = tuple[tuple[int, int, int], ...]


class Renewable(Generic[T]):
    """Holds what ``make`` made of the files.

    Files that do not fit each other, as while they are being renewed one by one, change nothing;
    the next look tries again. The constructor raises what ``make`` raises.
    """

    def __init__(self, paths: Sequence[Path], make: Callable[[], T]) -> None:
        self._paths = paths
        self._make = make
        self._marks = self._seen()
        self._told = ""
        self.value = make()

    def _seen(self) -> Marks:
        try:
            found = [path.stat() for path in self._paths]
        except OSError:
            return ()
        return tuple((each.st_ino, each.st_mtime_ns, each.st_size) for each in found)

    @property
    def current(self) -> T:
        """What the files give now, or gave before they became unusable."""
        self.renewed()
        return self.value

    def renewed(self) -> T | None:
        """The value if the files gave a new one since the last look."""
        marks = self._seen()
        if marks == self._marks:
            return None
        try:
            self.value = self._make()
        except OperatorError as error:
            if str(error) != self._told:
                self._told = str(error)
                logger.warning("%s; what it held before is used", error)
            return None
        # Marks from before the reading: what was written meanwhile is read the next time.
        self._marks, self._told = marks, ""
        logger.info("%s was renewed", self._paths[0])
        return self.value
