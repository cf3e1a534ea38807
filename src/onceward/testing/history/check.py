"""Check a recorded history: is every key linearizable with respect to the state table?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import perf_counter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from onceward.protocol.record import Record

from .counterexample import shrink
from .explanation import Explainer, explain_clock
from .operation import READ_ONLY, Lookup, Operation
from .search import BUDGET, Case, OptionalOperation, OutOfBudget, Search
from .timeline import Timeline


class Violation(Struct, frozen=True):
    """A key whose answers no order explains. If `id` is None, the store's clock went back."""

    id: bytes | None
    explanation: str
    """The contradiction as text: the operations, and what the state table expects instead."""
    operations: list[Operation]
    """The operations that show it."""


class Report(Struct, frozen=True):
    """What was checked, and what was found."""

    operations: int
    """How many operations the history has."""
    keys: int
    """How many different keys they are about."""
    unanswered: int
    """Operations that got no answer: an error, a lost reply or a killed process."""
    overlapping: int
    """Operations during which another operation on the same key was in progress. If 0, there was no concurrency."""
    violations: list[Violation]
    """The contradictions that were found: at most one per key, and one if the clock went back."""
    undecided: list[bytes]
    """Keys for which the search exceeded its budget: neither linearizable nor violated."""
    evaluations: int
    """How often the state table was evaluated."""
    seconds: float
    """How long the check took."""

    @property
    def linearizable(self) -> bool:
        """Whether every key has been explained: no violation was found, and no search was given up."""
        return not self.violations and not self.undecided

    def __str__(self) -> str:
        figures = (
            f"{self.operations:,} operations on {self.keys:,} keys, {self.overlapping:,} overlapping, "
            f"{self.unanswered:,} without an answer; checked in {self.seconds:.2f} s"
        )
        explanations = [violation.explanation for violation in self.violations]
        undecided = [f"undecided within the budget: id {id.hex()[:12]}…" for id in self.undecided]
        found = "linearizable" if self.linearizable else "NOT LINEARIZABLE" if self.violations else "UNDECIDED"
        return "\n\n".join([f"{found}: {figures}", *explanations, *undecided])


def check(
    operations: Iterable[Operation],
    *,
    start: Mapping[bytes, Record] | None = None,
    tolerance: int | None = 0,
    budget: int = BUDGET,
) -> Report:
    """Search, for each key, for an order of its operations for which the state table gives the recorded answers.

    Args:
        operations: The history, such as `MemoryLog.operations()`.
        start: The records that existed before, by id.
        tolerance: By how many µs the store's clock may go back (the clocks of several machines that share one store may
            differ). None means any amount.
        budget: How many steps to search per key. A key that needs more is undecided.

    Returns:
        What was checked, and the smallest part of each history that cannot be explained.
    """
    began = perf_counter()
    everything = list(operations)
    timeline = Timeline(everything, tolerance)
    histories: dict[bytes, list[Operation]] = {}
    for operation in everything:
        histories.setdefault(operation.id, []).append(operation)
    violations: list[Violation] = []
    undecided: list[bytes] = []
    evaluations = 0
    went_back = timeline.contradiction()
    if went_back is not None:
        violations.append(Violation(None, explain_clock(went_back), list(went_back)))
    for id, history in histories.items():
        search = Search(case_of(history, timeline, (start or {}).get(id)), budget)
        try:
            if search.run() is None:
                violations.append(_violation(id, history, timeline, (start or {}).get(id)))
        except OutOfBudget:
            undecided.append(id)
        evaluations += search.evaluations
    return Report(
        operations=len(everything),
        keys=len(histories),
        unanswered=sum(one.answer is None for one in everything),
        overlapping=sum(map(overlapping, histories.values())),
        violations=violations,
        undecided=undecided,
        evaluations=evaluations,
        seconds=perf_counter() - began,
    )


def assert_linearizable(operations: Iterable[Operation], **how: Any) -> Report:
    """Run `check`, and return its report. If the history is not linearizable, raise an AssertionError with the reason.

    `operations` are the history; `how` are the other arguments of `check`.
    """
    report = check(operations, **how)
    if not report.linearizable:
        raise AssertionError(str(report))
    return report


def case_of(history: Iterable[Operation], timeline: Timeline, start: Record | None) -> Case:
    """Return the history of one key in the form that the search needs. Omit reads without an answer.

    A lookup does not return the store's time, so the earliest possible time is used: if the window had already ended
    then, the lookup must not have returned the record.
    """
    required, optional = [], []
    for one in history:
        if isinstance(one.request, Lookup) and one.answer is not None:
            required.append(replace(one, answer=replace(one.answer, now=timeline.earliest(one.called))))
        elif one.answer is not None:
            required.append(one)
        elif not isinstance(one.request, READ_ONLY):
            optional.append(OptionalOperation(one, timeline.earliest(one.called), timeline.latest(one.returned)))
    return Case(start, required, optional, timeline.tolerance)


def overlapping(history: list[Operation]) -> int:
    """Return how many of these operations overlap with another one."""
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
    found = shrink(case_of(history, timeline, start))
    shown = [*found.case.required, *(candidate.operation for candidate in found.case.optional)]
    return Violation(id, "\n".join(Explainer(found).lines(len(history))), shown)
