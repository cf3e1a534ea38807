"""The definition of linearizable, checked by trying every order: without shortcuts, so only for a few operations."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from onceward.protocol.record import Record
from onceward.protocol.transitions import purgeable
from onceward.testing.history import Lookup, Operation, Read
from onceward.testing.history.operation import answer_shows, outcome
from tests.evidence.made_up import START

MARGIN = 20
"""How long after the last answer an effect may have happened that only a lookup shows."""


def has_an_order(history: Sequence[Operation]) -> bool:
    """Try any order, any subset of the unanswered operations, and any time for each of them."""
    every = frozenset(range(len(history)))
    refuted: set[tuple[frozenset[int], frozenset[int], bytes]] = set()

    def can_continue(left: frozenset[int], placed: frozenset[int], record: Record | None) -> bool:
        if all(history[one].answer is None for one in left):
            return True
        key = (left, placed, msgspec.msgpack.encode(record))
        if key in refuted:
            return False
        for one in left:
            if not _may_be_next(history, one, left, placed):
                continue
            for after in _outcomes(history, one, record):
                if can_continue(left - {one}, placed | {one}, after):
                    return True
        refuted.add(key)
        return False

    return can_continue(every, frozenset(), None)


def _may_be_next(history: Sequence[Operation], one: int, left: frozenset[int], placed: frozenset[int]) -> bool:
    called, returned = history[one].called, history[one].returned
    for other in left - {one}:
        end = history[other].returned
        if history[other].answer is not None and end is not None and end < called:
            return False
    return returned is None or all(history[other].called <= returned for other in placed)


def _outcomes(history: Sequence[Operation], one: int, record: Record | None) -> list[Record | None]:
    operation = history[one]
    found: list[Record | None] = []
    for now in _times(history, operation):
        for before in {id(record): record, 0: None}.values() if record and purgeable(record, now) else [record]:
            if before is not None and now < before.updated_at and not isinstance(operation.request, Lookup):
                continue
            after, verdict = outcome(before, operation.request, now)
            answer = operation.answer
            if answer is None or (verdict is answer.verdict and answer_shows(after, operation.request, answer)):
                found.append(after)
    return found


def _times(history: Sequence[Operation], operation: Operation) -> Sequence[int]:
    """Return the store's times at which it may have happened: that of its answer, or all that other answers allow."""
    timed = [one for one in history if not isinstance(one.request, Lookup)]
    answered = [(one, one.answer.now) for one in timed if one.answer is not None]
    low = max((now for one, now in answered if one.returned is not None and one.returned < operation.called), default=0)
    if isinstance(operation.request, Read | Lookup) and operation.answer is None:
        return []
    if operation.answer is not None:
        return [low if isinstance(operation.request, Lookup) else operation.answer.now]
    returned = operation.returned
    later = [now for one, now in answered if returned is not None and one.called > returned]
    nows = [now for _, now in answered] or [START]
    first, last = min(nows), max(nows) + MARGIN
    return range(max(low, first - 40), min([*later, last]) + 1)
