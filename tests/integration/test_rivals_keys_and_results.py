"""Bugs of other libraries with keys, payloads, results and settings."""

from __future__ import annotations

import asyncio
import logging
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest

from onceward import (
    ConfigurationError,
    Executed,
    Mismatch,
    MissingKey,
    Once,
    PayloadMismatch,
    RecordState,
    Replayed,
    calendar,
)
from onceward.errors import ResultNotStored
from onceward.runtime.threads import run
from onceward.testing.clock import FakeClock
from tests.clients import AsyncClient, Backend, SyncClient

FALSY: list[Any] = [None, False, 0, 0.0, "", b"", [], (), {}, set(), Decimal(0)]


# ── 2, 6, 13: results ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rival(2)
@pytest.mark.mission("B3")
@pytest.mark.parametrize("result", FALSY, ids=repr)
def test_a_falsy_result_is_not_taken_for_no_result_and_run_again(client: SyncClient, result: Any) -> None:
    ran = []

    @client(key="k:{number}")
    def work(number: int) -> Any:
        ran.append(number)
        return result

    first, second = work.outcome(1), work.outcome(1)
    assert (first.executed, second.replayed, second.stored) == (True, True, True)
    assert (type(second.value), second.value) == (type(result), result)
    assert (type(work(1)), work(1)) == (type(result), result)
    assert ran == [1]


@pytest.mark.rival(2)
@pytest.mark.mission("A5", "B3")
@pytest.mark.parametrize("result", FALSY, ids=repr)
def test_a_falsy_result_of_a_block_is_kept_as_it_is(client: SyncClient, result: Any) -> None:
    with client.claim("k") as claim:
        claim.complete(result)
    entry = client.read("k")
    assert (entry.state, entry.stored) == (RecordState.COMPLETED, True)
    assert (type(entry.value), entry.value) == (type(result), result)


@pytest.mark.rival(6)
@pytest.mark.parametrize("mode", ["async"])
def test_of_an_async_function_the_value_is_stored_and_not_the_coroutine(client: AsyncClient) -> None:
    ran = []

    async def fetch(page: int) -> dict[str, int]:
        ran.append(page)
        return {"page": page}

    async def story() -> list[Any]:
        guarded = client.once(fetch)
        return [await guarded(1), await guarded(page=1), (await guarded.read(1)).state]

    assert client.drive(story()) == [{"page": 1}, {"page": 1}, RecordState.COMPLETED]
    assert ran == [1]


@pytest.mark.rival(6)
async def test_the_blocking_client_awaits_an_async_function_that_it_decorates(backend: Backend) -> None:
    once = Once(backend.open())
    ran = []

    @once(key="page:{page}")
    async def fetch(page: int) -> dict[str, int]:
        ran.append(page)
        return {"page": page}

    assert (await fetch(1), await fetch(1)) == ({"page": 1}, {"page": 1})
    assert ran == [1]
    await asyncio.to_thread(once.close)


@pytest.mark.rival(6)
def test_an_async_function_that_is_given_to_the_blocking_client_is_refused_and_locks_nothing(backend: Backend) -> None:
    async def fetch(page: int) -> dict[str, int]:
        return {"page": page}

    with Once(backend.open()) as once:
        for refused in (
            lambda: once.run("k", fetch, 1),
            lambda: once.run("k", partial(fetch, 1)),
            lambda: once.map(fetch, [1]),
            lambda: once.map(once(fetch), [1]),
        ):
            with pytest.raises(ConfigurationError, match="async"):
                refused()
        once.purge()  # opens the store
        assert run(once.store.counts(timeout=5)) == {}


@pytest.mark.rival(13)
@pytest.mark.parametrize(
    "result", [object(), random.Random(1).randbytes(2_000_000), {1: {2: object}}], ids=["object", "oversize", "deep"]
)
def test_a_result_that_cannot_be_stored_does_not_lead_to_a_second_run(client: SyncClient, result: Any) -> None:
    ran = []

    @client(key="k:{number}")
    def work(number: int) -> Any:
        ran.append(number)
        return result

    assert work(1) is result  # the caller that ran it gets it
    second = work.outcome(1)
    assert (type(second), second.stored) == (Replayed, False)
    with pytest.raises(ResultNotStored):
        work(1)
    assert ran == [1]
    assert [event.level for event in client.events_named("result_not_stored")] == [logging.ERROR]


