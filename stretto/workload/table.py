"""CSV files, plain or gzip, read with a clear word about what is wrong on which line."""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from stretto.model.errors import OperatorError

MAX_NUMBER = 2**53
"""Beyond any amount or time of a trace; larger numbers are a defect of the file."""


class TraceError(OperatorError, ValueError):
    """A trace that cannot be read: file, line, column, what is wrong."""


class Row:
    """One line of a table."""

    __slots__ = ("_cells", "_columns", "_where")

    def __init__(self, cells: Sequence[str], *, columns: dict[str, int], where: str) -> None:
        self._cells = cells
        self._columns = columns
        self._where = where

    def error(self, text: str) -> TraceError:
        """An error about this line."""
        return TraceError(f"{self._where}: {text}")

    def text(self, column: str, *, default: str | None = None) -> str:
        """A cell; an empty or missing one reads as ``default``.

        Raises:
            TraceError: empty, and no default is given.
        """
        at = self._columns.get(column)
        value = "" if at is None else self._cells[at].strip()
        if value:
            return value
        if default is None:
            raise self.error(f"column {column} is empty")
        return default

    def number(self, column: str, *, default: float | None = None) -> float:
        """A cell as a number of 0 or more.

        Raises:
            TraceError: not such a number.
        """
        text = self.text(column, default=None if default is None else "")
        if not text:
            assert default is not None
            return default
        try:
            value = float(text) if len(text) <= 40 else math.nan
        except ValueError:
            value = math.nan
        if not 0 <= value <= MAX_NUMBER:
            raise self.error(f"column {column}: {text[:40]!r} is not a number of 0 or more")
        return value

    def whole(self, column: str, *, default: int | None = None) -> int:
        """A cell as a whole number of 0 or more; ``12.0`` is one.

        Raises:
            TraceError: not such a number.
        """
        value = self.number(column, default=default)
        if value != int(value):
            raise self.error(f"column {column}: {value} is not a whole number")
        return int(value)


class Table:
    """A CSV file with a header line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _opened(path) as lines:
            header = self._first(lines)
        self.columns = {name.strip(): i for i, name in enumerate(header)}

    def _first(self, lines: IO[str]) -> list[str]:
        try:
            header = next(csv.reader(lines), None)
        except csv.Error as error:
            raise TraceError(f"{self.path}:1: {error}") from None
        if not header or not any(name.strip() for name in header):
            raise TraceError(f"{self.path}:1: no header line; the first line names the columns")
        return header

    def require(self, *names: str) -> None:
        """Check that columns are there.

        Raises:
            TraceError: naming those that are not.
        """
        missing = [name for name in names if name not in self.columns]
        if missing:
            raise TraceError(f"{self.path}:1: the header lacks {', '.join(missing)}")

    def rows(self) -> Iterator[Row]:
        """The lines after the header; empty ones are skipped.

        Raises:
            TraceError: a line with too many or too few cells, or the file is damaged.
        """
        with _opened(self.path) as lines:
            reader = csv.reader(lines)
            try:
                next(reader)
                for cells in reader:
                    if not cells:
                        continue
                    where = f"{self.path}:{reader.line_num}"
                    if len(cells) != len(self.columns):
                        raise TraceError(
                            f"{where}: {len(cells)} cells, but the header names "
                            f"{len(self.columns)} columns"
                        )
                    yield Row(cells, columns=self.columns, where=where)
            except csv.Error as error:
                raise TraceError(f"{self.path}:{reader.line_num}: {error}") from None


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    """The text of a file; gzip is told by its first bytes."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            source: IO[bytes] = gzip.GzipFile(fileobj=file) if packed else file  # type: ignore[assignment]
            yield io.TextIOWrapper(source, encoding="utf-8", newline="")
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TraceError(f"{path}: cannot be read: {reason}") from None
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: not UTF-8 text at byte {error.start} of a block") from None
