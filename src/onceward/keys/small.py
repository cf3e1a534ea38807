"""Decide whether a value is hashed or encoded directly on the event loop, or in a worker thread."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Collection
from typing import Any, Final

SMALL_BYTES: Final = 16 * 1024
"""Up to this size, hashing, encoding or decoding takes less than a millisecond: not worth a switch of threads."""

_PER_VALUE: Final = 64
"""Bytes that each value counts, in addition to its text: some types are encoded in Python, one value at a time."""

_SCALARS: Final = frozenset(
    (type(None), bool, float, decimal.Decimal, uuid.UUID, dt.date, dt.datetime, dt.time, dt.timedelta)
)
_TEXTS: Final = frozenset((str, bytes, bytearray))
_CONTAINERS: Final = frozenset((tuple, list, set, frozenset))


def is_small(value: Any) -> bool:
    """Return whether the value, with everything in it, is certainly small. Looks at 256 values at most."""
    room, pending = SMALL_BYTES, [value]
    while pending:
        one = pending.pop()
        kind = type(one)
        if kind in _TEXTS:
            room -= len(one)
        elif kind is int:
            room -= one.bit_length() // 8
        elif kind not in _SCALARS:
            members = one if kind in _CONTAINERS else _attributes(kind, one)
            if members is None or len(members) * _PER_VALUE > room:
                return False
            pending += members
        room -= _PER_VALUE
        if room < 0:
            return False
    return True


def _attributes(kind: type, value: Any) -> Collection[Any] | None:
    """Return the items of a dict, or the attributes of an instance. None: their number is not known."""
    if kind is not dict:
        try:
            value = getattr(value, "__dict__", None)
        except Exception:  # noqa: BLE001 (a lazy proxy whose object is gone; a result is already computed: do not raise)
            return None
        if type(value) is not dict:
            return None
    return [*value.keys(), *value.values()]
