"""What waits for the next call to the store, and which of it goes together.

At most so many requests and bytes a call, and one request a key: the second of two would be judged by what the first
one found. First come, first served, but for the second of a key, which goes with the call after.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from onceward.ports import AnyRequest

MOST = 256
MOST_BYTES = 1 << 20
OVERHEAD = 500  # bytes of a request without its result: names, marks, a note


class Waiting:
    """A request with somebody who waits for its answer. Marked `taken` first and then asked whether it has `left`."""

    __slots__ = ("left", "request", "taken")

    def __init__(self, request: AnyRequest) -> None:
        self.request = request
        self.left = False  # nobody waits any more: it is not to be sent
        self.taken = False  # it is being sent


W = TypeVar("W", bound=Waiting)


class Queue(Generic[W]):
    """Requests in the order of their arrival. Anybody may add; only one at a time may take."""

    def __init__(self) -> None:
        self._waiting: deque[W] = deque()

    def add(self, one: W) -> None:
        self._waiting.append(one)

    def first(self) -> W | None:
        """Whose turn it is; None if nobody waits."""
        waiting = self._waiting
        while waiting and waiting[0].left:
            waiting.popleft()
        return waiting[0] if waiting else None

    def take(self) -> list[W]:
        """What goes with the next call. A request that is too large for any batch goes alone."""
        taken: list[W] = []
        ids: set[bytes] = set()
        later: list[W] = []
        size = 0
        while self._waiting and len(taken) < MOST:
            one = self._waiting.popleft()
            if one.request.id in ids:
                later.append(one)
                continue
            size += OVERHEAD + len(getattr(one.request, "result", None) or b"")
            if taken and size > MOST_BYTES:
                later.append(one)
                break
            one.taken = True
            if not one.left:
                ids.add(one.request.id)
                taken.append(one)
        self._waiting.extendleft(reversed(later))
        return taken
