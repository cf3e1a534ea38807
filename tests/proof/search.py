"""Searches every reachable state, breadth first: one key, a few clients, and every possible fault.

The functions searched are the shipped ones. Clients call any number of times; any request may arrive late, twice or
never; any reply may be lost; an owner may send any verb at any time, also long after it was replaced; the clock is set
back and forward again; operators forget and resolve, maintenance purges. The length of a history has no bound:
`identity` says when two states are the same, and there are finitely many different ones.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from onceward.protocol.requests import Verdict
from onceward.protocol.transitions import Row

from .identity import identity
from .invariant import invariant
from .logic import Promise
from .moves import ONE_COMPLETES, Moment, Moves
from .observer import ASKED, CYCLE, REPLAYED
from .scenarios import Scenario
from .system import SHIPPED, Broken, Rules

HARMS = frozenset(
    {
        REPLAYED,
        ASKED,
        CYCLE,
        ONE_COMPLETES,
        "at most one live owner",
        "tokens strictly grow",
        "a replaced owner changes nothing",
    }
)
"""Promises whose violation a user would notice; the others are about how the table keeps these."""


class Violation(NamedTuple):
    """Which promise broke, in which scenario, and the shortest history there that breaks it."""

    promise: str
    scenario: str
    history: tuple[str, ...]


class Found(NamedTuple):
    """The result of a search: states, steps, which cells of the table answered what, and the first broken promise.

    `compared` counts the states that counted as already seen and were compared with the earlier state.
    """

    states: int
    steps: int
    compared: int
    cells: Counter[tuple[Row, str, Verdict]]
    violation: Violation | None = None


def search(
    scenario: Scenario,
    rules: Rules = SHIPPED,
    *,
    only: frozenset[str] | None = None,
    sample: int = 0,
    behaviour: type[Moves] = Moves,
) -> Found:
    """Search until a promise breaks (one of `only`, if given) or no states are left.

    `sample`: every so many-th state that counts as already seen is compared with the earlier state.
    """
    moves = behaviour(scenario, rules, only)
    moments: list[Moment] = [moves.first()]
    predecessors: list[tuple[int, str]] = [(0, "")]  # the previous state and the label of the step
    known = {identity(moments[0].system, moments[0].observer, scenario): 0}
    steps = met = at = 0
    violation = None
    try:
        while at < len(moments):
            here = moments[at]
            for label, then in moves.after(here):
                steps += 1
                if then is here:
                    continue
                mark = identity(then.system, then.observer, scenario)
                seen = known.setdefault(mark, len(moments))
                if seen == len(moments):
                    moves.check(invariant(then.system), label)
                    moments.append(then)
                    predecessors.append((at, label))
                elif sample and then.system != moments[seen].system:
                    met += 1
                    if met % sample == 0:
                        moves.check(have_the_same_futures(moves, then, moments[seen]), label)
            at += 1
    except Broken as broken:
        violation = Violation(broken.promise, scenario.name, readable([*history_to(predecessors, at), broken.label]))
    return Found(len(moments), steps, met // sample if sample else 0, moves.cells, violation)


def have_the_same_futures(moves: Moves, one: Moment, other: Moment) -> Iterator[Promise]:
    """If `identity` were wrong, the search would miss histories that continue from a state it considers seen."""
    yield from invariant(one.system)
    yield "states with the same identity have the same futures", futures(moves, one) == futures(moves, other)


def futures(moves: Moves, here: Moment) -> set[object]:
    return {identity(then.system, then.observer, moves.scenario) for _, then in moves.after(here)}


def history_to(predecessors: list[tuple[int, str]], at: int) -> list[str]:
    history: list[str] = []
    while at > 0:
        at, label = predecessors[at]
        history.append(label)
    return history[::-1]


def readable(history: list[str]) -> tuple[str, ...]:
    """Number the tokens: they are times in µs, and a reader needs only their order."""
    tokens = sorted({int(token) for label in history for token in re.findall(r"token (\d+)", label)})
    number = {str(token): f"token #{place}" for place, token in enumerate(tokens, start=1)}
    return tuple(re.sub(r"token (\d+)", lambda found: number[found[1]], label) for label in history)
