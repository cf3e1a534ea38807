"""Record and attempt together keep every promise, and a short history refutes each broken attempt."""

from __future__ import annotations

from functools import cache

import pytest

from tests.proof.attempt_mutants import ATTEMPT_MUTANTS
from tests.proof.attempt_search import NOT_MODELLED, SAME_FUTURES, FoundAttempts, legal_moves, search_attempts
from tests.proof.attempt_world import ATTEMPT_SCENARIOS, AttemptScenario, attempt_scenario

MAX_STEPS = 9  # of a history that a person can follow


@cache
def searched(one: AttemptScenario) -> FoundAttempts:
    return search_attempts(one, sample=100)


@pytest.mark.mission("A3", "A7")
@pytest.mark.rival(1, 20, 22)
@pytest.mark.fault("F32", "F40", "F41", "F42", "F44", "F53", "F66")
@pytest.mark.parametrize("one", ATTEMPT_SCENARIOS, ids=lambda one: one.name)
def test_no_reachable_state_breaks_a_promise(one: AttemptScenario) -> None:
    found = searched(one)
    assert found.violation is None
    assert found.states > 1_000, "too few states were searched"
    assert found.compared > 100, "too few equivalent states were compared"


def test_every_move_of_the_table_is_made_or_listed_with_the_reason_why_not() -> None:
    made = {move for one in ATTEMPT_SCENARIOS for move in searched(one).moves}
    assert legal_moves() - made == set(NOT_MODELLED)


@pytest.mark.rival(1, 22)
@pytest.mark.parametrize("name", ATTEMPT_MUTANTS)
def test_a_broken_attempt_is_refuted_by_a_history(name: str) -> None:
    mutant = ATTEMPT_MUTANTS[name]
    violation = search_attempts(attempt_scenario(mutant.scenario), behaviour=mutant.behaviour).violation
    assert violation is not None, f"the search did not notice: {name}"
    assert violation.promise == mutant.promise, violation
    assert len(violation.history) <= MAX_STEPS


def test_a_search_that_confuses_different_states_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_the_state(world: object, client: object, scenario: object) -> tuple[str]:
        return (client.state,)  # type: ignore[attr-defined]

    monkeypatch.setattr("tests.proof.attempt_world.client_identity", only_the_state)
    violation = search_attempts(attempt_scenario("rerun"), sample=20).violation
    assert violation is not None
    assert violation.promise == SAME_FUTURES


def test_the_history_is_readable() -> None:
    mutant = ATTEMPT_MUTANTS["settle without a token"]
    violation = search_attempts(attempt_scenario(mutant.scenario), behaviour=mutant.behaviour).violation
    assert violation is not None
    assert violation.history == (
        "A sends a claim",
        "A's claim arrives → acquired",
        "A gives the key back",
        "A's Release arrives → ok, the reply is lost",
        "B sends a claim",
        "B's claim arrives → acquired",
        "A's Release arrives → ok",
    )
