"""Every world that can be reached, breadth first: one key, a few clients, and everything that can go wrong.

The functions searched are the shipped ones. Clients call any number of times; any request may arrive late, twice or
never; any reply may be lost; an owner may send any verb at any time, also long after it was replaced; the clock is set
back and right again; operators forget and resolve, upkeep purges. Nothing bounds the length of a history: `identity`
says when two worlds are one, and of those there are finitely many.
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
from .world import SHIPPED, Broken, Rules

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
"""Promises that say what must never happen to a user, as opposed to how the table sees to it."""


class Violation(NamedTuple):
    """Which promise broke, in which scenario, and the shortest history there that breaks it."""

    promise: str
    scenario: str
    history: tuple[str, ...]


class Found(NamedTuple):
    """What a search saw: worlds, steps, which cells of the table answered what, and the first broken promise.

    `compared` counts the worlds that were taken for one seen before, and of which that was checked.
    """

    worlds: int
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
    """Until a promise breaks (one of `only`, if told) or there are no worlds left.

    `sample`: each so many-th world that is taken for another one is compared with it.
    """
    moves = behaviour(scenario, rules, only)
    moments: list[Moment] = [moves.first()]
    came: list[tuple[int, str]] = [(0, "")]  # from which world, and by what
    known = {identity(moments[0].world, moments[0].observer, scenario): 0}
    steps = met = at = 0
    violation = None
    try:
        while at < len(moments):
            here = moments[at]
            for label, then in moves.after(here):
                steps += 1
                if then is here:
                    continue
                mark = identity(then.world, then.observer, scenario)
                seen = known.setdefault(mark, len(moments))
                if seen == len(moments):
                    moves.check(invariant(then.world), label)
                    moments.append(then)
                    came.append((at, label))
                elif sample and then.world != moments[seen].world:
                    met += 1
                    if met % sample == 0:
                        moves.check(goes_on_alike(moves, then, moments[seen]), label)
            at += 1
    except Broken as broken:
        violation = Violation(broken.promise, scenario.name, readable([*told(came, at), broken.label]))
    return Found(len(moments), steps, met // sample if sample else 0, moves.cells, violation)


def goes_on_alike(moves: Moves, one: Moment, other: Moment) -> Iterator[Promise]:
    """Were `identity` wrong, histories could be overlooked that begin in a world which was taken for another."""
    yield from invariant(one.world)
    yield "worlds that are taken for one go on alike", futures(moves, one) == futures(moves, other)


def futures(moves: Moves, here: Moment) -> set[object]:
    return {identity(then.world, then.observer, moves.scenario) for _, then in moves.after(here)}


def told(came: list[tuple[int, str]], at: int) -> list[str]:
    history: list[str] = []
    while at > 0:
        at, label = came[at]
        history.append(label)
    return history[::-1]


def readable(history: list[str]) -> tuple[str, ...]:
    """Tokens are moments in µs; who reads a history needs their order alone."""
    tokens = sorted({int(token) for label in history for token in re.findall(r"token (\d+)", label)})
    number = {str(token): f"token #{place}" for place, token in enumerate(tokens, start=1)}
    return tuple(re.sub(r"token (\d+)", lambda found: number[found[1]], label) for label in history)
