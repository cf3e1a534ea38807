"""Check a recorded history: is every key of it linearizable against the state table?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import perf_counter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from onceward.protocol.record import Record

from .counterexample import smallest
from .operation import LOOKS, Lookup, Operation
from .search import BUDGET, Case, Maybe, OutOfBudget, Search
from .story import story, story_of_the_clock
from .timeline import Timeline


class Violation(Struct, frozen=True):
    """A key (or None: the clock) whose answers no order explains."""

    id: bytes | None
    story: str
    operations: list[Operation]
    """Those that show it."""


class Report(Struct, frozen=True):
    """What was checked, and what was found."""

    operations: int
    keys: int
    unanswered: int
    overlapping: int
    """Operations that had another one on the same key at the same time: without any, nothing was raced."""
    violations: list[Violation]
    undecided: list[bytes]
    """Keys for which the search ran out of its budget: neither good nor bad."""
    asked: int
    """Questions to the state table."""
    seconds: float

    @property
    def linearizable(self) -> bool:
        return not self.violations and not self.undecided

    def __str__(self) -> str:
        figures = (
            f"{self.operations:,} operations on {self.keys:,} keys, {self.overlapping:,} overlapping, "
            f"{self.unanswered:,} without an answer; checked in {self.seconds:.2f} s"
        )
        stories = [violation.story for violation in self.violations]
        undecided = [f"undecided within the budget: id {id.hex()[:12]}…" for id in self.undecided]
        found = "linearizable" if self.linearizable else "NOT LINEARIZABLE" if self.violations else "UNDECIDED"
        return "\n\n".join([f"{found}: {figures}", *stories, *undecided])


def check(
    operations: Iterable[Operation],
    *,
    start: Mapping[bytes, Record] | None = None,
    tolerance: int | None = 0,
    budget: int = BUDGET,
) -> Report:
    """Look for an order of each key's operations that the state table could have answered like this.

    `start` holds records that were there before. `tolerance` is by how many µs the store's clock may go back (several
    machines that share one store may differ); None means that it may do anything. `budget` bounds the search a key.
    """
    began = perf_counter()
    everything = list(operations)
    timeline = Timeline(everything, tolerance)
    histories: dict[bytes, list[Operation]] = {}
    for operation in everything:
        histories.setdefault(operation.id, []).append(operation)
    violations, undecided, asked = _of_the_clock(timeline), [], 0
    for id, history in histories.items():
        search = Search(case_of(history, timeline, (start or {}).get(id)), budget)
        try:
            if search.run() is None:
                violations.append(_violation(id, history, timeline, (start or {}).get(id)))
        except OutOfBudget:
            undecided.append(id)
        asked += search.asked
    return Report(
        operations=len(everything),
        keys=len(histories),
        unanswered=sum(one.answer is None for one in everything),
        overlapping=sum(map(overlapping, histories.values())),
        violations=violations,
        undecided=undecided,
        asked=asked,
        seconds=perf_counter() - began,
    )


def assert_linearizable(operations: Iterable[Operation], **how: Any) -> Report:
    """`check`, as an assertion that tells the story."""
    report = check(operations, **how)
    if not report.linearizable:
        raise AssertionError(str(report))
    return report


def case_of(history: Iterable[Operation], timeline: Timeline, start: Record | None) -> Case:
    """The history of one key as the search wants it. What looked and got no answer explains nothing.

    A glance does not tell its time: if the window was over at the earliest that it can have been, it was over.
    """
    required, optional = [], []
    for one in history:
        if isinstance(one.request, Lookup) and one.answer is not None:
            required.append(replace(one, answer=replace(one.answer, now=timeline.earliest(one.called))))
        elif one.answer is not None:
            required.append(one)
        elif not isinstance(one.request, LOOKS):
            optional.append(Maybe(one, timeline.earliest(one.called), timeline.latest(one.returned)))
    return Case(start, required, optional, timeline.tolerance)


def overlapping(history: list[Operation]) -> int:
    """How many of these were not alone."""
    ordered = sorted(history, key=lambda one: one.called)
    together = [False] * len(ordered)
    last, end = -1, -1
    for number, one in enumerate(ordered):
        if number and one.called <= end:
            together[number] = together[last] = True
        returned = one.called if one.returned is None else one.returned
        if returned >= end:
            last, end = number, returned
    return sum(together)


def _violation(id: bytes, history: list[Operation], timeline: Timeline, start: Record | None) -> Violation:
    found = smallest(case_of(history, timeline, start))
    shown = [*found.case.required, *(maybe.operation for maybe in found.case.optional)]
    return Violation(id, story(found, len(history)), shown)


def _of_the_clock(timeline: Timeline) -> list[Violation]:
    found = timeline.contradiction()
    return [] if found is None else [Violation(None, story_of_the_clock(found), list(found))]
