"""The definition of linearizable, tried out in every way: no shortcuts, hence only for a handful of operations."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from onceward.model.record import Record
from onceward.model.transitions import purgeable
from onceward.testing.history import Operation, Read
from onceward.testing.history.operation import outcome


def has_an_order(history: Sequence[Operation]) -> bool:
    """Any order, any subset of the unanswered ones, and any instant for each of them."""
    every = frozenset(range(len(history)))
    refuted: set[tuple[frozenset[int], frozenset[int], bytes]] = set()

    def goes_on(left: frozenset[int], placed: frozenset[int], record: Record | None) -> bool:
        if all(history[one].answer is None for one in left):
            return True
        key = (left, placed, msgspec.msgpack.encode(record))
        if key in refuted:
            return False
        for one in left:
            if not _may_be_next(history, one, left, placed):
                continue
            for after in _outcomes(history, one, record):
                if goes_on(left - {one}, placed | {one}, after):
                    return True
        refuted.add(key)
        return False

    return goes_on(every, frozenset(), None)


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
            if before is not None and now < before.updated_at:
                continue
            after, verdict = outcome(before, operation.request, now)
            answer = operation.answer
            if answer is None or (verdict is answer.verdict and after == answer.record):
                found.append(after)
    return found


def _times(history: Sequence[Operation], operation: Operation) -> Sequence[int]:
    """The store's times at which it may have happened: its answer's, or all that the other answers leave."""
    if operation.answer is not None:
        return [operation.answer.now]
    if isinstance(operation.request, Read):
        return []
    answered = [(one, one.answer.now) for one in history if one.answer is not None]
    low = max((now for one, now in answered if one.returned is not None and one.returned < operation.called), default=0)
    returned = operation.returned
    later = [now for one, now in answered if returned is not None and one.called > returned]
    first, last = min(now for _, now in answered), max(now for _, now in answered)
    return range(max(low, first - 40), min([*later, last]) + 1)
