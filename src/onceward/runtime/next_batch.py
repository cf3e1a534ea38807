"""Choose which waiting requests are sent together in the next call to the store, for threads and event loops.

A call is limited in requests and bytes, and has one request per key: a store would evaluate the second one against the
state before the first. Requests are sent in order, except the second one of a key, which is sent in a later call.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Protocol, TypeVar

from onceward.protocol.requests import AnyRequest

MAX_BATCH = 256
MAX_BATCH_BYTES = 1 << 20
OVERHEAD = 500  # bytes of a request without its result: names, fingerprints, a note
BUSY_TOO_LONG = "other calls of this process kept the store busy for too long"


class Waiting(Protocol):
    """A request whose caller waits for the answer."""

    request: AnyRequest
    deadline: float  # on our own clock
    alone: bool  # a batch that contained it failed: send it without others

    def is_done(self) -> bool:
        """Return whether it has an answer, or its caller no longer waits."""
        ...

    def leave(self) -> None:
        """Its deadline has passed, and it was not sent."""


class Timed(Protocol):
    """Something with a deadline."""

    deadline: float  # on our own clock


def remaining(one: Timed) -> float:
    """Return the seconds until its deadline."""
    return max(0.0, one.deadline - time.monotonic())


W = TypeVar("W", bound=Waiting)


def next_batch(
    waiting: Sequence[W], limit: int = MAX_BATCH, in_flight_ids: Collection[bytes] = ()
) -> tuple[list[W], list[W]]:
    """Return the requests of the next call, and those that keep waiting.

    A request that is too large for any batch is sent alone. `in_flight_ids` are the keys of another call: requests for
    them must wait. Requests past their deadline are not sent: the earliest deadline limits the whole call.
    """
    ids, size, now = set(in_flight_ids), 0, time.monotonic()
    batch: list[W] = []
    later: list[W] = []
    for position, one in enumerate(waiting):
        if one.deadline <= now:
            one.leave()
        if one.is_done():
            continue
        if one.request.id in ids or (one.alone and batch):
            later.append(one)
            continue
        size += OVERHEAD + len(getattr(one.request, "result", None) or b"")
        if batch and (batch[0].alone or size > MAX_BATCH_BYTES or len(batch) == limit):
            later += waiting[position:]
            break
        ids.add(one.request.id)
        batch.append(one)
    return batch, later
