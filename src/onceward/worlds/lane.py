"""What waits for the next call to the store, and which of it goes together.

At most so many requests and bytes a call, and one request a key: the second of two would be judged by what the first
one found. First come, first served, but for the second of a key, which goes with the call after.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, Protocol, TypeVar

from onceward.ports import AnyRequest

MOST = 256
MOST_BYTES = 1 << 20
OVERHEAD = 500  # bytes of a request without its result: names, marks, a note


class Waiting(Protocol):
    """A request with somebody who waits for its answer."""

    request: AnyRequest


W = TypeVar("W", bound=Waiting)


class Queue(Generic[W]):
    """Requests in the order of their arrival."""

    def __init__(self) -> None:
        self._waiting: deque[W] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, one: W) -> None:
        self._waiting.append(one)

    def remove(self, one: W) -> bool:
        """Whether it was still waiting."""
        try:
            self._waiting.remove(one)
        except ValueError:
            return False
        return True

    def first(self) -> W:
        return self._waiting[0]

    def take(self) -> list[W]:
        """What goes with the next call. Never empty: a request that is too large for any batch goes alone."""
        taken: list[W] = []
        ids: set[bytes] = set()
        left: list[W] = []
        size = 0
        while self._waiting and len(taken) < MOST:
            one = self._waiting.popleft()
            if one.request.id in ids:
                left.append(one)
                continue
            size += OVERHEAD + len(getattr(one.request, "result", None) or b"")
            if taken and size > MOST_BYTES:
                left.append(one)
                break
            ids.add(one.request.id)
            taken.append(one)
        self._waiting.extendleft(reversed(left))
        return taken