@pytest.mark.rival(13)
def test_a_result_that_was_declared_as_not_stored_replays_as_none_and_quietly(client: SyncClient) -> None:
    ran = []

    @client(store_result=False)
    def work(number: int) -> Any:
        ran.append(number)
        return object()

    assert work(1) is not None
    assert work(1) is None
    assert ran == [1]
    assert client.events_named("result_not_stored") == []


# ── 3, 4: many on one store ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rival(3)
def test_nested_calls_on_one_store_do_not_overwrite_each_others_record(client: SyncClient) -> None:
    ran: list[str] = []

    @client(key="{order}")
    def inner(order: str) -> str:
        ran.append("inner")
        return f"inner {order}"

    @client(key="{order}")
    def outer(order: str) -> str:
        ran.append("outer")
        before = inner(order)
        assert outer.read(order).state is RecordState.PENDING
        return f"outer of {before}"

    assert outer("1") == outer("1") == "outer of inner 1"
    assert inner("1") == "inner 1"
    assert (outer.read("1").value, inner.read("1").value) == ("outer of inner 1", "inner 1")
    assert ran == ["outer", "inner"]


@pytest.mark.rival(3)
def test_an_inner_call_that_fails_leaves_the_outer_claim_alone(client: SyncClient) -> None:
    @client
    def inner(order: str) -> str:
        raise OSError(order)

    @client
    def outer(order: str) -> str:
        with pytest.raises(OSError, match="1"):
            inner(order)
        return "outer did without"

    assert outer("1") == "outer did without"
    assert (inner.read("1").state, outer.read("1").state) == (RecordState.FAILED, RecordState.COMPLETED)


@pytest.mark.rival(4)
def test_the_second_configuration_on_a_shared_store_is_not_ignored(client: SyncClient) -> None:
    ran: list[str] = []

    @client(window="1h", lease="60s")
    def hourly(number: int) -> None:
        ran.append("hourly")

    @client(window="48h", lease="300s")
    def rarely(number: int) -> None:
        ran.append("rarely")

    for _ in range(2):
        hourly(1)
        rarely(1)
        client.clock.advance("2h")
    assert ran == ["hourly", "rarely", "hourly"]
    assert (hourly.policy.lease, rarely.policy.lease) == (60_000_000, 300_000_000)


@pytest.mark.rival(4)
def test_a_clients_own_choice_of_what_makes_the_payload_is_not_ignored(client: SyncClient) -> None:
    by_key, by_order = client.another(fingerprint="none", app="a"), client.another(fingerprint=["order"], app="b")
    for each in (by_key, by_order):
        assert each.run("k", pay, "o-1", 10) == each.run("k", pay, "o-1", 99) == "paid 10 for o-1"
    assert by_key.outcome("k", pay, "o-2", 10).replayed
    assert by_order.outcome("k", pay, "o-2", 10).arguments == ("order",)


@pytest.mark.rival(4)
def test_two_clients_on_one_store_keep_each_its_own_configuration(client: SyncClient) -> None:
    short, long = client.another(window="1h", app="short"), client.another(window="48h", app="long")
    for each in (short, long, short):
        each.run("k", str, 1)
    client.clock.advance("2h")
    assert short.outcome("k", str, 1).executed
    assert long.outcome("k", str, 1).replayed


# ── 5: the payload check ────────────────────────────────────────────────────────────────────────────────────────────


def pay(order: str, amount: int) -> str:
    return f"paid {amount} for {order}"


@pytest.mark.rival(5)
def test_an_identical_retry_after_completion_is_replayed_and_another_payload_is_still_refused(
    client: SyncClient,
) -> None:
    guarded = client(key="{order}")(pay)
    assert guarded("o-1", 10) == guarded(amount=10, order="o-1") == "paid 10 for o-1"
    outcome = guarded.outcome("o-1", 99)
    assert (type(outcome), outcome.arguments) == (Mismatch, ("amount",))
    with pytest.raises(PayloadMismatch, match="differs in: amount"):
        guarded("o-1", 99)
    assert guarded("o-1", 10) == "paid 10 for o-1"  # the refused one changed nothing


