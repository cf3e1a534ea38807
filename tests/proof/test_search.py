"""Every reachable state keeps every promise, and a short history refutes each broken rule."""

from __future__ import annotations

import pytest

from onceward.protocol.transitions import Row
from tests.proof.moves import Moment, Move, Moves
from tests.proof.mutants import MUTANTS
from tests.proof.scenarios import SCENARIOS, Scenario, scenario
from tests.proof.search import HARMS, search
from tests.proof.system import Grant

MAX_STEPS = 8  # of a history that a person can follow
VERBS = {"claim", "renew", "complete", "fail", "park", "release", "resolve", "forget", "purge"}
SAYS = {"complete otherwise": "complete", "fail, effect unknown": "fail", "refuse": "fail"}


@pytest.mark.mission("A3", "A7")
@pytest.mark.rival(1, 20, 22)
@pytest.mark.fault("F32", "F40", "F41", "F42", "F44", "F53", "F66")
@pytest.mark.parametrize("one", SCENARIOS, ids=lambda one: one.name)
def test_no_reachable_state_breaks_a_promise(one: Scenario) -> None:
    found = search(one, sample=100)
    assert found.violation is None
    assert found.states > 1_000, "too few states were searched"
    assert found.steps > 10 * found.states
    assert found.compared > 40, "too few equivalent states were compared"


def test_the_searches_reach_every_row_of_the_table_with_every_verb() -> None:
    cells = search(scenario("verify meets rerun")).cells + search(scenario("no expiry, with a newer version")).cells
    met = {(row, SAYS.get(verb, verb)) for row, verb, _ in cells}
    assert {(row, verb) for row in Row for verb in VERBS} - met == {(Row.NONE, "purge")}


def test_a_search_that_confuses_different_states_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.proof.identity.facts", lambda record, now: record.state)  # as if nothing else counted
    violation = search(scenario("two attempts"), sample=20).violation
    assert violation is not None
    assert violation.promise == "states with the same identity have the same futures"


@pytest.mark.rival(1, 22)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_rule_is_refuted_by_a_history(name: str) -> None:
    mutant = MUTANTS[name]
    violation = search(scenario(mutant.scenario), mutant.rules).violation
    assert violation is not None, f"the search did not notice: {name}"
    assert violation.promise == mutant.promise, violation
    assert len(violation.history) <= MAX_STEPS


@pytest.mark.rival(1, 22)
@pytest.mark.parametrize("name", [name for name, mutant in MUTANTS.items() if mutant.harm])
def test_a_broken_rule_does_harm_that_a_user_would_see(name: str) -> None:
    mutant = MUTANTS[name]
    violation = search(scenario(mutant.scenario), mutant.rules, only=HARMS).violation
    assert violation is not None, f"no user-visible harm was found: {name}"
    assert violation.promise == mutant.harm, violation


def test_the_history_is_readable() -> None:
    violation = search(scenario("rerun"), MUTANTS["complete without token"].rules).violation
    assert violation is not None
    assert violation.history == (
        "A claims → acquired: PENDING, attempt 1, token #1",
        "A sends lapse → ok: PENDING, attempt 1, token #1",
        "B claims → acquired: PENDING, attempt 2, token #2",
        "A sends complete → ok: COMPLETED, attempt 2, token #2",
    )


class CountsFromTheRepeat(Moves):
    """Clients that count their lease from the repeated claim instead of the first."""

    def claim(self, here: Moment, client: int, grant: Grant, whats: tuple[str, str]) -> list[Move]:  # type: ignore[override]
        return list(super().claim(here, client, grant._replace(ends=here.system.real + grant.lease), whats))


def test_a_client_must_count_its_lease_from_its_first_request() -> None:
    violation = search(scenario("rerun"), only=HARMS, behaviour=CountsFromTheRepeat).violation
    assert violation is not None
    assert violation.promise == "at most one live owner"
