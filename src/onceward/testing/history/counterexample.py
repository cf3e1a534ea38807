"""From a history that has no order to the few operations that show why.

Each step keeps a history that has no order, and drops only what could not have given it one:

1. what was called after the first return that cannot be explained; what was under way then need not count;
2. what lies before an answer: it shows the whole record, so the rest may start from there. What overlapped it
   may have come before or after, and need not count;
3. what changed nothing; and what else need not count.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from onceward.protocol.requests import Verdict

from .operation import LOOKS, Lookup, Operation
from .search import Case, DeadEnd, Maybe, OutOfBudget, Search

UNCHANGED = frozenset(Verdict) - {Verdict.ACQUIRED, Verdict.OK, Verdict.REPLAY, Verdict.PARKED}
"""Verdicts that come with no change in any row of the table."""

LOOK_BACK = 200
"""How many answers are tried as the start: the reason is nearly always within a few."""

EACH = 200_000
"""Questions to the table for each attempt at making it smaller; if that is not enough, it stays as it is."""


class Counterexample(Struct, frozen=True):
    """A small case without an order, and where each attempt to order it got stuck."""

    case: Case
    culprit: Operation
    """With its return the history stopped to have an order."""
    within: int
    """Answered operations of the key until then."""
    origin: Operation | None
    """Whose answer showed the record with which the case starts; None: it is the start of the history."""
    dead_ends: list[DeadEnd]


def smallest(case: Case) -> Counterexample:
    """Of a case that has no order."""
    by_return = sorted(case.required, key=_returned)
    first, last = 1, len(by_return)
    while first < last:
        middle = (first + last) // 2
        if _has_no_order(_until(case, by_return[middle - 1])):
            last = middle
        else:
            first = middle + 1
    culprit = by_return[last - 1]
    small = _until(case, culprit)
    origin = next((one for one in _before(small, culprit) if _has_no_order(_from(small, one))), None)
    if origin is not None:
        small = _from(small, origin)
    for one in sorted(small.required, key=_returned):
        if one is not culprit:
            less = _without(small, one)
            small = less if _has_no_order(less) else small
    search = Search(small, EACH, remember=True)
    try:
        search.run()
    except OutOfBudget:
        search.effective = -1
    useful = [maybe for number, maybe in enumerate(small.optional) if search.effective >> number & 1]
    return Counterexample(replace(small, optional=useful), culprit, last, origin, search.dead_ends)


def _has_no_order(case: Case) -> bool:
    try:
        return Search(case, EACH).run() is None
    except OutOfBudget:
        return False


def _until(case: Case, culprit: Operation) -> Case:
    end = _returned(culprit)
    return replace(
        case,
        required=[one for one in case.required if _returned(one) <= end],
        optional=[
            *(maybe for maybe in case.optional if maybe.operation.called <= end),
            *(Maybe(one) for one in case.required if one.called <= end < _returned(one)),
        ],
    )


def _before(case: Case, culprit: Operation) -> list[Operation]:
    """What was answered before the culprit was asked, the latest first."""
    before = [one for one in case.required if _returned(one) < culprit.called and not isinstance(one.request, Lookup)]
    return sorted(before, key=_returned, reverse=True)[:LOOK_BACK]


def _from(case: Case, origin: Operation) -> Case:
    """The case from this answer on."""
    assert origin.answer is not None
    beside = [one for one in case.required if one is not origin and one.called <= _returned(origin)]
    return replace(
        case,
        start=origin.answer.record,
        required=[one for one in case.required if one.called > _returned(origin)],
        optional=[maybe for maybe in [*case.optional, *map(Maybe, beside)] if _may_follow(maybe.operation, origin)],
    )


def _may_follow(one: Operation, origin: Operation) -> bool:
    return one.returned is None or one.returned >= origin.called


def _without(case: Case, one: Operation) -> Case:
    assert one.answer is not None
    rest = [other for other in case.required if other is not one]
    if isinstance(one.request, LOOKS) or one.answer.verdict in UNCHANGED:
        return replace(case, required=rest)
    return replace(case, required=rest, optional=[*case.optional, Maybe(one)])


def _returned(one: Operation) -> int:
    assert one.returned is not None, "answered operations have returned"
    return one.returned
