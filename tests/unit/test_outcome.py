"""Outcomes: always a value; `unwrap` turns each into the plain call's answer."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from onceward import errors
from onceward.protocol.outcome import (
    Common,
    Executed,
    Failed,
    Mismatch,
    Outcome,
    Parked,
    Replayed,
    Running,
    Stale,
    Unknown,
)

EVERY = (Executed, Replayed, Running, Mismatch, Failed, Parked, Stale, Unknown)
FALSY: list[Any] = [None, 0, "", [], {}, False, 0.0, b""]


def test_the_eight_outcomes_are_distinguished_by_kind() -> None:
    assert {one.kind for one in EVERY} == {
        "executed",
        "replayed",
        "running",
        "mismatch",
        "failed",
        "parked",
        "stale",
        "unknown",
    }
    assert set(EVERY) == set(Common.__subclasses__())


@pytest.mark.parametrize("kind", EVERY)
def test_an_outcome_is_a_value_with_key_and_reason(kind: type[Outcome[int]]) -> None:
    outcome = kind(key="pay:7")
    assert outcome == kind(key="pay:7")
    assert outcome.key == "pay:7"
    assert outcome.reason == kind.kind == str(outcome)
    with pytest.raises(AttributeError):
        outcome.key = "other"  # type: ignore[misc]  # frozen


@pytest.mark.mission("B3")
@pytest.mark.parametrize("kind", EVERY)
def test_only_a_replay_says_replayed_and_only_an_execution_says_executed(kind: type[Outcome[int]]) -> None:
    outcome = kind(key="k")
    assert outcome.replayed is (kind is Replayed)
    assert outcome.executed is (kind is Executed)


def test_a_reason_of_ones_own_is_what_people_read() -> None:
    assert str(Running(key="k", reason="send_in_progress")) == "send_in_progress"


@pytest.mark.rival(2)
@pytest.mark.fault("F20")
@pytest.mark.parametrize("value", FALSY, ids=repr)
@pytest.mark.parametrize("kind", [Executed, Replayed])
def test_empty_results_are_results_like_any_other(kind: type[Outcome[Any]], value: Any) -> None:
    given = kind(key="k", value=value).unwrap()
    assert given == value
    assert type(given) is type(value)


@pytest.mark.rival(13)
@pytest.mark.fault("F21")
def test_a_replay_without_its_result_says_so_unless_that_was_declared() -> None:
    with pytest.raises(errors.ResultNotStored, match="k"):
        Replayed(key="k", stored=False).unwrap()
    assert Replayed[None](key="k", stored=False, declared=True).unwrap() is None


def test_running_shows_whether_the_call_had_waited_and_when_to_retry() -> None:
    with pytest.raises(errors.AlreadyRunning, match="worker-3") as found:
        Running(key="k", owner="worker-3", retry_after=4.2).unwrap()
    assert type(found.value) is errors.AlreadyRunning
    assert found.value.retry_after == 4.2
    with pytest.raises(errors.StillRunning, match="k"):
        Running(key="k", waited=True).unwrap()


@pytest.mark.fault("F18")
def test_a_mismatch_names_the_arguments_that_differ() -> None:
    with pytest.raises(errors.PayloadMismatch, match="amount, to") as found:
        Mismatch(key="k", arguments=("amount", "to")).unwrap()
    assert found.value.arguments == ("amount", "to")
    with pytest.raises(errors.PayloadMismatch) as bare:
        Mismatch(key="k").unwrap()
    assert "differs in" not in str(bare.value)


@pytest.mark.parametrize("kind", [Failed, Parked])
def test_what_the_handler_raised_in_this_call_is_raised_itself(kind: Any) -> None:
    raised = ZeroDivisionError("by zero")
    with pytest.raises(ZeroDivisionError) as found:
        kind(key="k", exception=raised).unwrap()
    assert found.value is raised


@pytest.mark.fault("F23")
def test_an_earlier_failure_comes_back_as_a_typed_error_with_its_name_and_message() -> None:
    with pytest.raises(errors.PreviouslyFailed, match="attempt 3 failed with OSError: no route") as found:
        Failed(key="k", attempt=3, error_type="OSError", error="no route", retry_after=2.5).unwrap()
    error = found.value
    assert (error.error_type, error.error_message, error.retry_after) == ("OSError", "no route", 2.5)
    with pytest.raises(errors.PreviouslyFailed, match="not be retried") as final:
        Failed(key="k", error_type="OSError", final=True, retry_after=2.5).unwrap()
    assert final.value.retry_after is None


def test_what_is_parked_says_what_to_do() -> None:
    with pytest.raises(errors.OutcomeParked, match=r"attempt 2 .*Lapsed.*resolve"):
        Parked(key="k", attempt=2, error_type="Lapsed", error="silent").unwrap()


def test_a_stale_event_is_no_error() -> None:
    assert Stale[None](key="k").unwrap() is None


@pytest.mark.rival(10)
@pytest.mark.fault("F51")
def test_an_unconfirmed_result_is_unknown_and_not_lost() -> None:
    with pytest.raises(errors.OutcomeUnknown, match="not confirm") as found:
        Unknown(key="k", value=42).unwrap()
    assert found.value.value == 42


@pytest.mark.fault("F41")
def test_a_replaced_owner_gets_an_error_that_its_result_was_not_stored() -> None:
    with pytest.raises(errors.LeaseLost, match="not stored"):
        Unknown(key="k", value=42, lost=True).unwrap()


def test_the_bare_outcome_answers_nothing() -> None:
    with pytest.raises(NotImplementedError):
        Common[int](key="k").unwrap()


def test_outcome_is_a_class_when_it_runs() -> None:
    """Type checkers see a union, which is more precise."""
    outcome: Any = Outcome
    assert all(issubclass(one, outcome) for one in EVERY)
    assert isinstance(Executed(key="k"), outcome)
    assert repr(outcome) == "<class 'onceward.protocol.outcome.Outcome'>"
    assert outcome[int] is not None
    bare = outcome(key="k")
    assert pickle.loads(pickle.dumps(bare)) == bare
