"""Shrink a history that has no valid order to the few operations that show why.

Each step keeps a history without a valid order, and removes or makes optional only operations that could not have given
it one:

1. Remove operations called after the first return that cannot be explained. Operations in progress then become
   optional.
2. Remove operations before an answer: it contains the whole record, so the rest can start from there. Operations that
   overlapped with it may have happened before or after, and become optional.
3. Remove operations that changed nothing, and make others optional if there is still no valid order.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from onceward.protocol.requests import Verdict

from .operation import READ_ONLY, Operation
from .search import Case, DeadEnd, OptionalOperation, OutOfBudget, Search
from .timeline import end_of

UNCHANGED = frozenset(Verdict) - {Verdict.ACQUIRED, Verdict.OK, Verdict.REPLAY, Verdict.PARKED}
"""Verdicts without a change in any row of the state table."""

MAX_ORIGINS = 200
"""How many answers are tried as the start. The reason is nearly always within a few."""

ATTEMPT_BUDGET = 200_000
"""Evaluations of the state table per attempt to shrink. If that is not enough, the history is not shrunk further."""


class Counterexample(Struct, frozen=True):
    """A small case without a valid order, and the dead ends of the search."""

    case: Case
    culprit: Operation
    """Until this operation returned, the history had a valid order."""
    within: int
    """Number of answered operations of the key until then."""
    origin: Operation | None
    """The operation whose answer has the record with which the case starts; None: the start of the history."""
    dead_ends: list[DeadEnd]


def shrink(case: Case) -> Counterexample:
    """Return a small counterexample of a case that has no valid order."""
    by_return = sorted(case.required, key=end_of)
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
    for one in sorted(small.required, key=end_of):
        if one is not culprit:
            less = _without(small, one)
            small = less if _has_no_order(less) else small
    search = Search(small, ATTEMPT_BUDGET, remember=True)
    try:
        search.run()
    except OutOfBudget:
        search.effective = -1
    useful = [candidate for number, candidate in enumerate(small.optional) if search.effective >> number & 1]
    return Counterexample(replace(small, optional=useful), culprit, last, origin, search.dead_ends)


def _has_no_order(case: Case) -> bool:
    try:
        return Search(case, ATTEMPT_BUDGET).run() is None
    except OutOfBudget:
        return False


def _until(case: Case, culprit: Operation) -> Case:
    end = end_of(culprit)
    return replace(
        case,
        required=[one for one in case.required if end_of(one) <= end],
        optional=[
            *(candidate for candidate in case.optional if candidate.operation.called <= end),
            *(OptionalOperation(one) for one in case.required if one.called <= end < end_of(one)),
        ],
    )


def _before(case: Case, culprit: Operation) -> list[Operation]:
    """Return the operations answered before the culprit was called, the latest first."""
    before = [one for one in case.required if end_of(one) < culprit.called and one.shows_whole_record]
    return sorted(before, key=end_of, reverse=True)[:MAX_ORIGINS]


def _from(case: Case, origin: Operation) -> Case:
    """Return the case that starts with this answer."""
    assert origin.answer is not None
    beside = [one for one in case.required if one is not origin and one.called <= end_of(origin)]
    return replace(
        case,
        start=origin.answer.record,
        required=[one for one in case.required if one.called > end_of(origin)],
        optional=[
            candidate
            for candidate in [*case.optional, *map(OptionalOperation, beside)]
            if end_of(candidate.operation) >= origin.called
        ],
    )


def _without(case: Case, one: Operation) -> Case:
    assert one.answer is not None
    rest = [other for other in case.required if other is not one]
    if isinstance(one.request, READ_ONLY) or one.answer.verdict in UNCHANGED:
        return replace(case, required=rest)
    return replace(case, required=rest, optional=[*case.optional, OptionalOperation(one)])
