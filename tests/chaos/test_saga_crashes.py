"""Sagas that crash at every point, and at every pair of points, in one process; broken sagas must be caught."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from onceward.sagas import claim as saga_claim
from onceward.sagas import flow
from onceward.sagas import journal as writing
from onceward.sagas.definition import Plan
from onceward.sagas.journal import Direction, Journal, JournalEntry, StepProgress, Undo, next_move
from tests.chaos.saga_simulation import (
    DONE,
    EARLY,
    LOST,
    LOST_AND_REFUSED,
    REFUSED,
    SagaSimulation,
    saga_simulation_client,
    verified,
)
from tests.chaos.saga_steps import Scenario, Wrong


@pytest.fixture
def simulation() -> Iterator[SagaSimulation]:
    with saga_simulation_client() as one:
        yield one


@pytest.mark.fault("F74", "F30")
@pytest.mark.mission("A6")
@pytest.mark.parametrize("settled", [lambda scenario: scenario, verified], ids=["do again", "verify"])
@pytest.mark.parametrize(
    ("scenario", "end"),
    [(DONE, "COMPLETED"), (REFUSED, "FAILED"), (EARLY, "FAILED"), (LOST, "COMPLETED"), (LOST_AND_REFUSED, "FAILED")],
    ids=["done", "refused", "early", "lost", "lost and refused"],
)
def test_killed_at_every_point_it_is_all_done_or_all_undone(
    simulation: SagaSimulation, scenario: Scenario, end: str, settled: Callable[[Scenario], Scenario]
) -> None:
    ends = simulation.kill_everywhere(settled(scenario))
    assert set(ends) == {end}
    assert ends[end] > 20, "too few kills"


@pytest.mark.fault("F74")
def test_killed_at_every_point_and_again_at_every_point_of_the_next_attempt(simulation: SagaSimulation) -> None:
    """The soak runs all scenarios of this file like this."""
    ends = simulation.kill_everywhere(Scenario({"charge": "refused"}), twice=True)
    assert set(ends) == {"FAILED"}
    assert ends["FAILED"] > 150


def test_a_step_that_can_be_neither_repeated_nor_looked_up_parks_the_saga_if_it_was_cut_off(
    simulation: SagaSimulation,
) -> None:
    ends = simulation.kill_everywhere(Scenario(settled={"charge": "park"}), may_park=True)
    assert set(ends) == {"COMPLETED", "PARKED"}
    assert ends["PARKED"] == 4, "between its intent and its result, and nowhere else"


def test_an_attempt_that_certainly_failed_does_not_settle_an_earlier_one_with_unknown_outcome(
    simulation: SagaSimulation,
) -> None:
    """If the saga were undone, the effect of the earlier attempt would remain."""
    offline = Scenario({"charge": "offline"}, attempts=2)
    assert simulation.run_killed_at(offline, (), may_park=True)[0] == "PARKED"
    assert simulation.run_killed_at(verified(offline), ())[0] == "COMPLETED"


# ── each of these breaks one promise, and must be caught ──


def forget_intents(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = saga_claim.SagaClaim.write

    async def write(claim: saga_claim.SagaClaim) -> None:
        if not any(line.progress is StepProgress.BEGUN for line in claim.journal.entries):
            await sound(claim)

    monkeypatch.setattr(saga_claim.SagaClaim, "write", write)


def forget_results(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = writing.note_of

    def noted(journal: Journal) -> dict[str, str]:
        forgetful = [
            replace(one, progress=StepProgress.BEGUN) if one.progress is StepProgress.DONE else one
            for one in journal.entries
        ]
        return sound(replace(journal, entries=tuple(forgetful)))

    monkeypatch.setattr(saga_claim, "note_of", noted)


def keep_the_direction_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = writing.note_of

    def noted(journal: Journal) -> dict[str, str]:
        return sound(replace(journal, direction=Direction.FORWARD))

    monkeypatch.setattr(saga_claim, "note_of", noted)


def undo_what_was_never_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = writing.step_undoing

    def next_or_undo(plan: Plan, journal: Journal) -> writing.Move:
        if journal.direction is Direction.COMPENSATING:
            for number, step in enumerate(plan):
                if step.undo is not None and journal.entry(step.name) is None:
                    return Undo(number)
        return next_move(plan, journal)

    def undoing(journal: Journal, name: str, token: int) -> Journal:
        if journal.entry(name) is None:
            journal = replace(journal, entries=(*journal.entries, JournalEntry(name, StepProgress.DONE, token)))
        return sound(journal, name, token)

    monkeypatch.setattr(flow, "next_move", next_or_undo)
    monkeypatch.setattr(writing, "step_undoing", undoing)


def take_every_failure_for_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "classify", lambda error, policy: (False, True))


def let_a_failure_settle_the_attempt_before(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = writing.step_begun

    def begun(journal: Journal, *step_and_token: Any) -> Journal:
        journal = sound(journal, *step_and_token)
        return replace(journal, entries=tuple(replace(line, unsure=False) for line in journal.entries))

    monkeypatch.setattr(writing, "step_begun", begun)


def run_again_without_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore an intent without a result, as a plain operation would."""

    def careless(plan: Plan, journal: Journal) -> writing.Move:
        move = next_move(plan, journal)
        return writing.Do(move.step) if isinstance(move, writing.ParkSaga) and move.error_type == "Unsettled" else move

    monkeypatch.setattr(flow, "next_move", careless)


@pytest.mark.parametrize(
    ("broken", "scenario"),
    [
        (forget_intents, DONE),
        (forget_results, DONE),
        (keep_the_direction_to_itself, REFUSED),
        (undo_what_was_never_begun, Scenario({"reserve": "refused"})),
        (take_every_failure_for_certain, Scenario({"charge": "lost", "ship": "lost"}, attempts=1)),
        (let_a_failure_settle_the_attempt_before, Scenario({"charge": "offline"}, attempts=2)),
        (run_again_without_looking, Scenario(settled={"charge": "park"})),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_saga_that_breaks_a_promise_is_caught(
    simulation: SagaSimulation,
    monkeypatch: pytest.MonkeyPatch,
    broken: Callable[[pytest.MonkeyPatch], None],
    scenario: Scenario,
) -> None:
    broken(monkeypatch)
    with pytest.raises((AssertionError, Wrong)):
        simulation.kill_everywhere(scenario, may_park=True)
