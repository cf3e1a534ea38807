"""When may a request without an answer have taken effect? Only these instants need to be tried.

What a request writes depends on the store's time, and nobody was told which. Between two thresholds of the record (the
end of its lease, of its window, of its delay) the table decides alike, so the decision depends only on the stretch. The
instant itself is either seen in the record that the next answer shows, and is then one of its times; or it is not seen,
and then it matters only for what has lapsed by then: for that, the first instant of a stretch is as good as any. Three
exceptions: a sliding window that must still be open when it next slides needs the last instants; the token of a grant
that nobody heard of may be known to its owner from elsewhere, and stand in another unanswered request; and a glance
shows but a part of the record, of which the rest may be shown to others later.
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
    """What the requests of a key tell about instants, whoever sent them."""

    def __init__(self, required: Iterable[Operation], optional: Iterable[Operation]) -> None:
        unanswered = [one.request for one in optional]
        self._tokens = sorted({token for request in unanswered for token in _tokens(request)})
        self._slides = {length for request in unanswered for length in _slides(request)}
        self._later: dict[int | bytes, set[int]] = {}
        for one in required:
            self._slides |= _slides(one.request)
            if one.answer is not None and one.answer.record is not None and not isinstance(one.request, Lookup):
                for owner in (one.answer.record.token, one.answer.record.nonce):
                    self._later.setdefault(owner, set()).update(_shown(one.answer.record))

    def instants(self, low: int, high: int, record: Record | None, effect: Request, goal: Operation) -> list[int]:
        """Instants in [low, high] on the store's clock, for this effect on this record if it led to this answer."""
        assert goal.answer is not None
        found = [*_shown(goal.answer.record), *stretches(low, high, record)]
        if isinstance(goal.request, Lookup):  # which shows few times; somebody may be shown the others later
            for owner in (getattr(effect, "token", -1), getattr(effect, "nonce", NO_OWNER)):
                found += self._later.get(owner, ())
            found += _of_a_window(goal.answer.record, effect)
        found += self._tokens[bisect_left(self._tokens, low) : bisect_right(self._tokens, high)]
        ends = {goal.answer.now, *([goal.answer.record.updated_at] if goal.answer.record is not None else [])}
        for _ in range(2):  # a completion and a replay may both have gone unanswered
            ends |= {end - length + 1 for end in ends for length in self._slides}
        found += ends
        return [now for now in dict.fromkeys(found) if low <= now <= high]


def stretches(low: int, high: int, record: Record | None) -> list[int]:
    """The first instant of each stretch in [low, high], and the last of all: what acts at none of them never acts."""
    return [low, high, *(time for time in _thresholds(record) if low < time < high)] if low <= high else []


def _of_a_window(shown: Record | None, effect: Request) -> list[int]:
    """When this completion would have opened the window that was shown, or this replay moved it."""
    if shown is None or shown.valid_until is None:
        return []
    lasting = effect.validity.lasting if isinstance(effect, Complete | Resolve) else shown.slide
    return [] if lasting is None else [shown.valid_until - lasting]


def _slides(request: Request) -> set[int]:
    """How long the sliding window is that this request opens."""
    if isinstance(request, Complete | Resolve) and request.validity.slide:
        return {request.validity.slide, request.validity.lasting or 0}
    return set()


def _tokens(request: Request) -> tuple[int, ...]:
    """The token that this request names, which was the time of a grant, or one more than the token before it."""
    token = getattr(request, "token", None) or getattr(request, "token_seen", None)
    return () if token is None else (token, token - 1)


def _shown(record: Record | None) -> tuple[int, ...]:
    """Times that may have been written by the effect. A token follows the one before where the time stood still."""
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
    """From when on the table decides otherwise, or lets a purge take the record."""
    if record is None:
        return []
    times = [record.lease_until, record.valid_until, record.retry_at, record.token + CLOCK_MARGIN + 1]
    if record.lease_until is not None:
        times.append(record.lease_until + KEEP_UNFINISHED)
    if record.slide and record.valid_until is not None:
        times.append(record.valid_until - record.slide + record.slide // 8)
    return [time for time in times if time is not None]
