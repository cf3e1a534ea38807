"""The store's clock as the answers show it: between which of its times does an instant lie?

An answer's `now` was read between the call and the return. So a clock that never goes back, once it was seen to show a
time, shows no earlier one to a call made after that. This needs no idea of how the store's clock and ours differ.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

from .operation import Lookup, Operation

ALWAYS = 2**62
"""Later than any time of any clock."""


class Contradiction(NamedTuple):
    """The later call was answered with an earlier time."""

    earlier: Operation
    later: Operation


class Timeline:
    """Bounds on the store's time, from all answers of a history. `tolerance` None: nothing is known about the clock."""

    def __init__(self, operations: Iterable[Operation], tolerance: int | None) -> None:
        self.tolerance = tolerance
        telling = [one for one in operations if one.answer is not None and not isinstance(one.request, Lookup)]
        answered = telling if tolerance is not None else []
        self._by_return = sorted(answered, key=_returned)
        self._by_call = sorted(answered, key=_called)
        self._returns = [_returned(one) for one in self._by_return]
        self._calls = [_called(one) for one in self._by_call]
        self._highest = list(accumulate(map(_now, self._by_return), max))
        self._lowest = list(accumulate(map(_now, reversed(self._by_call)), min))[::-1]

    def earliest(self, called: int) -> int:
        """No request sent at this instant was judged by an earlier time."""
        before = bisect_left(self._returns, called)
        return self._highest[before - 1] - (self.tolerance or 0) if before else 0

    def latest(self, returned: int | None) -> int:
        """No request that took effect by this instant was judged by a later time."""
        after = len(self._calls) if returned is None else bisect_right(self._calls, returned)
        return self._lowest[after] + (self.tolerance or 0) if after < len(self._calls) else ALWAYS

    def contradiction(self) -> Contradiction | None:
        """Two answers with which the clock went back, if any: the first such call, and the latest time seen before."""
        for one in self._by_call:
            if _now(one) < self.earliest(one.called):
                before = self._by_return[: bisect_left(self._returns, one.called)]
                return Contradiction(max(before, key=_now), one)
        return None


def _called(one: Operation) -> int:
    return one.called


def _returned(one: Operation) -> int:
    return ALWAYS if one.returned is None else one.returned


def _now(one: Operation) -> int:
    return 0 if one.answer is None else one.answer.now
