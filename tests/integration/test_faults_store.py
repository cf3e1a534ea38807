"""A store that is down at claim or at completion."""

from __future__ import annotations

import logging
import sqlite3
import time
from contextlib import closing
from typing import Any

import pytest

from onceward import Executed, Once, OutcomeUnknown, RecordState, StoreUnavailable, Unknown
from onceward.errors import StoreBroken, StoreError, StoreFull, VersionSkew
from tests.clients import TOO_LONG, Backend, SyncClient
from tests.faulty import FaultyBackend, FaultyNetwork
from tests.integration.faulty_clients import Effect, faulty, network
from tests.moved_time import in_thread
from tests.unit.batcher_calls import until

__all__ = ["faulty", "network"]  # fixtures, listed here so that pytest finds them


# ── F50: down at claim ──


@pytest.mark.fault("F50")
def test_when_the_store_is_down_nothing_runs_by_default(faulty: SyncClient, network: FaultyNetwork) -> None:
    effect = Effect()
    network.lose_requests("claim")
    with pytest.raises(StoreUnavailable):
        faulty.run("order 7", effect)
    with pytest.raises(StoreUnavailable), faulty.claim("order 8"):
        effect()
    with pytest.raises(StoreUnavailable):
        faulty.map(effect_of_item, ["order 9"])
    assert effect.times == 0
    assert not faulty.heartbeat.held()
    assert faulty.events_named("unprotected") == []
    network.heal()
    assert faulty.run("order 7", effect) == "sent"


def effect_of_item(item: str) -> None:
    pytest.fail("must not run")


@pytest.mark.fault("F50")
def test_a_store_that_is_down_is_called_three_times_before_the_claim_fails(
    faulty: SyncClient, network: FaultyNetwork
) -> None:
    network.lose_requests("claim")
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        faulty.run("order 7", Effect())
    assert network.calls["claim"] == 3
    assert len(set(network.nonces["claim"])) == 1, "the same nonce each time: an earlier one may have been granted"
    assert time.monotonic() - began < 10


