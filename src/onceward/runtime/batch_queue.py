"""The queue of requests for the next call to the store, and which of them are sent together.

A call is limited in requests and bytes, and has one request per key: a store would evaluate the second one against the
state before the first. Requests are sent in order, except the second one of a key, which is sent in the next call.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from onceward.protocol.requests import AnyRequest

MAX_BATCH = 256
MAX_BATCH_BYTES = 1 << 20
OVERHEAD = 500  # bytes of a request without its result: names, fingerprints, a note


class Waiting(Protocol):
    """A request whose caller waits for the answer. The sender sets `taken` first and then checks `left`."""

    request: AnyRequest
    deadline: float  # on our own clock
    left: bool  # the caller no longer waits: do not send it
    taken: bool  # it is being sent
    taker: Waiting | None  # by the thread of this request; if that has left, it is not sent

    def leave(self) -> None:
        """Its deadline has passed, and it was not sent."""


class Timed(Protocol):
    """Something with a deadline."""

    deadline: float  # on our own clock


def size_of(request: AnyRequest) -> int:
    """Return the approximate size of the request in bytes."""
    return OVERHEAD + len(getattr(request, "result", None) or b"")


def remaining(one: Timed) -> float:
    """Return the seconds until its deadline."""
    return max(0.0, one.deadline - time.monotonic())


W = TypeVar("W", bound=Waiting)


class BatchQueue(Generic[W]):
    """Requests in order of arrival. Any thread may add. One thread should take at a time; two would each get a part."""

    def __init__(self) -> None:
        self._waiting: deque[W] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[W]:
        return iter(tuple(self._waiting))

    def add(self, one: W) -> None:
        self._waiting.append(one)

    def put_back(self, taken: Sequence[W]) -> None:
        """Put requests back to the front of the queue."""
        for one in taken:
            one.taken = False
        self._waiting.extendleft(reversed(taken))

    def first(self) -> W | None:
        """Return the first request whose caller still waits, or None."""
        while self._waiting:
            try:
                one = self._waiting[0]
            except IndexError:  # another thread took it
                break
            if not one.left:
                return one
            with suppress(ValueError):  # not `popleft`: if another thread took it, that would drop the next one
                self._waiting.remove(one)
        return None

    def take(
        self, most: int = MAX_BATCH, taker: Waiting | None = None, in_flight_ids: Collection[bytes] = frozenset()
    ) -> list[W]:
        """Return the requests of the next call. A request that is too large for any batch is sent alone.

        `in_flight_ids` are ids in another call: requests for them must wait. Requests past their deadline are not sent,
        because the earliest deadline limits the whole call.
        """
        later: list[W] = []
        try:
            return self._take(most, taker, later, set(in_flight_ids))
        finally:  # also if a signal handler raises
            self._waiting.extendleft(reversed(later))
            for one in later:  # only now: a request that is neither taken nor queued is queued again by its thread
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
            one.taker, one.taken = taker, True  # before anything else: a signal handler may raise
            if one.request.id in ids:
                later.append(one)
                continue
            size += size_of(one.request)
            if taken and size > MAX_BATCH_BYTES:
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
