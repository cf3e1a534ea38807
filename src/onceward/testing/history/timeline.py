"""Derive bounds on the store's clock from the answers of a history.

The store read the `now` of an answer between the call and the return. If its clock never goes back, a call made after
that return cannot get an earlier time. This does not depend on the difference between the store's clock and ours.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

from .operation import Lookup, Operation

END_OF_TIME = 2**62
"""Later than any time of any clock."""


class Contradiction(NamedTuple):
    """Two operations of which the later one got an earlier time."""

    earlier: Operation
    later: Operation


class Timeline:
    """Bounds on the store's time, from all answers of a history. If `tolerance` is None, there are no bounds."""

    def __init__(self, operations: Iterable[Operation], tolerance: int | None) -> None:
        self.tolerance = tolerance
        with_time = [one for one in operations if one.answer is not None and not isinstance(one.request, Lookup)]
        answered = with_time if tolerance is not None else []
        self._by_return = sorted(answered, key=end_of)
        self._by_call = sorted(answered, key=lambda one: one.called)
        self._returns = [end_of(one) for one in self._by_return]
        self._calls = [one.called for one in self._by_call]
        self._highest = list(accumulate(map(_now, self._by_return), max))
        self._lowest = list(accumulate(map(_now, reversed(self._by_call)), min))[::-1]

    def earliest(self, called: int) -> int:
        """Return the earliest store time at which a request sent at this instant can have been processed."""
        before = bisect_left(self._returns, called)
        return self._highest[before - 1] - (self.tolerance or 0) if before else 0

    def latest(self, returned: int | None) -> int:
        """Return the latest store time at which a request that took effect by this instant can have been processed."""
        after = len(self._calls) if returned is None else bisect_right(self._calls, returned)
        return self._lowest[after] + (self.tolerance or 0) if after < len(self._calls) else END_OF_TIME

    def contradiction(self) -> Contradiction | None:
        """Return two answers between which the clock went back: the first such call, and the latest time before it."""
        for one in self._by_call:
            if _now(one) < self.earliest(one.called):
                before = self._by_return[: bisect_left(self._returns, one.called)]
                return Contradiction(max(before, key=_now), one)
        return None


def end_of(one: Operation) -> int:
    """Return when the call returned. Without a return, it may take effect at any later time."""
    return END_OF_TIME if one.returned is None else one.returned


def _now(one: Operation) -> int:
    return 0 if one.answer is None else one.answer.now
