"""Search for an order of the operations on one key for which the state table gives the recorded answers.

This is a depth-first search over orders that respect real time (Wing and Gong), which remembers the sets of operations
already tried with each record (Lowe). Three properties make it fast here:

1. An answer contains the whole record afterwards. So what follows an answered operation depends on that answer alone,
   and an order that needs fewer unanswered requests is never worse than one that needs more.
2. An operation that fits and changes nothing is placed immediately: if any order is valid, one that starts with it is
   valid, too. (If an unanswered request may have to come before it, both alternatives are tried.)
3. Unanswered requests are tried only if an answer cannot be explained without them.

The `now` of an answer is the time at which its request was processed. It must not be before the last change of the
record that the request found. So changes are in the order of the clock. A refusal may have read the record first and
the clock a moment later, as in a store without a lock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from msgspec import Struct

from onceward.protocol.record import Record
from onceward.protocol.requests import Answer

from .instants import Hints, intervals
from .operation import Lookup, Operation, Scan, answer_shows, outcome, possible_records
from .timeline import END_OF_TIME, end_of

BUDGET = 2_000_000
"""Evaluations of the state table: a few seconds. A history with a valid order needs a few times its length."""


class OptionalOperation(Struct, frozen=True):
    """A request that may have taken effect or not. If it did, its answer was correct, or it has none.

    In the latter case `low` and `high` enclose the store's time at which it was processed.
    """

    operation: Operation
    low: int = 0
    high: int = END_OF_TIME


class Case(Struct, frozen=True):
    """The history of one key: operations that must be explained, and optional ones that may help to explain them."""

    start: Record | None
    required: list[Operation]
    optional: list[OptionalOperation]
    tolerance: int | None = 0


class Placement(NamedTuple):
    """A partial order as a linked list, last operation first, with the store's time at which each was processed."""

    operation: Operation
    now: int
    before: Placement | None


class SearchState(NamedTuple):
    """A partial order. It contains all required operations below `base`, and those whose bit is set in `beyond`."""

    base: int
    beyond: int
    used: int  # bits of the optional operations in it
    latest: int  # the latest call in it: an operation that returned before this can no longer follow
    record: Record | None
    last: int  # the required operation that wrote the record
    placed: Placement | None


class DeadEnd(NamedTuple):
    """A partial order that cannot be continued: the recorded answers of all next operations contradict the table."""

    order: list[tuple[Operation, int]]
    record: Record | None
    left: list[Operation]


class OutOfBudget(Exception):
    """The search exceeded its budget without a result."""