@pytest.mark.fault("F50")
def test_running_without_protection_must_be_declared_and_is_logged_as_an_error(
    faulty: SyncClient, network: FaultyNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    effect = Effect()
    reckless = faulty.another(on_store_down="run")
    network.lose_requests("claim")
    outcome = reckless.outcome("order 7", effect)
    assert isinstance(outcome, Executed)
    assert (outcome.value, outcome.reason, effect.times) == ("sent", "unprotected", 1)
    assert [event.key for event in reckless.events_named("unprotected")] == ["order 7"]
    logged = [record for record in caplog.records if "unprotected" in record.getMessage()]
    assert [record.levelno for record in logged] == [logging.ERROR]
    assert "order 7" in logged[0].getMessage()
    network.heal()
    assert reckless.outcome("order 7", effect).executed, "nothing was recorded, so nothing protects it now"


@pytest.mark.fault("F50")
def test_a_failure_of_unprotected_work_is_the_callers(faulty: SyncClient, network: FaultyNetwork) -> None:
    reckless = faulty.another(on_store_down="run")
    network.lose_requests("claim")

    def breaks() -> None:
        raise ConnectionError("no route")

    with pytest.raises(ConnectionError):
        reckless.run("order 7", breaks)


@pytest.mark.fault("F50")
@pytest.mark.parametrize("error", [StoreFull, StoreBroken])
def test_when_the_store_is_full_or_broken_nothing_runs(faulty: SyncClient, error: type[StoreError]) -> None:
    store = faulty.once.store

    async def refuse(*_: object, **__: object) -> Any:
        raise error("no")

    store.inner = type(
        "Refusing", (), {"claim": staticmethod(refuse), "open": store.inner.open, "close": store.inner.close}
    )()
    effect = Effect()
    with pytest.raises(error):
        faulty.run("order 7", effect)
    assert effect.times == 0


@pytest.mark.fault("F50", "F67")
def test_a_record_of_a_newer_version_is_never_run_unprotected(sqlite_client: SyncClient) -> None:
    """The store is not down: it holds a record that this version must not change."""
    effect = Effect()
    reckless = sqlite_client.another(on_store_down="run")
    reckless.run("order 7", effect)
    with closing(sqlite3.connect(sqlite_client.backend.path)) as connection, connection:
        connection.execute("UPDATE onceward_records SET min_reader = 99")
    with pytest.raises(VersionSkew):
        reckless.run("order 7", effect)
    assert effect.times == 1


# ── F51: down at complete ──


@pytest.mark.fault("F51")
def test_a_store_that_is_down_at_completion_is_asked_until_it_is_back(
    faulty: SyncClient, network: FaultyNetwork
) -> None:
    effect = Effect()
    network.lose_requests("settle", 4)
    outcome = faulty.outcome("order 7", effect)
    assert isinstance(outcome, Executed)
    assert network.calls["settle"] == 5
    assert len(set(network.nonces["settle"])) == 1
    assert set(network.nonces["settle"]) == set(network.nonces["claim"])
    assert len(faulty.events_named("settle_retried")) == 4
    assert faulty.outcome("order 7", effect).replayed
    assert effect.times == 1


@pytest.mark.fault("F51")
def test_a_completion_that_is_never_answered_is_unknown_with_the_value_and_no_false_success(
    faulty: SyncClient, network: FaultyNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    effect = Effect({"receipt": 7})
    worker = faulty.another(settle_timeout="80ms", lease="10m")
    network.lose_requests("settle")
    outcome = worker.outcome("order 7", effect)
    assert isinstance(outcome, Unknown)
    assert (outcome.value, outcome.lost) == ({"receipt": 7}, False)
    with pytest.raises(OutcomeUnknown) as unknown:
        outcome.unwrap()
    assert unknown.value.value == {"receipt": 7}
    assert len(worker.events_named("unknown")) == 1
    assert worker.events_named("completed") == []
    assert [record.levelno for record in caplog.records if record.getMessage().startswith("unknown")] == [logging.ERROR]
    assert not worker.heartbeat.held(), "its lease must expire: only then can `after_crash` decide"
    network.heal()
    entry = worker.read("order 7")
    assert entry.state is RecordState.PENDING
    worker.clock.advance("11m")
    again = worker.outcome("order 7", effect)
    assert (again.kind, again.attempt, effect.times) == ("executed", 2, 2)


@pytest.mark.fault("F51")
def test_by_default_a_result_is_sent_for_ten_minutes_however_short_the_lease_is(
    faulty: SyncClient, network: FaultyNetwork
) -> None:
    worker, outage = faulty.another(lease="1s"), faulty.another()
    network.lose_requests("settle")
    result = worker.start(worker.outcome, "order 7", Effect())
    until(lambda: network.calls["settle"] > 3)
    outage.clock.advance("9m")
    until(lambda: network.calls["settle"] > 5)
    outage.clock.advance("2m")
    assert isinstance(result.result(TOO_LONG), Unknown)


@pytest.mark.fault("F51")
def test_a_block_whose_completion_is_never_answered_raises_outcome_unknown(
    faulty: SyncClient, network: FaultyNetwork
) -> None:
    worker = faulty.another(settle_timeout="50ms")
    network.lose_requests("settle")
    with pytest.raises(OutcomeUnknown), worker.claim("order 7"):
        pass
    with pytest.raises(OutcomeUnknown) as unknown, worker.claim("order 8") as claim:
        claim.complete("receipt")
    assert unknown.value.value == "receipt"
    assert not worker.heartbeat.held()


@pytest.mark.fault("F51")
def test_a_failure_that_cannot_be_recorded_still_reaches_the_caller(faulty: SyncClient, network: FaultyNetwork) -> None:
    worker = faulty.another(settle_timeout="50ms")
    network.lose_requests("settle")

    def breaks() -> None:
        raise ConnectionError("no route")

    with pytest.raises(ConnectionError):
        worker.run("order 7", breaks)
    assert [event.reason for event in worker.events_named("unknown")] == ["failure not recorded"]
    assert not worker.heartbeat.held()


@pytest.mark.fault("F51")
def test_a_store_that_is_down_for_the_whole_work_does_not_lose_its_result(
    network: FaultyNetwork, backend: Backend
) -> None:
    """Renewals and the first completions fail; then the store comes back, and no other worker has taken over."""
    with Once(FaultyBackend(backend, network).open(), lease="1s", settle_timeout="60s") as once:
        reported: list[str] = []
        once.subscribe(lambda event: reported.append(event.name))

        def slow() -> str:
            network.lose_requests("renew")
            network.lose_requests("settle")
            until(lambda: "overdue" in reported)
            return "sent"

        call = in_thread(once.outcome, "order 7", slow)
        until(lambda: network.calls["settle"] > 2)
        network.heal()
        outcome = call.result(TOO_LONG)
        assert (outcome.kind, outcome.attempt) == ("executed", 1)
        assert once.outcome("order 7", slow).value == "sent"
