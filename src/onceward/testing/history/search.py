"""Is there an order of the operations on one key that the state table could have answered like this?

A depth-first search over orders that respect real time, after Wing and Gong, remembering as Lowe does which sets of
operations were already tried with which record. Three things make it quick here:

1. An answer shows the whole record afterwards. So what comes after an answered operation depends on that answer alone,
   and an order that needs fewer of the unanswered requests is never worse than one that needs more.
2. An operation that changes nothing and fits is taken at once: if any order works, one with it in front works too.
   (Unless an unanswered request had to come before it: then both ways are tried.)
3. Unanswered requests are looked at only where an answer cannot be explained without them.

Time: each answer's `now` is the time by which its request was judged. It must not be before the last change of the
record that the request met. So changes come in the order of the clock, while a refusal may have read the record first
and the clock a moment later, as a store without a lock does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from msgspec import Struct

from onceward.protocol.record import Record
from onceward.protocol.requests import Answer

from .instants import Hints, stretches
from .operation import Lookup, Operation, Scan, outcome, possible, shows
from .timeline import ALWAYS

BUDGET = 2_000_000
"""Questions to the state table: a few seconds. Histories that can be ordered need a few times their length."""


class Maybe(Struct, frozen=True):
    """A request that took effect or did not. If it did, its answer was right, or there was none.

    Then `low` and `high` enclose the store's time by which it was judged.
    """

    operation: Operation
    low: int = 0
    high: int = ALWAYS


class Case(Struct, frozen=True):
    """The history of one key: what must be explained, and what may help to."""

    start: Record | None
    required: list[Operation]
    optional: list[Maybe]
    tolerance: int | None = 0


class Placed(NamedTuple):
    """An order so far, the last one first: the operation and the store's time by which it was judged."""

    operation: Operation
    now: int
    before: Placed | None


class Config(NamedTuple):
    """How far an order has come. All required operations below `base` are in it, and those whose bit is in `beyond`."""

    base: int
    beyond: int
    fired: int  # bits of the optional ones in it
    latest: int  # of their calls: whatever returned before it can no longer come
    record: Record | None
    last: int  # the required operation that wrote the record
    placed: Placed | None


class DeadEnd(NamedTuple):
    """An order that cannot go on: none of the next operations would have been answered like this."""

    order: list[tuple[Operation, int]]
    record: Record | None
    left: list[Operation]


class OutOfBudget(Exception):
    """The search took too long to say."""


