"""Convert instants: microseconds since 1970 in UTC, the same number on every machine and in every database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def moment(instant: int) -> datetime:
    return _EPOCH + timedelta(microseconds=instant)


def instant(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)
