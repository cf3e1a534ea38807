"""What a step of a saga receives, and how its input and result are stored: sync and async, every store."""

from __future__ import annotations

import random
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from msgspec import Struct

from onceward import (
    ConfigurationError,
    MissingKey,
    Once,
    PayloadMismatch,
    PreviouslyFailed,
    applied,
    current_async_claim,
    current_claim,
)
from onceward.errors import ResultNotStored
from onceward.results.encryption import AesGcm
from onceward.sagas import Step, StepContext
from onceward.stores import MemoryStore
from tests.clients import AsyncClient, Backend, Mode, SyncClient
from tests.integration.saga_shop import Refused, Shop, backend, on_every_store, shop

__all__ = ["backend", "shop"]  # fixtures, re-exported so that pytest finds them


def test_a_step_sees_its_input_the_results_before_it_and_its_keys(shop: Shop) -> None:
    seen: list[StepContext] = []

    def look(step: StepContext) -> None:
        step.check()
        seen.append(step)
        assert step.results["reserve"] == "seat 5"
        assert dict(step.results) == {"reserve": "seat 5"}
        with pytest.raises(ResultNotStored):
            _ = step.result

    order = shop.saga(shop.step("reserve", "seat 5"), Step("look", shop.client.work(look), kind="pivot"))
    order(number=1, seat=5)
    step = seen[0]
    assert step.input == {"number": 1, "seat": 5}
    assert (step.saga_key, step.name, step.attempt) == ("order:1", "look", 1)
    assert step.key != step.undo_key
    assert step.key.startswith("ow_")
    assert step.token == order.read(number=1).token
    assert "order:1: look" in repr(step)


class Document(Struct):
    """The input of a saga, with types."""

    number: int
    day: date


class Receipt(Struct):
    total: Decimal


def test_input_and_results_keep_their_types(shop: Shop) -> None:
    def print_it(step: StepContext) -> Receipt:
        assert isinstance(step.input, Document)
        assert step.input.day == date(2026, 1, 31)
        return Receipt(Decimal("1.50"))

    def check(step: StepContext) -> None:
        assert step.results["print"] == Receipt(Decimal("1.50"))

    steps = (
        Step("print", shop.client.work(print_it), undo=check),
        Step("check", shop.client.work(check), kind="pivot"),
    )
    order = shop.saga(*steps, input_type=Document)
    given = {"number": 1, "day": date(2026, 1, 31)}
    assert order(**given)["print"] == Receipt(Decimal("1.50"))
    assert order(**given)["print"] == Receipt(Decimal("1.50"))
    with pytest.raises(TypeError):
        order(number=1)


@pytest.mark.fault("F18")
def test_the_same_key_with_another_input_is_a_mismatch(shop: Shop) -> None:
    order = shop.usual()
    order(number=1, seat=5)
    with pytest.raises(PayloadMismatch, match="seat"):
        order(number=1, seat=6)


@pytest.mark.fault("F21", "F22")
@on_every_store
def test_a_result_that_cannot_be_stored_completes_the_step_and_reading_it_fails_immediately(shop: Shop) -> None:
    """In the first run as well as after a crash: a step that relies on the result fails early."""

    def wants(step: StepContext) -> None:
        _ = step.results["make"]

    make = shop.step("make", random.Random(1).randbytes(600_000))
    order = shop.saga(make, Step("use", shop.client.work(wants), kind="pivot", final=ResultNotStored))
    with pytest.raises(ResultNotStored, match="the result of step make was not stored"):
        order(number=1)
    assert shop.log == ["make", "undo make"]
    assert "limit" in shop.client.events_named("result_not_stored")[0].reason