@pytest.mark.rival(5)
@pytest.mark.parametrize("before", ["silent", "failed", "taken over"])
def test_the_payload_check_is_not_skipped_when_an_attempt_is_repeated(client: SyncClient, before: str) -> None:
    if before == "failed":
        with pytest.raises(OSError), client.claim("k", payload={"amount": 10}):  # noqa: PT011 (any OSError will do)
            raise OSError
    else:
        client.silent_owner("k", payload={"amount": 10})
        client.clock.advance("601s")
    if before == "taken over":
        client.silent_owner("k", payload={"amount": 10})
        client.clock.advance("601s")
    with pytest.raises(PayloadMismatch, match="amount"), client.claim("k", payload={"amount": 99}):
        pass
    with client.claim("k", payload={"amount": 10}) as claim:
        assert claim.attempt == (3 if before == "taken over" else 2)


# ── 8, 9, 30: keys ──────────────────────────────────────────────────────────────────────────────────────────────────

TEXT = "8c0e4a5e-0f9c-4a53-a2a5-0a3a5c3f5c11"
LOOKALIKES: list[tuple[Any, Any]] = [
    (Decimal(10), "10"),
    (Decimal(10), 10),
    (Decimal("1.0"), 1.0),
    (UUID(TEXT), TEXT),
    ({1: "x"}, {"1": "x"}),
    (1, True),
    (1, 1.0),
    (1, "1"),
    (None, "None"),
    (b"a", "a"),
    ((1, 2), [1, 2]),
    ({1, 2}, [1, 2]),
    (date(2026, 1, 1), "2026-01-01"),
    (datetime(2026, 1, 1, tzinfo=UTC), date(2026, 1, 1)),
    (["a", "b"], ["ab"]),
    ({"a": None}, {}),
]


@pytest.mark.rival(8)
@pytest.mark.mission("B1")
@pytest.mark.parametrize(("one", "other"), LOOKALIKES, ids=repr)
def test_values_that_only_look_alike_are_not_the_same_key(client: SyncClient, one: Any, other: Any) -> None:
    ran = []

    @client
    def work(value: Any) -> str:
        ran.append(value)
        return type(value).__name__

    assert [work(one), work(other)] == [type(one).__name__, type(other).__name__]
    assert [work(one), work(other)] == [type(one).__name__, type(other).__name__]
    assert len(ran) == 2
    assert work.key(one).id != work.key(other).id


@pytest.mark.rival(8)
def test_values_that_only_look_alike_are_not_the_same_key_when_given_by_hand(client: SyncClient) -> None:
    ids = {client.once.key(value).id for pair in LOOKALIKES for value in pair if value not in (None, {})}
    assert len(ids) == len({repr(value) for pair in LOOKALIKES for value in pair if value not in (None, {})})


@pytest.mark.rival(9)
def test_two_functions_of_the_same_name_in_different_modules_do_not_share_results(client: SyncClient) -> None:
    senders = {}
    for name in ("mails", "letters"):
        module = ModuleType(name)
        exec("def send(to):\n    return f'{__name__} sent to {to}'\n", module.__dict__)
        senders[name] = module.send
    assert [client(send)("ada") for send in senders.values()] == ["mails sent to ada", "letters sent to ada"]
    assert client.run("k", senders["mails"], "ada") == "mails sent to ada"
    with pytest.raises(PayloadMismatch):  # one key, two functions: a mistake in the calling code
        client.run("k", senders["letters"], "ada")


@pytest.mark.rival(9)
@pytest.mark.parametrize("mode", ["blocking"])
def test_two_partials_or_callables_under_one_key_do_not_share_results_either(client: SyncClient) -> None:
    assert client.run("partial", partial(pay, "o-1"), 10) == "paid 10 for o-1"
    assert client.outcome("partial", pay, "o-1", 10).replayed  # the same function with the same arguments
    assert client.outcome("partial", partial(pay, amount=99), "o-1").arguments == ("amount",)
    assert isinstance(client.outcome("partial", partial(str, 10)), Mismatch)
    one, other = (
        type("Sender", (), {"__module__": module, "__call__": lambda self, to: f"{self.__module__} to {to}"})()
        for module in ("mails", "letters")
    )
    assert client.run("callable", one, "ada") == "mails to ada"
    assert isinstance(client.outcome("callable", other, "ada"), Mismatch)