class Search:
    """One search. `dead_ends` holds where it had to turn back, if it was asked to remember."""

    def __init__(self, case: Case, budget: int = BUDGET, *, remember: bool = False) -> None:
        self.asked = 0
        self.dead_ends: list[DeadEnd] = []
        self.effective = 0
        """Bits of the optional operations that could have changed something somewhere."""
        self._case = case
        self._budget = budget
        self._remember = remember
        self._required = sorted(case.required, key=lambda one: one.called)
        self._calls = [one.called for one in self._required]
        self._returns = [_end(one) for one in self._required]
        self._optional = case.optional
        self._ends = [_end(one.operation) for one in case.optional]
        self._by_end = sorted(range(len(self._ends)), key=self._ends.__getitem__)
        self._sorted_ends = sorted(self._ends)
        self._hints = Hints(case.required, [maybe.operation for maybe in case.optional])
        self._records: dict[bytes, int] = {}

    def run(self) -> list[tuple[Operation, int]] | None:
        """An order that explains every answer, with the store's time of each operation; None if there is none."""
        seen: set[tuple[int, int, int, int]] = set()
        ways = [iter([Config(0, 0, 0, 0, self._case.start, -1, None)])]
        while ways:
            config = next(ways[-1], None)
            if config is None:
                ways.pop()
                continue
            config = self._take_what_changes_nothing(config)
            if config.base == len(self._required):
                return _in_order(config.placed)
            key = (*config[:3], config.last)
            if key not in seen:
                seen.add(key)
                ways.append(self._ways_on(config))
        return None

    def _take_what_changes_nothing(self, config: Config) -> Config:
        while True:
            taken = config
            for number in self._next(config)[0]:
                fits, after = self._fit(config.record, self._required[number])
                if fits and after is config.record and self._nothing_had_to_come_before(number, config):
                    taken = self._place(taken, number)
            if taken is config:
                return config
            config = taken

    def _ways_on(self, config: Config) -> Iterator[Config]:
        numbers, horizon = self._next(config)
        changing: list[int] = []
        missing: list[int] = []
        stuck = True
        for number in numbers:
            fits, after = self._fit(config.record, self._required[number])
            if fits and after is config.record:
                stuck = False
                yield self._place(config, number)
            else:
                (changing if fits else missing).append(number)
        for number in changing:
            stuck = False
            yield self._place(config, number, wrote=True)
        helps = {number: self._helped(config, number, horizon) for number in missing} if self._optional else {}
        while helps:  # first what one unanswered request explains, whichever operation that is, then what needs two
            for number, ways in tuple(helps.items()):
                for helped in ways:
                    if helped is None:
                        break
                    stuck = False
                    yield self._place(helped, number, wrote=True)
                else:
                    del helps[number]
        if stuck:
            self._turn_back(config, [self._required[one] for one in numbers])

    def _turn_back(self, config: Config, left: list[Operation]) -> None:
        if self._remember:
            self.dead_ends.append(DeadEnd(_in_order(config.placed), config.record, left))

    def _next(self, config: Config) -> tuple[list[int], int]:
        """Who may be next: all who called before any other of those that are left returned. And that return."""
        numbers = []
        horizon = ALWAYS
        beyond = config.beyond
        for number in range(config.base, len(self._required)):
            if self._calls[number] > horizon:
                break
            if not beyond & 1:
                numbers.append(number)
                horizon = min(horizon, self._returns[number])
            beyond >>= 1
        return numbers, horizon

    def _place(self, config: Config, number: int, *, wrote: bool = False) -> Config:
        base, beyond, fired, latest, record, last, placed = config
        operation = self._required[number]
        beyond |= 1 << (number - base)
        while beyond & 1:
            beyond >>= 1
            base += 1
        answer = _answer(operation)
        if wrote and isinstance(operation.request, Lookup):  # it shows but a part of what unanswered requests left
            last = -2 - self._records.setdefault(msgspec.msgpack.encode(record), len(self._records))
        elif wrote:
            record, last = answer.record, number
        latest = max(latest, operation.called)
        return Config(base, beyond, fired, latest, record, last, Placed(operation, answer.now, placed))

    def _fit(self, record: Record | None, operation: Operation) -> tuple[bool, Record | None]:
        """Would the table have answered like this? And the record afterwards."""
        answer = _answer(operation)
        for before in possible(record, answer.now):
            if self._too_early(before, answer.now) and not isinstance(operation.request, Scan | Lookup):
                continue
            self._ask()
            after, verdict = outcome(before, operation.request, answer.now)
            if verdict is answer.verdict and shows(after, operation.request, answer.record):
                return True, after
        return False, None

    def _too_early(self, record: Record | None, now: int) -> bool:
        tolerance = self._case.tolerance
        return record is not None and tolerance is not None and now + tolerance < record.updated_at

    def _ask(self) -> None:
        self.asked += 1
        if self.asked > self._budget:
            raise OutOfBudget

    # ── requests without an answer ──────────────────────────────────────────────────────────────────────────────

    def _nothing_had_to_come_before(self, number: int, config: Config) -> bool:
        first = bisect_left(self._sorted_ends, config.latest)
        last = bisect_left(self._sorted_ends, self._calls[number])
        return all(config.fired >> one & 1 for one in self._by_end[first:last])

    def _helped(self, config: Config, number: int, horizon: int) -> Iterator[Config | None]:
        """Orders of unanswered requests after which this operation fits, the shortest first; None after each length."""
        goal = self._required[number]
        enough: list[int] = []
        tried: set[tuple[int, bytes]] = set()
        steps = [config]
        while steps:
            longer: list[Config] = []
            for step in steps:
                for one in self._alive(step, horizon):
                    fired = step.fired | 1 << one
                    if any(fired & less == less for less in enough):
                        continue
                    for helped in self._effects(step, one, goal):
                        key = (fired, msgspec.msgpack.encode(helped.record))
                        if key in tried:
                            continue
                        tried.add(key)
                        if self._fit(helped.record, goal)[0]:
                            yield helped
                            if isinstance(goal.request, Lookup):
                                continue  # what it does not show may differ
                            enough.append(fired)
                            break
                        longer.append(helped)
                        self._turn_back(helped, [goal])
            steps = longer
            yield None

    def _alive(self, config: Config, horizon: int) -> list[int]:
        """The optional ones that may take effect now."""
        return [
            one
            for one, maybe in enumerate(self._optional)
            if not config.fired >> one & 1 and maybe.operation.called <= horizon and config.latest <= self._ends[one]
        ]

    def _effects(self, config: Config, one: int, goal: Operation) -> Iterator[Config]:
        """What this request may have made of the record. Only what differs matters."""
        operation = self._optional[one].operation
        latest = max(config.latest, operation.called)
        for now in self._instants(self._optional[one], config.record, goal):
            for after in self._changes(config.record, operation, now):
                self.effective |= 1 << one
                placed = Placed(operation, now, config.placed)
                yield config._replace(fired=config.fired | 1 << one, latest=latest, record=after, placed=placed)

    def _changes(self, record: Record | None, operation: Operation, now: int) -> Iterator[Record | None]:
        answer = operation.answer
        for before in possible(record, now):
            if self._too_early(before, now):
                continue
            self._ask()
            after, verdict = outcome(before, operation.request, now)
            right = answer is None or (verdict is answer.verdict and after == answer.record)
            if right and after is not before:
                yield after

    def _instants(self, maybe: Maybe, record: Record | None, goal: Operation) -> list[int]:
        operation = maybe.operation
        if operation.answer is not None:
            return [operation.answer.now]
        low, high = 0, ALWAYS
        tolerance = self._case.tolerance
        if tolerance is not None:
            low = maybe.low if record is None else max(maybe.low, record.updated_at - tolerance)
            high = maybe.high if isinstance(goal.request, Lookup) else min(maybe.high, _answer(goal).now + tolerance)
        if not any(True for now in stretches(low, high, record) for _ in self._changes(record, operation, now)):
            return []
        return self._hints.instants(low, high, record, operation.request, goal)


def _end(operation: Operation) -> int:
    return ALWAYS if operation.returned is None else operation.returned


def _answer(operation: Operation) -> Answer:
    assert operation.answer is not None, "only answered operations are required"
    return operation.answer


def _in_order(placed: Placed | None) -> list[tuple[Operation, int]]:
    order = []
    while placed is not None:
        order.append((placed.operation, placed.now))
        placed = placed.before
    return order[::-1]
