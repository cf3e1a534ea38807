"""Log one JSON object per line, with the field names that Cloud Logging and most collectors understand."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "color_message"}
"""Attributes of every record. The others were passed as `extra`."""


class JsonFormatter(logging.Formatter):
    """Formats a record as JSON. Texts and numbers that were passed as `extra` are fields of their own."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, str | float] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "severity": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in vars(record).items():
            if name not in STANDARD and isinstance(value, str | int | float) and value != "":
                entry.setdefault(name, value)
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def log_as_json(level: str = "INFO") -> None:
    """Send all logs to stderr, one JSON object per line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs every request
