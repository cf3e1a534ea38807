"""Limit how many new keys and response bytes one principal may use in a period.

Each process counts separately, in memory: with four processes, a principal can use up to four times the quota. A retry
in a later period counts as a new key.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from onceward.errors import ConfigurationError
from onceward.protocol.duration import Duration, microseconds
from onceward.protocol.policy import SECOND

__all__ = ["Quota"]

MAX_PRINCIPALS: Final = 10_000
"""Principals that are counted at the same time. Beyond that, the one that was idle for longest restarts at zero."""


class Quota(msgspec.Struct, frozen=True):
    """What one principal may use in each period: `keys` new keys, and `bytes` of response bodies.

    `per` is the length of the period. It starts with the principal's first request.
    """

    keys: int
    bytes: int
    per: Duration = "1d"

    def __post_init__(self) -> None:
        for name in ("keys", "bytes"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigurationError(
                    f"Quota({name}={value!r}) allows no request", hint=f"pass a positive number, such as {name}=10_000"
                )
        if not microseconds(self.per, "per"):
            raise ConfigurationError("Quota(per=0) is not a period", hint='pass a duration such as "1d"')


class _Usage:
    """What one principal has used since `start`."""

    __slots__ = ("keys", "size", "start")

    def __init__(self, start: float) -> None:
        self.start = start
        self.keys: set[bytes] = set()
        self.size = 0


class QuotaCounter:
    """Counts the usage of each principal. Thread-safe."""

    def __init__(self, quota: Quota, clock: Callable[[], float] = time.monotonic) -> None:
        self._quota = quota
        self._period = microseconds(quota.per, "per") / SECOND
        self._clock = clock
        self._usage: OrderedDict[str, _Usage] = OrderedDict()
        self._lock = threading.Lock()

    def admit(self, principal: str, key_id: bytes) -> float | None:
        """Count the key and return None. If the quota is used up, return the seconds until the next period.

        A key that was counted in this period is always admitted, so that the client can fetch its stored response.
        """
        with self._lock:
            now = self._clock()
            usage = self._current(principal, now)
            if key_id in usage.keys:
                return None
            if len(usage.keys) >= self._quota.keys or usage.size >= self._quota.bytes:
                return usage.start + self._period - now
            usage.keys.add(key_id)
            return None

    def add_bytes(self, principal: str, size: int) -> None:
        """Count a part of a response body."""
        with self._lock:
            self._current(principal, self._clock()).size += size

    def _current(self, principal: str, now: float) -> _Usage:
        usage = self._usage.get(principal)
        if usage is None or now >= usage.start + self._period:
            usage = self._usage[principal] = _Usage(now)
        self._usage.move_to_end(principal)
        if len(self._usage) > MAX_PRINCIPALS:
            self._usage.popitem(last=False)
        return usage
