"""Functions that users pass to Onceward: invalid retry delays, `find` functions and completions."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from onceward import ConfigurationError, Failed, Once, OutcomeUnknown, RecordState, not_applied, verify
from onceward.errors import (
    InputNotStored,
    InvalidKey,
    LeaseOverdue,
    OncewardError,
    PreviouslyFailed,
    ResultCorrupt,
    StoreUnavailable,
)
from onceward.stores import MemoryStore
from tests.clients import Backend, SyncClient
from tests.integration.test_interrupted_looks import a_crash


@pytest.mark.parametrize("delay", [lambda _: 1 / 0, lambda _: "soon", lambda _: None, lambda _: -5])
def test_a_retry_delay_that_makes_no_sense_hides_no_failure(client: SyncClient, delay: Any) -> None:
    hasty = client.another(retry_delay=delay, lease="1h")

    def work() -> None:
        raise ValueError("no such customer")

    with pytest.raises(ValueError, match="no such customer"):
        hasty.run("order 7", work)
    entry = hasty.read("order 7")
    assert (entry.state, entry.record.retry_at) == (RecordState.FAILED, entry.record.updated_at)
    [event] = hasty.events_named("retry_delay_failed")
    assert event.error
    assert not hasty.heartbeat.held()


def test_a_retry_delay_that_raises_is_logged_without_its_message(client: SyncClient) -> None:
    def delay(_attempt: int) -> float:
        raise LookupError("no customer ada@example.org")

    def work() -> None:
        raise ValueError("out of stock")

    hasty = client.another(retry_delay=delay)
    with pytest.raises(ValueError, match="out of stock"):
        hasty.run("order 7", work)
    [event] = hasty.events_named("retry_delay_failed")
    assert event.error.startswith(f"LookupError in {__name__}.")
    assert "ada@example.org" not in event.error


@pytest.mark.finding("N25")
@pytest.mark.parametrize("error", [PreviouslyFailed, ResultCorrupt, InvalidKey, InputNotStored, OncewardError])
def test_errors_of_onceward_that_may_quote_content_are_logged_without_their_message(
    client: SyncClient, error: type[OncewardError]
) -> None:
    def delay(_attempt: int) -> float:
        raise error("no customer ada@example.org")

    hasty = client.another(retry_delay=delay)
    with pytest.raises(ValueError, match="out of stock"):
        hasty.run("order 7", sell)
    [event] = hasty.events_named("retry_delay_failed")
    assert event.error.startswith(f"{error.__name__} in {__name__}.")
    assert "ada@example.org" not in event.error


@pytest.mark.finding("N25")
@pytest.mark.parametrize("error", [StoreUnavailable, ConfigurationError])
def test_errors_of_the_store_and_of_settings_are_logged_with_their_message(
    client: SyncClient, error: type[OncewardError]
) -> None:
    def delay(_attempt: int) -> float:
        raise error("the server is down")

    hasty = client.another(retry_delay=delay)
    with pytest.raises(ValueError, match="out of stock"):
        hasty.run("order 7", sell)
    [event] = hasty.events_named("retry_delay_failed")
    assert event.error == f"{error.__name__}: the server is down"


def sell() -> None:
    raise ValueError("out of stock")


def test_an_async_find_is_refused_where_nothing_can_await_it() -> None:
    async def find(order: int) -> Any:
        return not_applied

    once = Once(MemoryStore())
    with pytest.raises(ConfigurationError, match="cannot await"):

        @once(key="{order}", after_crash=verify(find))
        def work(order: int) -> None: ...

    with pytest.raises(ConfigurationError, match="cannot await"):
        once.claim("order 7", after_crash=verify(find))
    with pytest.raises(ConfigurationError, match="cannot await"):
        once.using(after_crash=verify(find)).run("order 7", int)

    @once(key="{order}", after_crash=verify(find))
    async def fine(order: int) -> None: ...


def test_a_find_that_gives_an_awaitable_to_a_blocking_call_is_no_answer(backend: Backend) -> None:
    client = SyncClient(backend)

    async def look() -> Any:
        return not_applied

    def find() -> Any:
        return look()

    a_crash(client)
    outcome = client.another(after_crash=verify(find)).outcome("order 7", lambda: pytest.fail("must not run"))
    assert outcome.kind == "parked"
    client.close()


def test_attempts_used_up_under_verify_are_recorded_under_that_name(client: SyncClient) -> None:
    a_crash(client)
    strict = client.another(after_crash=verify(lambda: not_applied), max_attempts=1)
    outcome = strict.outcome("order 7", lambda: pytest.fail("must not run"))
    assert isinstance(outcome, Failed)
    assert (outcome.error_type, outcome.final) == ("AttemptsUsedUp", True)
    record = strict.read("order 7").record
    assert (record.state, record.error_type, record.final) == (RecordState.FAILED, "AttemptsUsedUp", True)


def test_a_block_that_raises_after_completing_is_reported_as_completed(client: SyncClient) -> None:
    with pytest.raises(ValueError, match="afterwards"), client.claim("order 7") as claim:
        claim.complete("done")
        raise ValueError("afterwards")
    assert [event.name for event in client.events] == ["acquired", "completed"]


@pytest.mark.fault("F51")
def test_a_completion_that_was_not_confirmed_is_not_overwritten_by_a_failure(client: SyncClient) -> None:
    """The effect is done: recording the OutcomeUnknown as its failure would run it again."""
    hasty = client.another(settle_timeout="10ms", lease="1h")
    with pytest.raises(OutcomeUnknown), hasty.claim("order 7") as claim, hasty.store_trouble("settle"):
        claim.complete("done")
    assert hasty.read("order 7").state is RecordState.PENDING
    assert not hasty.heartbeat.held()


@pytest.mark.fault("F51")
def test_complete_in_is_refused_once_the_lease_is_overdue(sqlite_client: SyncClient) -> None:
    """This attempt still owns the record, but another worker may own it before the caller commits."""
    connection = sqlite3.connect(sqlite_client.backend.path, isolation_level=None)
    with pytest.raises(LeaseOverdue), sqlite_client.claim("order 7", lease="10m") as claim:
        sqlite_client.clock.advance("11m")
        connection.execute("BEGIN IMMEDIATE")
        try:
            claim.complete_in(connection, "done")
        finally:
            connection.execute("ROLLBACK")
    connection.close()
