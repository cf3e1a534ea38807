"""Sagas as users write them: sync and async, every store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pytest

from onceward import (
    NotAcquired,
    Once,
    OutcomeParked,
    PreviouslyFailed,
    RecordState,
    abandon,
    applied,
    inconclusive,
    not_applied,
    verify,
)
from onceward.protocol.note import INPUT, SAGA
from onceward.protocol.requests import Answer
from onceward.sagas import Step, StepContext
from onceward.sagas.journal import Direction, StepProgress
from onceward.stores import MemoryStore
from tests.clients import Backend
from tests.integration.saga_shop import Refused, Shop, backend, on_every_store, shop

__all__ = ["backend", "shop"]  # fixtures, re-exported so that pytest finds them


@on_every_store
def test_all_steps_are_done_and_their_results_replayed(shop: Shop) -> None:
    order = shop.usual()
    assert order(number=1) == {"reserve": "seat 5", "charge": Decimal("9.90"), "ship": None, "mail": None}
    assert order.outcome(number=1).value["charge"] == Decimal("9.90")
    assert order.outcome(number=1).kind == "replayed"
    assert shop.log == ["reserve", "charge", "ship", "mail"]
    entry = order.read(number=1)
    assert entry.state is RecordState.COMPLETED
    assert [line.progress for line in entry.saga.entries] == [StepProgress.DONE] * 4
    assert entry.note == {}
    assert entry.record.note[INPUT] == "", "the stored input is removed on completion"


@pytest.mark.mission("A6")
def test_a_refused_step_undoes_the_earlier_ones_in_reverse_order_and_the_record_ends_failed(shop: Shop) -> None:
    order = shop.usual()
    shop.trouble["ship"] = [Refused("no such address")]
    with pytest.raises(Refused, match="no such address"):
        order(number=1)
    assert shop.log == ["reserve", "charge", "ship", "undo charge", "undo reserve"]
    entry = order.read(number=1)
    assert (entry.state, entry.record.final, entry.error) == (RecordState.FAILED, True, "Refused: no such address")
    assert entry.saga.undone
    with pytest.raises(PreviouslyFailed, match="no such address"):
        order(number=1)
    assert len(shop.log) == 5, "a redelivery does nothing"
    assert [event.reason for event in shop.client.events_named("compensating")] == ["ship"]
    assert [event.reason for event in shop.client.events_named("step_undone")] == ["charge", "reserve"]


def test_a_step_that_certainly_did_not_happen_is_retried_and_then_undone(shop: Shop) -> None:
    order = shop.saga(shop.step("reserve"), shop.step("charge", not_applied=ConnectionError))
    shop.trouble["charge"] = [ConnectionError("no route")] * 2
    order(number=1)
    assert shop.log == ["reserve", "charge", "charge", "charge"]
    shop.log.clear()
    shop.trouble["charge"] = [ConnectionError("no route")] * 3
    assert order.outcome(number=2).kind == "failed"
    assert shop.log == ["reserve", "charge", "charge", "charge", "undo reserve"]
    assert len(shop.keys["charge"]) == 2, "one derived key for each saga, the same in every attempt"


def test_an_attempt_with_unknown_outcome_is_repeated_under_the_same_key(shop: Shop) -> None:
    order = shop.usual()
    shop.trouble["charge"] = [TimeoutError(), ConnectionResetError()]
    order(number=1)
    assert shop.log.count("charge") == 3
    assert len(shop.keys["charge"]) == 1
    assert [event.error for event in shop.client.events_named("step_failed")] == [
        "TimeoutError",
        "ConnectionResetError",
    ]


@on_every_store
def test_when_attempts_with_unknown_outcome_are_used_up_a_person_resolves_the_step_as_applied(shop: Shop) -> None:
    order = shop.usual()
    shop.trouble["charge"] = [TimeoutError("busy"), TimeoutError("busy"), TimeoutError("no answer")]
    outcome = order.outcome(number=1)
    assert (outcome.kind, outcome.error_type) == ("parked", "AttemptsUsedUp")
    assert "TimeoutError: no answer → if this error means that nothing happened, declare it" in outcome.error
    assert shop.log == ["reserve", "charge", "charge", "charge"], "nothing is undone that may still be needed"
    assert order.read(number=1).saga.entry("charge").error == "no answer", "the error of the last attempt"
    with pytest.raises(OutcomeParked):
        order(number=1)
    order.resolve(applied(Decimal("9.90")), number=1)
    assert order(number=1)["charge"] == Decimal("9.90")
    assert shop.log[4:] == ["ship", "mail"]


def test_a_person_says_that_it_was_not_done_and_it_gets_all_attempts_again(shop: Shop) -> None:
    order = shop.usual()
    shop.trouble["charge"] = [TimeoutError()] * 5
    assert order.outcome(number=1).kind == "parked"
    order.resolve(not_applied, number=1)
    assert order.outcome(number=1).kind == "executed"
    assert shop.log.count("charge") == 6


def test_a_person_gives_up_and_what_was_done_is_undone_after_the_unknown_step_is_settled(shop: Shop) -> None:
    order = shop.usual()
    shop.trouble["charge"] = [TimeoutError()] * 3
    order.outcome(number=1)
    shop.log.clear()
    order.resolve(abandon, number=1)
    outcome = order.outcome(number=1)
    assert (outcome.kind, outcome.final) == ("failed", True)
    assert shop.log == ["charge", "undo charge", "undo reserve"]


def test_retry_continues_with_all_attempts(shop: Shop) -> None:
    order = shop.usual()
    shop.trouble["mail"] = [OSError("smtp")] * 12
    outcome = order.outcome(number=1)
    assert (outcome.kind, outcome.error_type) == ("parked", "AttemptsUsedUp")
    assert shop.log.count("mail") == 10
    order.retry(number=1)
    assert order(number=1)["mail"] is None
    assert shop.log.count("mail") == 13
    assert "undo charge" not in shop.log, "after the pivot, steps are not undone"
    with pytest.raises(NotAcquired, match="nothing to retry"):
        order.retry(number=1)
    with pytest.raises(NotAcquired, match="no saga under this key"):
        order.retry(number=99)


@on_every_store
def test_a_saga_that_was_undone_starts_again_under_other_keys(shop: Shop) -> None:
    """Otherwise a remote would take the new charge for the refunded one."""
    order = shop.usual()
    shop.trouble["ship"] = [Refused()]
    order.outcome(number=1)
    order.retry(number=1)
    assert order.outcome(number=1).kind == "executed"
    assert shop.log[5:] == ["reserve", "charge", "ship", "mail"]
    assert len(shop.keys["charge"]) == 2
    assert len(shop.keys["undo charge"]) == 1


@pytest.mark.finding("N11")
def test_the_first_caller_can_tell_undone_from_half_undone_and_half_done(shop: Shop) -> None:
    order = shop.usual()
    shop.trouble["ship"] = [Refused(), Refused()]
    with pytest.raises(Refused):
        order(number=1)
    assert order.read(number=1).state is RecordState.FAILED, "undone: the error of its step"
    shop.trouble["undo charge"] = [ConnectionError("bank")] * 10
    with pytest.raises(OutcomeParked, match=r"half undone .UndoFailed.*onceward resolve") as caught:
        order(number=2)
    assert isinstance(caught.value.__cause__, Refused)
    assert order.read(number=2).state is RecordState.PARKED
    shop.trouble["mail"] = [ConnectionError("mail")] * 10
    with pytest.raises(OutcomeParked, match="half done") as caught:
        order(number=3)
    assert isinstance(caught.value.__cause__, ConnectionError)


@pytest.mark.fault("F74")
@on_every_store
def test_an_undo_that_fails_is_repeated_and_then_waits_for_a_person(shop: Shop) -> None:
    order = shop.usual()
    shop.trouble["ship"] = [Refused()]
    shop.trouble["undo charge"] = [ConnectionError("bank")] * 12
    outcome = order.outcome(number=1)
    assert (outcome.kind, outcome.error_type) == ("parked", "UndoFailed")
    assert shop.log.count("undo charge") == 10
    assert "undo reserve" not in shop.log, "never skipped"
    order.retry(number=1)
    assert order.outcome(number=1).kind == "failed"
    assert shop.log.count("undo charge") == 13
    assert shop.log[-1] == "undo reserve"
    assert order.read(number=1).error == "Refused: "


def test_a_person_has_undone_it_by_hand(shop: Shop) -> None:
    order = shop.usual()
    shop.trouble["ship"] = [Refused()]
    shop.trouble["undo charge"] = [ConnectionError("bank")] * 10
    order.outcome(number=1)
    order.resolve(applied(), number=1)
    assert order.outcome(number=1).kind == "failed"
    assert shop.log.count("undo charge") == 10
    assert shop.log[-1] == "undo reserve"


@pytest.mark.parametrize("there", [True, False])
def test_a_step_that_can_be_looked_up_is_not_repeated_blindly(shop: Shop, there: bool) -> None:
    def find(step: StepContext) -> object:
        shop.log.append("look")
        return applied("found") if there else not_applied

    charge = shop.step("charge", "new", after_crash=verify(shop.client.work(find)), kind="pivot")
    order = shop.saga(shop.step("reserve"), charge)
    shop.trouble["charge"] = [TimeoutError()]
    assert order(number=1)["charge"] == ("found" if there else "new")
    assert shop.log == ["reserve", "charge", "look"] + ([] if there else ["charge"])


@pytest.mark.parametrize("answer", [inconclusive, "perhaps", OSError("the bank is closed")])
def test_an_inconclusive_lookup_parks_the_step_and_may_be_repeated(
    shop: Shop, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    answers = [answer, applied("found")]

    def find(step: StepContext) -> object:
        one = answers.pop(0)
        if isinstance(one, BaseException):
            raise one
        return one

    order = shop.saga(shop.step("charge", after_crash=verify(shop.client.work(find))))
    shop.trouble["charge"] = [TimeoutError()]
    outcome = order.outcome(number=1)
    assert (outcome.kind, outcome.error_type) == ("parked", "Unverified")
    why = {inconclusive: "was inconclusive", "perhaps": "returned str"}
    expected = f"verify of step charge {why.get(answer, 'raised OSError: the bank is closed')}"
    assert outcome.error == expected
    assert order.read(number=1).error == f"Unverified: {expected}"
    assert "the bank is closed" not in caplog.text
    order.retry(number=1)
    assert order(number=1) == {"charge": "found"}


def test_a_step_that_is_neither_repeatable_nor_verifiable_is_parked_immediately_and_retry_alone_is_refused(
    shop: Shop,
) -> None:
    order = shop.saga(shop.step("wire", after_crash="park", kind="pivot"))
    shop.trouble["wire"] = [TimeoutError()]
    assert order.outcome(number=1).error_type == "Unsettled"
    with pytest.raises(NotAcquired, match="only be parked again"):
        order.retry(number=1)
    with pytest.raises(NotAcquired, match="cannot be undone"):
        order.resolve(abandon, number=1)
    order.resolve(not_applied, number=1)
    order(number=1)
    assert shop.log == ["wire", "wire"]


def counted(verb: Callable[..., Any], asked: list[str]) -> Callable[..., Any]:
    def call(requests: Sequence[Any], **how: Any) -> Any:
        asked.extend(type(one).__name__ for one in requests)
        return verb(requests, **how)

    return call


def test_a_saga_of_four_steps_takes_ten_calls_to_the_store(backend: Backend) -> None:
    """Its claim, an intent and a result for each step, and its end; its input costs none."""
    store: Any = backend.open()
    asked: list[str] = []
    for verb in ("claim", "renew", "settle"):
        setattr(store, verb, counted(getattr(store, verb), asked))
    with Once(store) as once:
        steps = [Step(f"step {n}", lambda step: step.key, kind="retriable") for n in range(4)]
        once.saga("s", *steps, key="s:{n}")(n=1)
    assert asked == ["ClaimRequest", *["Renewal"] * 8, "Complete"]


def test_a_person_who_has_only_the_key_resolves_the_step_too() -> None:
    """`once.resolve` must not declare a half-done saga completed."""

    def wire(step: StepContext) -> str:
        raise TimeoutError

    done: list[str] = []
    with Once(MemoryStore()) as once:
        saga = once.saga(
            "order",
            Step("wire", wire, undo=wire, after_crash="park"),
            Step("mail", lambda step: done.append(step.results["wire"]), kind="pivot"),
            key="order:{n}",
        )
        saga.outcome(n=1)
        once.resolve("order:1", applied("by hand"), name="order", why="phoned the bank")
        entry = saga.read(n=1)
        assert entry is not None
        assert entry.state is RecordState.PENDING
        assert entry.saga is not None
        assert entry.saga.direction is Direction.FORWARD
        assert saga(n=1) == {"wire": "by hand", "mail": None}
        assert done == ["by hand"]
        assert [entry.detail for entry in once.audit()] == ["applied"]
        assert SAGA not in entry.note


def test_a_saga_that_parks_while_its_key_is_resolved_is_not_completed_with_a_foreign_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The record is read once: what is decided from it holds only for this very record."""

    def wire(step: StepContext) -> None:
        raise TimeoutError

    store = MemoryStore()
    with Once(store) as once:
        saga = once.saga("order", Step("wire", wire, kind="pivot", after_crash="park"), key="order:{n}")
        key, read = saga.key(n=1), store.read

        async def read_then_park(ids: Sequence[bytes], *, timeout: float) -> list[Answer]:
            answers = await read(ids, timeout=timeout)
            monkeypatch.setattr(store, "read", read)
            saga.outcome(n=1)
            return answers

        monkeypatch.setattr(store, "read", read_then_park)
        with pytest.raises(NotAcquired, match="absent"):
            once.resolve(key, applied("found by phone"))
        entry = once.read(key)
        assert entry is not None
        assert entry.state is RecordState.PARKED
        assert entry.saga is not None
        assert [step.name for step in entry.saga.entries] == ["wire"]