class Search:
    """One search. With `remember`, `dead_ends` collects the partial orders that could not be continued."""

    def __init__(self, case: Case, budget: int = BUDGET, *, remember: bool = False) -> None:
        self.evaluations = 0
        self.dead_ends: list[DeadEnd] = []
        self.effective = 0
        """Bits of the optional operations that could have changed a record."""
        self._case = case
        self._budget = budget
        self._remember = remember
        self._required = sorted(case.required, key=lambda one: one.called)
        self._calls = [one.called for one in self._required]
        self._returns = [end_of(one) for one in self._required]
        self._optional = case.optional
        self._ends = [end_of(one.operation) for one in case.optional]
        self._by_end = sorted(range(len(self._ends)), key=self._ends.__getitem__)
        self._sorted_ends = sorted(self._ends)
        self._hints = Hints(case.required, [candidate.operation for candidate in case.optional])
        self._records: dict[bytes, int] = {}

    def run(self) -> list[tuple[Operation, int]] | None:
        """Return an order that explains every answer, with the store's time of each operation, or None."""
        seen: set[tuple[int, int, int, int]] = set()
        stack = [iter([SearchState(0, 0, 0, 0, self._case.start, -1, None)])]
        while stack:
            state = next(stack[-1], None)
            if state is None:
                stack.pop()
                continue
            state = self._place_unchanging(state)
            if state.base == len(self._required):
                return _in_order(state.placed)
            key = (*state[:3], state.last)
            if key not in seen:
                seen.add(key)
                stack.append(self._successors(state))
        return None

    def _place_unchanging(self, state: SearchState) -> SearchState:
        while True:
            extended = state
            for number in self._next(state)[0]:
                fits, after = self._fit(state.record, self._required[number])
                if fits and after is state.record and self._has_no_pending_predecessor(number, state):
                    extended = self._place(extended, number)
            if extended is state:
                return state
            state = extended

    def _successors(self, state: SearchState) -> Iterator[SearchState]:
        numbers, horizon = self._next(state)
        changing: list[int] = []
        missing: list[int] = []
        stuck = True
        for number in numbers:
            fits, after = self._fit(state.record, self._required[number])
            if fits and after is state.record:
                stuck = False
                yield self._place(state, number)
            else:
                (changing if fits else missing).append(number)
        for number in changing:
            stuck = False
            yield self._place(state, number, wrote=True)
        helps = (
            {number: self._explained_by_optional(state, number, horizon) for number in missing}
            if self._optional
            else {}
        )
        while helps:  # first all operations that one unanswered request explains, then those that need two
            for number, explanations in tuple(helps.items()):
                for helped in explanations:
                    if helped is None:
                        break
                    stuck = False
                    yield self._place(helped, number, wrote=True)
                else:
                    del helps[number]
        if stuck:
            self._record_dead_end(state, [self._required[one] for one in numbers])

    def _record_dead_end(self, state: SearchState, left: list[Operation]) -> None:
        if self._remember:
            self.dead_ends.append(DeadEnd(_in_order(state.placed), state.record, left))

    def _next(self, state: SearchState) -> tuple[list[int], int]:
        """Return the operations that may be next, and the first return among those left: they were called before it."""
        numbers = []
        horizon = END_OF_TIME
        beyond = state.beyond
        for number in range(state.base, len(self._required)):
            if self._calls[number] > horizon:
                break
            if not beyond & 1:
                numbers.append(number)
                horizon = min(horizon, self._returns[number])
            beyond >>= 1
        return numbers, horizon

    def _place(self, state: SearchState, number: int, *, wrote: bool = False) -> SearchState:
        base, beyond, used, latest, record, last, placed = state
        operation = self._required[number]
        beyond |= 1 << (number - base)
        while beyond & 1:
            beyond >>= 1
            base += 1
        answer = _answer(operation)
        if wrote and not operation.shows_whole_record:
            record = self._fit(record, operation)[1]
            last = -2 - self._records.setdefault(msgspec.msgpack.encode(record), len(self._records))
        elif wrote:
            record, last = answer.record, number
        latest = max(latest, operation.called)
        return SearchState(base, beyond, used, latest, record, last, Placement(operation, answer.now, placed))

    def _fit(self, record: Record | None, operation: Operation) -> tuple[bool, Record | None]:
        """Return whether the state table gives the recorded answer, and the record afterwards."""
        answer = _answer(operation)
        for before in possible_records(record, answer.now):
            if self._too_early(before, answer.now) and not isinstance(operation.request, Scan | Lookup):
                continue
            self._evaluate()
            after, verdict = outcome(before, operation.request, answer.now)
            if verdict is answer.verdict and answer_shows(after, operation.request, answer):
                return True, after
        return False, None

    def _too_early(self, record: Record | None, now: int) -> bool:
        tolerance = self._case.tolerance
        return record is not None and tolerance is not None and now + tolerance < record.updated_at

    def _evaluate(self) -> None:
        self.evaluations += 1
        if self.evaluations > self._budget:
            raise OutOfBudget

    # ── requests without an answer ──────────────────────────────────────────────────────────────────────────────

    def _has_no_pending_predecessor(self, number: int, state: SearchState) -> bool:
        first = bisect_left(self._sorted_ends, state.latest)
        last = bisect_left(self._sorted_ends, self._calls[number])
        return all(state.used >> one & 1 for one in self._by_end[first:last])

    def _explained_by_optional(self, state: SearchState, number: int, horizon: int) -> Iterator[SearchState | None]:
        """Yield orders of unanswered requests after which this operation fits, the shortest first.

        Yield None after each length.
        """
        goal = self._required[number]
        enough: list[int] = []
        tried: set[tuple[int, bytes]] = set()
        steps = [state]
        while steps:
            longer: list[SearchState] = []
            for step in steps:
                for one in self._available(step, horizon):
                    used = step.used | 1 << one
                    if any(used & less == less for less in enough):
                        continue
                    for helped in self._effects(step, one, goal):
                        key = (used, msgspec.msgpack.encode(helped.record))
                        if key in tried:
                            continue
                        tried.add(key)
                        if self._fit(helped.record, goal)[0]:
                            yield helped
                            if not goal.shows_whole_record:
                                continue  # the fields that it does not show may differ
                            enough.append(used)
                            break
                        longer.append(helped)
                        self._record_dead_end(helped, [goal])
            steps = longer
            yield None

    def _available(self, state: SearchState, horizon: int) -> list[int]:
        """Return the optional operations that may take effect now."""
        return [
            one
            for one, candidate in enumerate(self._optional)
            if not state.used >> one & 1 and candidate.operation.called <= horizon and state.latest <= self._ends[one]
        ]

    def _effects(self, state: SearchState, one: int, goal: Operation) -> Iterator[SearchState]:
        """Yield the states after possible effects of this request. Instants without an effect are omitted."""
        operation = self._optional[one].operation
        latest = max(state.latest, operation.called)
        for now in self._instants(self._optional[one], state.record, goal):
            for after in self._changes(state.record, operation, now):
                self.effective |= 1 << one
                placed = Placement(operation, now, state.placed)
                yield state._replace(used=state.used | 1 << one, latest=latest, record=after, placed=placed)

    def _changes(self, record: Record | None, operation: Operation, now: int) -> Iterator[Record | None]:
        answer = operation.answer
        for before in possible_records(record, now):
            if self._too_early(before, now):
                continue
            self._evaluate()
            after, verdict = outcome(before, operation.request, now)
            right = answer is None or (verdict is answer.verdict and answer_shows(after, operation.request, answer))
            if right and after is not before:
                yield after

    def _instants(self, candidate: OptionalOperation, record: Record | None, goal: Operation) -> list[int]:
        operation = candidate.operation
        if operation.answer is not None:
            return [operation.answer.now]
        low, high = 0, END_OF_TIME
        tolerance = self._case.tolerance
        if tolerance is not None:
            low = candidate.low if record is None else max(candidate.low, record.updated_at - tolerance)
            high = (
                candidate.high
                if isinstance(goal.request, Lookup)
                else min(candidate.high, _answer(goal).now + tolerance)
            )
        if not any(True for now in intervals(low, high, record) for _ in self._changes(record, operation, now)):
            return []
        return self._hints.instants(low, high, record, operation.request, goal)


def _answer(operation: Operation) -> Answer:
    assert operation.answer is not None, "only answered operations are required"
    return operation.answer


def _in_order(placed: Placement | None) -> list[tuple[Operation, int]]:
    order = []
    while placed is not None:
        order.append((placed.operation, placed.now))
        placed = placed.before
    return order[::-1]
