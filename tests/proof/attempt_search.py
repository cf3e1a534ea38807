"""Searches every reachable state of one record and the attempts of two clients, breadth first."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from onceward.engine.attempt import MOVES, AttemptState

from .attempt_steps import AttemptSteps
from .attempt_world import AttemptScenario, World, world_identity
from .search import Violation, history_to
from .system import SHIPPED, Broken, Rules

NOT_MODELLED = {
    (AttemptState.NEW, AttemptState.REFUSED): "a call around this one holds the key: both are one client of the model",
    (
        AttemptState.REFUSED,
        AttemptState.UNPROTECTED,
    ): "the mode observe runs duplicates on purpose",
}
"""Moves of the table that no history of the model makes, and why."""

SAME_FUTURES = "states with the same identity have the same futures"


class FoundAttempts(NamedTuple):
    """The result of a search: states, steps, the moves that were made, and the first broken promise."""

    states: int
    steps: int
    moves: Counter[tuple[AttemptState, AttemptState]]
    violation: Violation | None = None
    compared: int = 0


def search_attempts(
    scenario: AttemptScenario,
    rules: Rules = SHIPPED,
    behaviour: type[AttemptSteps] = AttemptSteps,
    *,
    sample: int = 0,
) -> FoundAttempts:
    """Search until a promise breaks or no states are left.

    `sample`: every so many-th state that counts as already seen is compared with the earlier state.
    """
    steps = behaviour(scenario, rules)
    worlds: list[World] = [steps.first()]
    predecessors: list[tuple[int, str]] = [(0, "")]
    known = {world_identity(worlds[0], scenario): 0}
    made = at = met = 0
    try:
        while at < len(worlds):
            for label, then in steps.after(worlds[at]):
                made += 1
                mark = world_identity(then, scenario)
                seen = known.setdefault(mark, len(worlds))
                if seen == len(worlds):
                    steps.check_world(then, label)
                    worlds.append(then)
                    predecessors.append((at, label))
                elif sample and then != worlds[seen]:
                    met += 1
                    if met % sample == 0:
                        steps.check([(SAME_FUTURES, futures(steps, then) == futures(steps, worlds[seen]))], label)
            at += 1
    except Broken as broken:
        history = (*history_to(predecessors, at), broken.label)
        return FoundAttempts(len(worlds), made, steps.moves, Violation(broken.promise, scenario.name, history))
    return FoundAttempts(len(worlds), made, steps.moves, compared=met // sample if sample else 0)


def futures(steps: AttemptSteps, world: World) -> set[object]:
    return {world_identity(then, steps.scenario) for _, then in steps.after(world)}


def legal_moves() -> set[tuple[AttemptState, AttemptState]]:
    return {(start, end) for start, ends in MOVES.items() for end in ends}
