"""Compute the instants at which a request without an answer may have taken effect. Only these must be tried.

What a request writes depends on the store's time, which is unknown without an answer. Between two thresholds of the
record (the end of its lease, its window, its retry delay) the state table makes the same decision, so only the interval
between thresholds matters. There are two cases:

- The instant is visible in the record of the next answer. Then it is one of the times in that record.
- It is not visible. Then it matters only for what has expired by then, and the first instant of the interval is enough.

Three exceptions: a sliding window that must still be open when it slides next needs the last instants; the token of a
grant whose answer was lost may be known to its owner in another way, and appear in another unanswered request; and a
lookup returns only a part of the record, so other answers may show the rest later.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from onceward.protocol.cells import KEEP_UNFINISHED
from onceward.protocol.record import NO_OWNER, Record
from onceward.protocol.requests import Complete, Resolve
from onceward.protocol.transitions import CLOCK_MARGIN

from .operation import Lookup, Operation, Request


class Hints:
    """What the requests of a key reveal about instants, whichever caller sent them."""

    def __init__(self, required: Iterable[Operation], optional: Iterable[Operation]) -> None:
        unanswered = [one.request for one in optional]
        self._tokens = sorted({token for request in unanswered for token in _tokens(request)})
        self._slides = {length for request in unanswered for length in _slides(request)}
        self._later: dict[int | bytes, set[int]] = {}
        for one in required:
            self._slides |= _slides(one.request)
            if one.answer is not None and one.answer.record is not None and not isinstance(one.request, Lookup):
                for owner in (one.answer.record.token, one.answer.record.nonce):
                    self._later.setdefault(owner, set()).update(_times_of(one.answer.record))

    def instants(self, low: int, high: int, record: Record | None, effect: Request, goal: Operation) -> list[int]:
        """Return instants in [low, high] of the store's clock at which `effect` on `record` could explain `goal`."""
        assert goal.answer is not None
        found = [*_times_of(goal.answer.record), *intervals(low, high, record)]
        if isinstance(goal.request, Lookup):  # it shows few times; later answers may show the others
            for owner in (getattr(effect, "token", -1), getattr(effect, "nonce", NO_OWNER)):
                found += self._later.get(owner, ())
            found += _window_start(goal.answer.record, effect)
        found += self._tokens[bisect_left(self._tokens, low) : bisect_right(self._tokens, high)]
        ends = {goal.answer.now, *([goal.answer.record.updated_at] if goal.answer.record is not None else [])}
        for _ in range(2):  # a completion and a replay may both be unanswered
            ends |= {end - length + 1 for end in ends for length in self._slides}
        found += ends
        return [now for now in dict.fromkeys(found) if low <= now <= high]


def intervals(low: int, high: int, record: Record | None) -> list[int]:
    """Return the first instant of each interval in [low, high], and the last of all.

    A request without an effect at any of them has none at all.
    """
    return [low, high, *(time for time in _thresholds(record) if low < time < high)] if low <= high else []


def _window_start(shown: Record | None, effect: Request) -> list[int]:
    """Return when this completion would have opened the window that is shown, or when this replay extended it."""
    if shown is None or shown.valid_until is None:
        return []
    lasting = effect.validity.lasting if isinstance(effect, Complete | Resolve) else shown.slide
    return [] if lasting is None else [shown.valid_until - lasting]


def _slides(request: Request) -> set[int]:
    """Return the lengths of the sliding window that this request opens."""
    if isinstance(request, Complete | Resolve) and request.validity.slide:
        return {request.validity.slide, request.validity.lasting or 0}
    return set()


def _tokens(request: Request) -> tuple[int, ...]:
    """Return the instants that this request's token implies: the time of a grant, or the previous token plus one."""
    token = getattr(request, "token", None) or getattr(request, "token_seen", None)
    return () if token is None else (token, token - 1)


def _times_of(record: Record | None) -> tuple[int, ...]:
    """Return the times that the effect may have written. A token is the previous one plus one if time stood still."""
    if record is None:
        return ()
    return (
        record.updated_at,
        record.renewed_at,
        record.claimed_at,
        record.created_at,
        record.token,
        record.token - 1,
        record.cycle,
        record.cycle - 1,
    )


def _thresholds(record: Record | None) -> list[int]:
    """Return the times from which the table decides differently, or a purge may delete the record."""
    if record is None:
        return []
    times = [record.lease_until, record.valid_until, record.retry_at, record.token + CLOCK_MARGIN + 1]
    if record.lease_until is not None:
        times.append(record.lease_until + KEEP_UNFINISHED)
    if record.slide and record.valid_until is not None:
        times.append(record.valid_until - record.slide + record.slide // 8)
    return [time for time in times if time is not None]
