"""Sagas that die at every point, and at every pair of points, in one process; and what finds out if they are broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from onceward.sagas import claim as saga_claim
from onceward.sagas import flow
from onceward.sagas import journal as writing
from onceward.sagas.definition import Plan
from onceward.sagas.journal import Direction, Journal, JournalEntry, Progress, Undo, next_move
from tests.chaos.saga_lives import DONE, EARLY, LOST, LOST_AND_REFUSED, REFUSED, Theatre, theatre, verified
from tests.chaos.saga_stage import Scene, Wrong


@pytest.fixture
def stories() -> Iterator[Theatre]:
    with theatre() as one:
        yield one


@pytest.mark.fault("F74", "F30")
@pytest.mark.mission("A6")
@pytest.mark.parametrize("settled", [lambda scene: scene, verified], ids=["do again", "verify"])
@pytest.mark.parametrize(
    ("scene", "end"),
    [(DONE, "COMPLETED"), (REFUSED, "FAILED"), (EARLY, "FAILED"), (LOST, "COMPLETED"), (LOST_AND_REFUSED, "FAILED")],
    ids=["done", "refused", "early", "lost", "lost and refused"],
)
def test_killed_at_every_point_it_is_all_done_or_all_undone(
    stories: Theatre, scene: Scene, end: str, settled: Callable[[Scene], Scene]
) -> None:
    ends = stories.everywhere(settled(scene))
    assert set(ends) == {end}
    assert ends[end] > 20, "else nothing was killed"


@pytest.mark.fault("F74")
def test_killed_at_every_point_and_again_at_every_point_of_the_next_life(stories: Theatre) -> None:
    """All scenes of this file, too, in the soak."""
    ends = stories.everywhere(Scene({"charge": "refused"}), twice=True)
    assert set(ends) == {"FAILED"}
    assert ends["FAILED"] > 150


def test_a_step_that_can_be_neither_repeated_nor_looked_up_parks_the_saga_if_it_was_cut_off(stories: Theatre) -> None:
    ends = stories.everywhere(Scene(settled={"charge": "park"}), may_park=True)
    assert set(ends) == {"COMPLETED", "PARKED"}
    assert ends["PARKED"] == 4, "between its intent and its result, and nowhere else"


def test_an_attempt_that_certainly_failed_does_not_settle_an_earlier_one_of_which_nobody_knows(
    stories: Theatre,
) -> None:
    """Undone, its effect would be left behind."""
    offline = Scene({"charge": "offline"}, attempts=2)
    assert stories.play(offline, (), may_park=True)[0] == "PARKED"
    assert stories.play(verified(offline), ())[0] == "COMPLETED"


# ── each of these breaks one promise, and has to be caught ──


def forget_intents(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = saga_claim.SagaClaim.write

    async def write(claim: saga_claim.SagaClaim) -> None:
        if not any(line.progress is Progress.BEGUN for line in claim.journal.entries):
            await sound(claim)

    monkeypatch.setattr(saga_claim.SagaClaim, "write", write)


def forget_results(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = writing.note_of

    def noted(journal: Journal) -> dict[str, str]:
        forgetful = [
            replace(one, progress=Progress.BEGUN) if one.progress is Progress.DONE else one for one in journal.entries
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
            journal = replace(journal, entries=(*journal.entries, JournalEntry(name, Progress.DONE, token)))
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
    """As a plain operation would: an intent without a result means nothing."""

    def careless(plan: Plan, journal: Journal) -> writing.Move:
        move = next_move(plan, journal)
        return writing.Do(move.step) if isinstance(move, writing.ParkSaga) and move.error_type == "Unsettled" else move

    monkeypatch.setattr(flow, "next_move", careless)


@pytest.mark.parametrize(
    ("broken", "scene"),
    [
        (forget_intents, DONE),
        (forget_results, DONE),
        (keep_the_direction_to_itself, REFUSED),
        (undo_what_was_never_begun, Scene({"reserve": "refused"})),
        (take_every_failure_for_certain, Scene({"charge": "lost", "ship": "lost"}, attempts=1)),
        (let_a_failure_settle_the_attempt_before, Scene({"charge": "offline"}, attempts=2)),
        (run_again_without_looking, Scene(settled={"charge": "park"})),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_saga_that_breaks_a_promise_is_caught(
    stories: Theatre, monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch], None], scene: Scene
) -> None:
    broken(monkeypatch)
    with pytest.raises((AssertionError, Wrong)):
        stories.everywhere(scene, may_park=True)