@pytest.mark.finding("N25")
def test_the_log_does_not_contain_the_keys_of_a_step_result_that_cannot_be_stored(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.saga(shop.step("make", {"ada@example.org": object()}))(number=1)
    [event] = shop.client.events_named("result_not_stored")
    assert event.reason == "make: result[…]: builtins:object is not a type that can be stored"
    assert "ada@example.org" not in caplog.text


@on_every_store
def test_results_as_large_as_the_journal_takes_survive_a_take_over(shop: Shop) -> None:
    first, second = (random.Random(seed).randbytes(60_000) for seed in (1, 2))
    order = shop.saga(shop.step("first", first), shop.step("second", second), shop.step("third", kind="pivot"))
    shop.trouble["third"] = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        order.outcome(number=1)
    assert order(number=1) == {"first": first, "second": second, "third": None}
    assert shop.log == ["first", "second", "third", "third"]


def test_steps_that_were_begun_keep_their_names(shop: Shop) -> None:
    order = shop.usual()
    shop.trouble["charge"] = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        order.outcome(number=1)
    shop.client.once.sagas.clear()
    renamed = shop.saga(shop.step("book"), shop.step("charge"))
    with pytest.raises(ConfigurationError, match="begun with other steps: reserve, charge"):
        renamed.outcome(number=1)
    shop.client.once.sagas.clear()
    assert shop.usual().outcome(number=1).kind == "executed", "nothing was lost"


def test_a_step_that_was_done_keeps_its_undo(shop: Shop) -> None:
    """It was partly undone; a new version of the program declares that charges cannot be undone."""
    order = shop.usual()
    shop.trouble["ship"] = [Refused("no such address")]
    shop.trouble["undo charge"] = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        order(number=1)
    shop.client.once.sagas.clear()
    changed = shop.saga(shop.step("reserve"), shop.step("charge", kind="pivot"), shop.step("ship", kind="retriable"))
    with pytest.raises(ConfigurationError, match="charge could be undone when it was begun"):
        changed.outcome(number=1)
    shop.client.once.sagas.clear()
    with pytest.raises(PreviouslyFailed, match="no such address"):
        shop.usual()(number=1)
    assert shop.log[-2:] == ["undo charge", "undo reserve"]


@pytest.mark.fault("F5")
@pytest.mark.rival(30)
def test_without_a_key_no_saga_is_begun_whatever_the_client_says(backend: Backend, mode: Mode) -> None:
    """Otherwise all sagas would share one key: the second order would get the results of the first."""
    kind = SyncClient if mode == "blocking" else AsyncClient
    shop = Shop(kind(backend, on_missing_key="run"))
    order = shop.usual()
    for _ in range(2):
        with pytest.raises(MissingKey):
            order(number=None)
    assert shop.log == []
    shop.client.close()


def test_no_step_completes_its_saga(shop: Shop) -> None:
    def pay(step: StepContext) -> None:
        claim = current_claim() if shop.client.mode == "blocking" else current_async_claim()
        assert claim.derived_key("x") == step.derived_key("x")
        shop.client.wait(claim.complete("done"))

    order = shop.saga(shop.step("reserve"), Step("pay", shop.client.work(pay), kind="pivot", final=ConfigurationError))
    with pytest.raises(ConfigurationError, match="a step cannot complete its saga"):
        order(number=1)
    assert shop.log == ["reserve", "undo reserve"]


def test_a_delay_that_cannot_be_worked_out_keeps_nothing_up(shop: Shop) -> None:
    order = shop.saga(shop.step("charge", retry_delay=lambda attempt: 1 / 0))
    shop.trouble["charge"] = [TimeoutError()]
    order(number=1)
    assert shop.client.events_named("retry_delay_failed")


class Mute(Exception):
    """An exception that cannot be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


def test_a_result_that_refuses_attribute_access_is_still_a_result(shop: Shop) -> None:
    class Proxy:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    shop.saga(shop.step("charge", Proxy()))(number=1)
    assert shop.log == ["charge"]


def test_errors_that_cannot_be_printed_are_errors_like_any_other(shop: Shop) -> None:
    def raising(_attempt: int) -> float:
        raise Mute

    order = shop.saga(shop.step("charge", retry_delay=raising))
    shop.trouble["charge"] = [Mute(), Mute()]
    order(number=1)
    assert shop.log == ["charge"] * 3
    assert len(shop.client.events_named("retry_delay_failed")) == 2


def test_stop_iteration_is_an_error_like_any_other() -> None:
    def charge(step: StepContext) -> None:
        raise StopIteration("over")

    with Once(MemoryStore()) as once:
        order = once.saga("order", Step("charge", charge, kind="pivot", final=StopIteration), key="order:{number}")
        with pytest.raises(StopIteration):
            order(number=1)
        entry = order.read(number=1)
        assert entry is not None
        assert entry.error == "StopIteration: over"


@on_every_store
def test_the_journal_is_encrypted_with_the_results(backend: Backend, mode: Mode) -> None:
    cipher = AesGcm({"k": b"0" * 32}, current="k")
    client = (SyncClient if mode == "blocking" else AsyncClient)(backend, cipher=cipher)
    shop = Shop(client)
    order = shop.saga(shop.step("reserve", "a secret seat"), shop.step("charge", after_crash="park"))
    shop.trouble["charge"] = [TimeoutError()]
    order.outcome(number=1, card="4111 1111")
    note = order.read(number=1, card="4111 1111").record.note
    assert "secret" not in str(note)
    assert "4111" not in str(note)
    order.resolve(applied("paid"), number=1, card="4111 1111")
    assert order(number=1, card="4111 1111") == {"reserve": "a secret seat", "charge": "paid"}
    client.close()
