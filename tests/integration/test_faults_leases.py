"""Leases that expire, are taken over, are late, or are measured by a clock that jumps."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from typing import Any

import pytest

from onceward import AlreadyRunning, AsyncOnce, ConfigurationError, LeaseLost, Once, RecordState, Running, Unknown
from onceward.protocol.ports import Store
from onceward.stores import MemoryStore
from tests.cli.calls import until
from tests.clients import TOO_LONG, Backend, SyncClient
from tests.faulty import FaultyNetwork
from tests.integration.faulty_clients import network, store
from tests.integration.processes import elsewhere
from tests.raw_memory import overwrite

__all__ = ["network", "store"]  # fixtures, listed here so that pytest finds them


def work() -> str:
    return "theirs"


async def async_work() -> str:
    return "theirs"


# ── F40, F41: taking over ──


@pytest.mark.fault("F40")
def test_one_of_many_workers_wins_the_takeover_of_an_expired_lease(client: SyncClient) -> None:
    client.silent_owner("order 7")
    client.clock.advance("1h")
    workers = [client.another(on_running="raise") for _ in range(6)]
    barrier = threading.Barrier(len(workers))

    def take_over(worker: SyncClient) -> int:
        barrier.wait(TOO_LONG)
        return int(worker.silent_owner("order 7").attempt)

    answers = [worker.start(take_over, worker) for worker in workers]
    errors = [answer.exception(TOO_LONG) for answer in answers]
    assert [type(error).__name__ for error in errors if error] == ["AlreadyRunning"] * 5
    assert [answer.result() for answer in answers if not answer.exception()] == [2]


@pytest.mark.fault("F41")
@pytest.mark.rival(1)
def test_a_replaced_owner_is_refused_with_whatever_it_tries_and_changes_nothing(client: SyncClient) -> None:
    late = client.silent_owner("order 7", lease="10m")
    client.clock.advance("11m")
    other = client.another()
    with other.claim("order 7") as winner:
        assert winner.token > late.token
        before = client.read("order 7").record
        with pytest.raises(LeaseLost):
            late.complete("late")
        with pytest.raises(LeaseLost):
            late.annotate(step="late")
        assert client.read("order 7").record == before
        winner.complete("theirs")
    assert client.read("order 7").value == "theirs"


@pytest.mark.fault("F41")
def test_a_handler_that_was_replaced_learns_that_its_result_does_not_count(client: SyncClient) -> None:
    other = client.another()

    def slow() -> str:
        client.clock.advance("11m")
        assert other.start(elsewhere, lambda: other.run("order 7", fresh)).result(TOO_LONG) == "theirs"
        return "late"

    def fresh() -> str:
        return "theirs"

    fresh.__qualname__ = slow.__qualname__
    outcome = client.outcome("order 7", slow)
    assert isinstance(outcome, Unknown)
    assert (outcome.lost, outcome.value) == (True, "late")
    with pytest.raises(LeaseLost):
        outcome.unwrap()
    entry = client.read("order 7")
    assert (entry.value, entry.attempt) == ("theirs", 2)
    assert [event.reason for event in client.events_named("lost")] == ["result refused"]


@pytest.mark.fault("F41")
def test_a_handler_that_was_replaced_cannot_fail_the_winners_work(client: SyncClient) -> None:
    other = client.another()

    def slow() -> str:
        client.clock.advance("11m")
        other.start(elsewhere, lambda: other.run("order 7", fresh)).result(TOO_LONG)
        raise ConnectionError

    def fresh() -> str:
        return "theirs"

    fresh.__qualname__ = slow.__qualname__
    with pytest.raises(ConnectionError):
        client.run("order 7", slow)
    assert client.read("order 7").value == "theirs"
    assert [event.reason for event in client.events_named("lost")] == ["failure refused"]


@pytest.mark.fault("F32", "F41")
def test_the_result_of_a_late_owner_that_was_not_replaced_still_counts(client: SyncClient) -> None:
    """Refusing it would only cause a second effect."""
    late = client.silent_owner("order 7", lease="10m")
    client.clock.advance("5h")
    late.complete("late")
    assert client.read("order 7").value == "late"


# ── F42: a missing lease ──


@pytest.mark.fault("F42")
@pytest.mark.rival(11)
def test_a_record_without_a_lease_stays_pending_forever(client: SyncClient) -> None:
    client.silent_owner("order 7")
    id = client.read("order 7").record.id
    if client.backend.kind == "memory":
        overwrite(client.backend.open(), id, lease_until=None)
    elif client.backend.kind != "sqlite":
        pytest.skip("the conformance kit asks for a claim without a lease instead")
    else:
        with closing(sqlite3.connect(client.backend.path)) as connection, connection:
            connection.execute("UPDATE onceward_records SET lease_until = NULL WHERE id = ?", (id,))
    client.clock.advance("365d")
    impatient = client.another(on_running="raise", app="default")
    with pytest.raises(AlreadyRunning), impatient.claim("order 7"):
        pass


# ── F43, F44: clocks ──


@pytest.mark.fault("F43")
@pytest.mark.parametrize("hours", [-12, 12])
def test_a_caller_whose_own_clock_is_hours_off_neither_steals_nor_loses_anything(
    backend: Backend, hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the store's clock decides; the caller counts durations."""
    right = Once(backend.open(), lease="10m")
    first_claim = elsewhere(right.claim("order 7").__enter__)
    wrong = Once(backend.open(), on_running="raise", lease="10m")
    monkeypatch.setattr(wrong.engine.runtime, "monotonic", lambda: time.monotonic() + hours * 3600)
    wrong.heartbeat.monotonic = wrong.engine.runtime.monotonic
    with pytest.raises(AlreadyRunning) as refused:
        wrong.claim("order 7").__enter__()
    assert refused.value.retry_after == pytest.approx(600, abs=60)
    with wrong.claim("order 8") as claim:
        wrong.heartbeat.tick()
        claim.check()
    assert wrong.outcome("order 9", work).executed
    first_claim.complete("done")
    right.close(timeout=0)
    wrong.close()


