"""Logs: one JSON object a line for machines, or one line of text for people, on stderr."""

from __future__ import annotations

import json
import logging
import sys
import time

from stretto.config.common import check_logs

MAX_TEXT = 4096
"""Characters of a message that are kept: user text must not fill a disk."""


class JsonFormatter(logging.Formatter):
    """A record as one JSON object: ts, level, logger, msg, and exc for a defect."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, object] = {
            "ts": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage()[:MAX_TEXT],
        }
        if record.exc_info:
            line["exc"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """A record as a line for people; control characters of user text are escaped."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname).1s %(name)s: %(message)s", datefmt="%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        """The line without its stack trace."""
        text = super().formatMessage(record)[:MAX_TEXT]
        return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def setup_logging(*, format: str = "json", level: str = "info") -> None:  # noqa: A002
    """Configure the process's logs.

    Raises:
        ConfigError: unknown format or level.
    """
    check_logs(format=format, level=level)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