@pytest.mark.rival(9)
def test_the_same_call_with_arguments_spelt_differently_does_not_run_twice(client: SyncClient) -> None:
    ran = []

    @client
    def work(x: int, y: int = 2, *, z: int = 3) -> int:
        ran.append(x)
        return x + y + z

    assert [work(1), work(x=1), work(1, 2), work(y=2, x=1, z=3)] == [6] * 4
    assert ran == [1]


@pytest.mark.rival(30)
@pytest.mark.parametrize("missing", [None, ""])
def test_a_missing_key_does_not_silently_run_unprotected(client: SyncClient, missing: Any) -> None:
    ran: list[Any] = []

    @client(key="message:{message_id}")
    def handle(message_id: str | None) -> None:
        ran.append(message_id)

    @client(key=lambda message: message.get("id"))
    def receive(message: dict[str, Any]) -> None:
        ran.append(message)

    for call in (
        lambda: handle(missing),
        lambda: receive({"id": missing}),
        lambda: receive({}),
        lambda: client.run(missing, pay, order="o-1", amount=10),
        lambda: client.silent_owner(missing),
    ):
        with pytest.raises(MissingKey):
            call()
    assert ran == []


@pytest.mark.rival(30)
def test_a_call_without_a_key_that_was_declared_to_run_is_reported_as_an_error(
    client: SyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    ran = []

    @client(key="message:{message_id}", on_missing_key="run")
    def handle(message_id: str | None) -> str:
        ran.append(message_id)
        return "handled"

    outcomes = [handle.outcome(None), handle.outcome(None)]
    assert [(type(outcome), outcome.reason) for outcome in outcomes] == [(Executed, "unprotected")] * 2
    assert ran == [None, None]
    assert [record.levelname for record in caplog.records if "unprotected" in record.message] == ["ERROR"] * 2


@pytest.mark.rival(30)
def test_a_key_template_that_names_no_parameter_is_refused_when_it_is_declared(client: SyncClient) -> None:
    def handle(message_id: str) -> None: ...

    with pytest.raises(ConfigurationError, match="mesage_id"):
        client(key="message:{mesage_id}")(handle)


# ── 26: windows ─────────────────────────────────────────────────────────────────────────────────────────────────────


def set_time(clock: FakeClock, moment: datetime) -> None:
    clock.advance_microseconds(int(moment.timestamp() * 1_000_000) - clock.now())


@pytest.mark.rival(26)
@pytest.mark.mission("C1")
def test_two_calls_across_midnight_do_not_both_run_within_a_window_of_a_day(client: SyncClient) -> None:
    ran = []

    @client(window="24h")
    def report(team: str) -> None:
        ran.append(team)

    set_time(client.clock, datetime(2026, 3, 1, 23, 59, 59, tzinfo=UTC))
    report("a")
    client.clock.advance("2s")
    report("a")
    assert ran == ["a"]
    client.clock.advance("86397s")
    report("a")
    assert ran == ["a"]
    client.clock.advance("1s")
    report("a")
    assert ran == ["a", "a"]


@pytest.mark.rival(26)
@pytest.mark.mission("C1")
def test_a_bucket_by_day_exists_only_under_its_own_name_and_with_its_time_zone(client: SyncClient) -> None:
    ran = []

    @client(window=calendar("Europe/Berlin"))
    def report(team: str) -> None:
        ran.append(team)

    set_time(client.clock, datetime(2026, 3, 1, 22, 59, 59, tzinfo=UTC))  # a second before midnight in Berlin
    report("a")
    client.clock.advance("2s")
    report("a")
    assert ran == ["a", "a"]
    client.clock.advance("1h")  # midnight in UTC is nothing special
    report("a")
    assert ran == ["a", "a"]
