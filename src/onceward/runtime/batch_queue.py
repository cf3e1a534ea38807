"""What waits for the next call to the store, and which of it goes together.

At most so many requests and bytes a call, and one request a key: the second of two would be judged by what the first
one found. First come, first served, but for the second of a key, which goes with the call after.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from onceward.protocol.requests import AnyRequest

MOST = 256
MOST_BYTES = 1 << 20
OVERHEAD = 500  # bytes of a request without its result: names, marks, a note


class Waiting(Protocol):
    """A request with somebody who waits for its answer. Marked `taken` first and then asked whether it has `left`."""

    request: AnyRequest
    deadline: float  # on our own clock
    left: bool  # nobody waits any more: it is not to be sent
    taken: bool  # it is being sent
    taker: Waiting | None  # by whose hand; one that has left sends nothing any more

    def leave(self) -> None:
        """Its time is over, and it was not sent."""


class Timed(Protocol):
    """What has to be done by a certain time."""

    deadline: float  # on our own clock


def size_of(request: AnyRequest) -> int:
    """About how many bytes it takes in a call."""
    return OVERHEAD + len(getattr(request, "result", None) or b"")


def remaining(one: Timed) -> float:
    """Seconds until its time is over."""
    return max(0.0, one.deadline - time.monotonic())


W = TypeVar("W", bound=Waiting)


class BatchQueue(Generic[W]):
    """Requests in the order of their arrival. Anybody may add. One at a time should take; two get each a part of it."""

    def __init__(self) -> None:
        self._waiting: deque[W] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[W]:
        return iter(tuple(self._waiting))

    def add(self, one: W) -> None:
        self._waiting.append(one)

    def put_back(self, taken: Sequence[W]) -> None:
        """Before all others: they were taken first."""
        for one in taken:
            one.taken = False
        self._waiting.extendleft(reversed(taken))

    def first(self) -> W | None:
        """Whose turn it is; None if nobody waits."""
        while self._waiting:
            try:
                one = self._waiting[0]
            except IndexError:  # somebody else took it
                break
            if not one.left:
                return one
            with suppress(ValueError):  # not `popleft`: if somebody else took it, that would drop the next one
                self._waiting.remove(one)
        return None

    def take(self, most: int = MOST, taker: Waiting | None = None, flying: Collection[bytes] = frozenset()) -> list[W]:
        """What goes with the next call. A request that is too large for any batch goes alone.

        `flying` are ids that are under way in another call: what waits for these goes after it. Whose time is over
        does not go: a call is as short as the most hurried of its requests wants it.
        """
        later: list[W] = []
        try:
            return self._take(most, taker, later, set(flying))
        finally:  # also if a signal raises
            self._waiting.extendleft(reversed(later))
            for one in later:  # only now: whoever is neither taken nor in the queue lines up again
                one.taken = False

    def _take(self, most: int, taker: Waiting | None, later: list[W], ids: set[bytes]) -> list[W]:
        taken: list[W] = []
        now = time.monotonic()
        size = 0
        while len(taken) < most:
            try:
                one = self._waiting.popleft()
            except IndexError:
                break
            one.taker, one.taken = taker, True  # before anything else: a signal may raise
            if one.request.id in ids:
                later.append(one)
                continue
            size += size_of(one.request)
            if taken and size > MOST_BYTES:
                later.append(one)
                break
            if one.left:
                continue
            if one.deadline <= now:
                one.leave()
                continue
            ids.add(one.request.id)
            taken.append(one)
        return taken
