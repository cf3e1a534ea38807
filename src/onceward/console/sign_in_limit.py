"""Limit how often an address may try a token or password."""

from __future__ import annotations

import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

MAX_FAILURES: Final = 10
SECONDS: Final = 60
"""An address with this many wrong secrets within this time has to wait, even if it then sends the right one."""

MAX_ADDRESSES: Final = 10_000
"""Beyond this number, the address that failed first is forgotten."""


class SignInLimit:
    """Counts wrong tokens and passwords by address, in the memory of this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def seconds_to_wait(self, request: Request) -> int:
        """Return how long the sender has to wait before the next attempt; 0 if they may try now."""
        failures = self._failures.get(address_of(request))
        if failures is None or len(failures) < MAX_FAILURES:
            return 0
        return max(0, math.ceil(failures[0] + SECONDS - self._clock()))

    def count_failure(self, request: Request) -> None:
        address = address_of(request)
        self._failures.setdefault(address, deque(maxlen=MAX_FAILURES)).append(self._clock())
        while len(self._failures) > MAX_ADDRESSES:
            self._failures.popitem(last=False)


def address_of(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def wait_text(seconds: int) -> str:
    return f"Too many wrong attempts from your address. Wait {seconds} s, then try again."


def too_many(seconds: int) -> Response:
    """Return the answer to a request that carries a secret, from an address that has to wait."""
    return PlainTextResponse(wait_text(seconds), 429, {"retry-after": str(seconds)})
