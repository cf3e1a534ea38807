"""Convert a stored result to JSON. Types that JSON does not have get a documented form instead of Python's repr."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID


def as_json(value: Any) -> Any:
    """Return bytes as `{"bytes": base64}`, sets as lists, maps with non-str keys as pairs, times in ISO 8601."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return {"bytes": b64encode(value).decode("ascii")}
    if isinstance(value, dict):
        return _map_as_json(value)
    if isinstance(value, list | tuple):
        return [as_json(one) for one in value]
    if isinstance(value, set | frozenset):
        return [as_json(one) for one in sorted(value, key=repr)]
    return next((text(value) for kind, text in _TEXTS if isinstance(value, kind)), repr(value))


def _map_as_json(value: dict[Any, Any]) -> Any:
    if all(isinstance(key, str) for key in value):
        return {key: as_json(one) for key, one in value.items()}
    return [[as_json(key), as_json(one)] for key, one in value.items()]


_TEXTS: tuple[tuple[type, Callable[[Any], str]], ...] = (
    (datetime, datetime.isoformat),
    (date, date.isoformat),
    (time, time.isoformat),
    (timedelta, lambda one: f"{one.total_seconds():.6f}s"),
    (Decimal, str),
    (UUID, str),
)
