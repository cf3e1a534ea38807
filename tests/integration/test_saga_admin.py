"""Resolving, giving up and forgetting sagas by hand, and sagas that wait for months: sync and async, every store."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Struct

from onceward import NotAcquired, Once, RecordState, abandon, current_claim, not_applied
from onceward.protocol.requests import Renewal
from onceward.sagas import Step, StepContext
from onceward.sagas import journal as writing
from onceward.sagas.decisions import is_requeued
from onceward.sagas.journal import StepProgress
from onceward.stores import MemoryStore
from tests.integration.saga_shop import Refused, Shop, backend, on_every_store, shop

__all__ = ["backend", "shop"]  # fixtures, re-exported so that pytest finds them


def compensate(shop: Shop, order: Any, **given: Any) -> None:
    shop.client.wait(order.saga.compensate(**given))


def with_a_wire(shop: Shop) -> Any:
    """A pivot that may be neither repeated nor looked up."""
    return shop.saga(
        shop.step("reserve", "seat 5"),
        shop.step("charge"),
        shop.step("wire", kind="pivot", after_crash="park"),
        shop.step("mail", kind="retriable"),
    )


# ── giving up ──


@on_every_store
def test_a_pivot_that_was_not_done_is_given_up_and_the_rest_undone(shop: Shop) -> None:
    order = with_a_wire(shop)
    shop.trouble["wire"] = [TimeoutError("no answer")]
    assert order.outcome(number=1).kind == "parked"
    with pytest.raises(NotAcquired, match="cannot be undone"):
        order.resolve(abandon, number=1)
    compensate(shop, order, number=1)
    outcome = order.outcome(number=1)
    assert (outcome.kind, outcome.final, outcome.error_type) == ("failed", True, "TimeoutError")
    assert shop.log == ["reserve", "charge", "wire", "undo charge", "undo reserve"]
    assert order.read(number=1).saga.undone


@pytest.mark.parametrize("finding", [abandon, None])
def test_a_pivot_resolved_as_not_applied_can_still_be_given_up(shop: Shop, finding: Any) -> None:
    """Until the step is tried again, the saga can be undone."""
    order = with_a_wire(shop)
    shop.trouble["wire"] = [TimeoutError()]
    order.outcome(number=1)
    order.resolve(not_applied, number=1)
    if finding is None:
        compensate(shop, order, number=1)
    else:
        order.resolve(finding, number=1)
    assert order.outcome(number=1).kind == "failed"
    assert shop.log == ["reserve", "charge", "wire", "undo charge", "undo reserve"]
    with pytest.raises(NotAcquired, match="nothing to undo"):
        compensate(shop, order, number=1)


def test_behind_the_pivot_nothing_is_given_up(shop: Shop) -> None:
    order = with_a_wire(shop)
    shop.trouble["mail"] = [OSError()] * 10
    assert order.outcome(number=1).kind == "parked"
    with pytest.raises(NotAcquired, match="can no longer be undone"):
        compensate(shop, order, number=1)
    with pytest.raises(NotAcquired, match="no saga under this key"):
        compensate(shop, order, number=2)


def test_a_saga_that_is_being_undone_is_not_given_up_again(shop: Shop) -> None:
    order = shop.usual()
    shop.trouble["ship"] = [Refused()]
    shop.trouble["undo charge"] = [ConnectionError()] * 10
    assert order.outcome(number=1).kind == "parked"
    with pytest.raises(NotAcquired, match="being undone already"):
        compensate(shop, order, number=1)


# ── waiting for months ──


@pytest.mark.fault("F74")
@on_every_store
def test_a_saga_that_a_person_resumed_is_kept_even_if_no_worker_continues_it_for_months(shop: Shop) -> None:
    order = with_a_wire(shop)
    shop.trouble["wire"] = [TimeoutError()]
    order.outcome(number=1)
    order.resolve(not_applied, number=1)
    entry = order.read(number=1)
    assert (entry.state, is_requeued(entry.record)) == (RecordState.PENDING, True)
    shop.client.clock.advance("90d")
    assert shop.client.purge() == 0
    assert order.outcome(number=1).kind == "executed"
    assert shop.log == ["reserve", "charge", "wire", "wire", "mail"], "it continued where it was"
    assert len(shop.keys["wire"]) == 1, "under the same key"


def test_a_saga_that_is_to_be_retried_is_kept_even_if_no_worker_continues_it_for_months(shop: Shop) -> None:
    order = shop.usual()
    shop.trouble["mail"] = [OSError()] * 10
    order.outcome(number=1)
    order.retry(number=1)
    shop.client.clock.advance("90d")
    shop.client.purge()
    assert order.outcome(number=1).kind == "executed"
    assert shop.log.count("reserve") == 1


# ── forgetting ──


@on_every_store
def test_a_half_done_saga_is_not_forgotten_implicitly(shop: Shop) -> None:
    order = with_a_wire(shop)
    shop.trouble["wire"] = [TimeoutError()]
    order.outcome(number=1)
    with pytest.raises(NotAcquired, match="reserve, charge, wire; forgetting it would not undo these steps"):
        shop.client.forget(order.saga.key(number=1))
    assert order.read(number=1).state is RecordState.PARKED
    assert shop.client.forget(order.saga.key(number=1), force=True)
    assert order.read(number=1) is None


def test_a_saga_that_is_over_is_forgotten_like_any_other(shop: Shop) -> None:
    order = shop.usual()
    order(number=1)
    shop.trouble["ship"] = [Refused()]
    order.outcome(number=2)
    for number in (1, 2):
        assert shop.client.forget(order.saga.key(number=number))


# ── results and notes ──


class Seat(Struct):
    row: int


def test_a_saga_whose_steps_are_all_done_completes_although_a_result_cannot_be_read_any_more(shop: Shop) -> None:
    order = shop.usual()
    shop.trouble["mail"] = [OSError()] * 10
    order.outcome(number=1)
    order.retry(number=1)
    record = order.read(number=1).record
    broken = writing.journal_from(record.note)
    assert broken is not None
    line = broken.entry("reserve")
    assert line is not None
    assert line.result is not None
    broken = writing.with_entry(broken, msgspec.structs.replace(line, result=line.result[:-1] + b"?"))
    renewal = Renewal(record.id, record.token, record.nonce, 0, writing.note_of(broken))
    shop.client.drive(shop.client.once.store.renew([renewal], timeout=5))
    outcome = order.outcome(number=1)
    assert outcome.kind == "executed", "nothing is repeated or undone because of an unreadable result"
    assert set(outcome.value) == {"charge", "ship", "mail"}
    [event] = shop.client.events_named("result_not_stored")
    assert event.reason.startswith("reserve: ")
    assert [one.progress for one in order.read(number=1).saga.entries] == [StepProgress.DONE] * 4


def test_the_late_answer_to_a_note_does_not_overwrite_a_newer_token() -> None:
    """A step writes a note while its saga gets a new token: the old token must not come back."""
    seen: list[int] = []

    def work() -> None:
        attempt: Any = current_claim()._attempt
        store, renew = attempt.engine.store, attempt.engine.store.renew
        before = attempt.record

        async def late(renewals: Any, *, timeout: float) -> Any:
            answers = await renew(renewals, timeout=timeout)
            attempt.record = msgspec.structs.replace(
                attempt.record, token=before.token + 1, updated_at=before.updated_at + 1
            )
            return answers

        store.renew = late
        try:
            current_claim().annotate(page="3")
        finally:
            store.renew = renew
        seen.append(attempt.record.token - before.token)
        attempt.record = before

    with Once(MemoryStore()) as once:
        once.run("k", work)
    assert seen == [1]


# ── wrong calls ──


def test_a_saga_called_with_positional_arguments_says_how_to_call_it(shop: Shop) -> None:
    order = shop.usual()
    for call in (order.saga.key, order.saga.saga_job):
        with pytest.raises(TypeError, match=r"the saga order takes its input by name, as in order\(order_id=7\)"):
            call(*(((7,), {}) if call == order.saga.saga_job else (7,)))
    with pytest.raises(TypeError, match="by name"):
        shop.client.wait(order.saga.outcome(7))
    assert shop.log == []


def test_the_type_of_a_result_may_be_declared(shop: Shop) -> None:
    def free(step: StepContext[Seat]) -> None:
        shop.log.append(f"row {step.result.row}")

    def reserve(step: StepContext) -> Seat:
        return Seat(5)

    steps = (Step("reserve", shop.client.work(reserve), undo=shop.client.work(free)), shop.step("pay", final=Refused))
    order = shop.saga(*steps)
    shop.trouble["pay"] = [Refused()]
    assert order.outcome(number=1).kind == "failed"
    assert shop.log == ["pay", "row 5"]
