"""Runs plain Python on symbols, once for each path through its `if`s.

    for conditions, result in paths(lambda: claim(record, request, now)): ...

Nothing is translated by hand: the shipped functions themselves build the formulas that the proof is about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from . import logic

T = TypeVar("T")


def paths(call: Callable[[], T]) -> Iterator[tuple[list[logic.Symbol], T]]:
    """Yield each path through the call: the conditions for it, and what the call returns."""
    waiting: list[list[bool]] = [[]]
    while waiting:
        way = _Way(waiting.pop())
        logic.fork = way.decide
        try:
            result = call()
        finally:
            logic.fork = None
        waiting += way.others
        yield way.conditions, result


class _Way:
    """One path: it follows the decisions given, then always takes True and stores the False branch for later."""

    def __init__(self, decided: list[bool]) -> None:
        self.decided = decided
        self.conditions: list[logic.Symbol] = []
        self.others: list[list[bool]] = []
        self.asked: dict[int, bool] = {}

    def decide(self, condition: logic.Symbol) -> bool:
        plain = logic.constant_value(condition)
        if plain is not None:
            return plain
        condition = logic.simplified(condition)
        if condition.name in self.asked:
            return self.asked[condition.name]
        place = len(self.asked)
        if place == len(self.decided):
            self.others.append([*self.decided, False])
            self.decided = [*self.decided, True]
        answer = self.decided[place]
        self.asked[condition.name] = answer
        self.conditions.append(condition if answer else logic.negate(condition))
        return answer