@pytest.mark.fault("F44")
def test_a_wall_clock_that_jumps_back_frees_no_key_and_tokens_still_grow(client: SyncClient) -> None:
    with client.claim("order 7", lease="10m") as claim:
        first = claim.token
        client.clock.set_back("30m")
        claim.check()
        with pytest.raises(AlreadyRunning):
            elsewhere(lambda: client.another(on_running="raise").silent_owner("order 7"))
        claim.complete("done")
    assert client.read("order 7").value == "done"
    client.forget("order 7")
    with client.claim("order 7") as again:
        assert again.token > first


@pytest.mark.fault("F44")
def test_a_machine_whose_wall_clock_jumps_back_still_renews_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time_ns
    store = MemoryStore()
    reported: list[str] = []
    with Once(store, lease="2s") as once, once.claim("order 7") as claim:
        monkeypatch.setattr(time, "time_ns", lambda: real() - 3_600_000_000_000)
        monkeypatch.setattr(time, "time", lambda: real() / 1e9 - 3600)
        once.subscribe(lambda event: reported.append(event.name))
        until(lambda: reported.count("renewed") > 1)
        claim.check()
        with Once(store, on_running="raise") as other:
            assert isinstance(elsewhere(lambda: other.outcome(once.key("order 7"), work)), Running)


# ── F45: renewals ──


@pytest.mark.fault("F45")
@pytest.mark.mission("B3")
def test_work_survives_renewals_that_fail_for_most_of_its_lease(
    store: Store, network: FaultyNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    """Real time: the store misses the first renewals."""
    reported: list[str] = []
    with Once(store, lease="2s") as once:
        network.lose_requests("renew", 3)
        once.subscribe(lambda event: reported.append(event.name))

        def slow() -> str:
            until(lambda: "renewed" in reported)
            return "done"

        outcome = once.outcome("order 7", slow)
    assert (outcome.kind, outcome.attempt) == ("executed", 1)
    assert reported.count("renewal_failed") == 3
    failures = [record for record in caplog.records if "renewal_failed" in record.getMessage()]
    assert {record.levelname for record in failures} == {"WARNING"}


# ── F46: leases that cannot work ──


@pytest.mark.fault("F46")
@pytest.mark.parametrize("client_type", [Once, AsyncOnce])
@pytest.mark.parametrize("lease", [0, -1, "0s", "1ms", "49ms", "8d", 10**9, float("inf")])
def test_a_lease_that_cannot_work_is_refused_before_anything_runs(client_type: Any, lease: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"[Ll]ease"):
        client_type("memory://", lease=lease)
    once = client_type("memory://")
    with pytest.raises(ConfigurationError, match=r"[Ll]ease"):
        once(lease=lease)(async_work if client_type is AsyncOnce else work)
    with pytest.raises(ConfigurationError, match=r"[Ll]ease"):
        once.claim("order 7", lease=lease)
    with pytest.raises(ConfigurationError, match=r"[Ll]ease"):
        once.using(lease=lease)


# ── F33: held for long ──


@pytest.mark.fault("F33")
def test_a_key_that_its_owner_holds_for_ten_leases_is_never_free(client: SyncClient) -> None:
    """A caller that polls before and after each renewal never finds the key free."""
    other = client.another(on_running="raise")
    kinds: set[str] = set()

    def poll() -> None:
        kinds.add(elsewhere(lambda: other.outcome(client.once.key("order 7"), work)).kind)

    with client.claim("order 7", lease="10m"):
        for _ in range(50):
            client.clock.advance("2m")
            poll()
            client.renew_leases()
            poll()
    assert kinds == {"running"}
    entry = client.read("order 7")
    assert (entry.state, entry.attempt) == (RecordState.COMPLETED, 1)
