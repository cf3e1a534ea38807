"""Recognise small values: hashing, encoding or decoding them takes less time than a switch to another thread."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Mapping
from typing import Any, Final

from onceward.protocol.signals import came_by_signal

LIGHT_BYTES: Final = 16 * 1024  # encoded, compressed and hashed in well under a millisecond
_PIECES: Final = 64  # the maximum number of members of a container
_SCALARS: Final = frozenset(
    (type(None), bool, float, decimal.Decimal, uuid.UUID, dt.date, dt.datetime, dt.time, dt.timedelta)
)
_TEXTS: Final = frozenset((str, bytes, bytearray))
_CONTAINERS: Final = frozenset((tuple, list, set, frozenset))


def is_light(value: Any) -> bool:
    """Return whether the value is a scalar, a short text or a small container. Checks a few dozen members at most."""
    kind = type(value)
    if kind in _TEXTS:
        return len(value) <= LIGHT_BYTES
    if kind in _SCALARS:
        return True
    if kind is int:
        return bool(value.bit_length() <= LIGHT_BYTES)
    return _are_light([value])


def are_light(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a call's arguments are light, taken together."""
    if kwargs or len(args) > 1:
        return _are_light([args, kwargs])
    return not args or is_light(args[0])


def _are_light(pieces: list[Any]) -> bool:
    room, seen = LIGHT_BYTES, 0
    while pieces:
        value = pieces.pop()
        kind = type(value)
        seen += 1
        if kind in _TEXTS:
            room -= len(value)
        elif kind is int:
            room -= value.bit_length() >> 3
        elif kind not in _SCALARS:
            inside = _inside(kind, value)
            if inside is None or len(inside) > _PIECES:
                return False
            pieces += inside.keys() if isinstance(inside, dict) else ()
            pieces += inside.values() if isinstance(inside, dict) else inside
        if room < 0 or seen + len(pieces) > 2 * _PIECES:
            return False
    return True


def _inside(kind: type, value: Any) -> Any:
    """Return the members of a container, or the attributes of an instance; None if they cannot be read directly."""
    if kind is dict or kind in _CONTAINERS:
        return value
    try:
        held = getattr(value, "__dict__", None)
    except Exception as error:  # a lazy proxy whose object is gone; the work is already done, so do not raise
        if came_by_signal(error):
            raise
        return None
    return held if type(held) is dict else None
