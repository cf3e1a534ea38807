"""Counters of the sync and async client: what each one counts, and that the store has every count once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from onceward import AlreadyRunning, ConfigurationError, Once, OutcomeUnknown, PayloadMismatch, StoreUnavailable
from onceward.client.counting import enable_counters
from onceward.errors import StillRunning, Stopping, StoreBroken
from onceward.latest import Ordering
from onceward.protocol.counters import HOUR, CounterTotals
from onceward.stores import MemoryStore
from tests.clients import SyncClient
from tests.faulty import FaultyNetwork, FaultyStore
from tests.integration.counting import break_down, counted, counting, work
from tests.integration.joined_block import users_connection, within
from tests.integration.processes import in_a_forked_child

__all__ = ["counting"]  # fixtures, listed here so that pytest finds them


# ── what each counter counts ──


@pytest.mark.mission("B8")
def test_what_is_done_and_what_is_replayed_is_counted_by_scope(counting: SyncClient) -> None:
    counting.run("a", work)
    counting.run("b", work)
    counting.run("a", work)
    assert counted(counting) == {"executed": 2, "replayed": 1}
    tally: CounterTotals = counting.wait(counting.once.stats())
    assert tally.scopes == ["shop/shared"]
    assert tally.latest == counting.clock.now() // HOUR


def test_failures_and_their_replays_parked_work_and_other_payloads_are_counted(counting: SyncClient) -> None:
    with pytest.raises(ConnectionError):
        counting.run("failing", break_down)
    with pytest.raises(PayloadMismatch):
        counting.run("ok", work, counting.run("ok", work, 1) + 1)
    parking = counting.once.using(after_crash="park")
    with pytest.raises(ConnectionError):
        counting.wait(parking.run("parking", counting.work(break_down)))
    assert counted(counting) == {"executed": 1, "failed": 1, "mismatch": 1, "parked": 1}


@pytest.mark.mission("A8")
def test_work_of_another_worker_is_not_a_claim_error_unless_the_wait_times_out(counting: SyncClient) -> None:
    counting.silent_owner("held")
    with pytest.raises(AlreadyRunning), counting.claim("held", on_running="raise"):
        pass
    assert counted(counting) == {"running": 1}
    with pytest.raises(StillRunning), counting.claim("held", on_running="wait", wait="5ms"):
        pass
    assert counted(counting) == {"claim_errors": 1, "running": 2}
    other = counting.another(app="shop")
    assert other.wait(other.once.try_lock("turn")) is not None
    assert counting.wait(counting.once.try_lock("turn")) is None, "try_lock does not wait"
    with pytest.raises(StillRunning), counting.claim("held", on_running="wait", wait=0):
        pass
    assert counted(counting)["claim_errors"] == 1


@pytest.mark.mission("A8")
def test_a_caller_that_stops_waiting_because_the_process_stops_is_not_a_claim_error(
    counting: SyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting.silent_owner("held")
    kind: Any = type(counting.once.store)
    original = kind.claim

    async def stopping(store: Any, *args: Any, **kwargs: Any) -> Any:
        counting.once.stop()
        return await original(store, *args, **kwargs)

    monkeypatch.setattr(kind, "claim", stopping)
    with pytest.raises(Stopping), counting.claim("held", on_running="wait", wait="10m"):
        pass
    assert counting.events_named("claim_failed") == []


@pytest.mark.mission("A8", "A9")
def test_a_store_that_does_not_answer_is_a_claim_error_and_work_that_runs_anyway_is_unprotected(
    counting: SyncClient,
) -> None:
    bold = counting.once.using(on_store_down="run")
    with counting.store_trouble("claim"):
        with pytest.raises(StoreUnavailable):
            counting.run("a", work)
        with pytest.raises(StoreUnavailable), counting.claim("b"):
            pass
        counting.wait(bold.run("c", counting.work(work)))
    assert counted(counting) == {"claim_errors": 3, "unprotected": 1}
    [one, two, three] = counting.events_named("claim_failed")
    assert [one.key, two.key, three.key] == ["a", "b", "c"]
    assert (one.reason, one.error) == ("no answer", "StoreUnavailable")


@pytest.mark.mission("A8", "A4")
def test_a_renewal_that_fails_is_counted(counting: SyncClient) -> None:
    counting.silent_owner("a", lease="10m")
    counting.clock.advance("3m")
    with counting.store_trouble("renew"):
        counting.renew_leases()
    assert counted(counting) == {"renewal_failures": 1}


def test_a_result_that_was_not_confirmed_is_counted_as_unknown(client: SyncClient) -> None:
    counting = client.another(counters=True, settle_timeout="20ms")
    with counting.store_trouble("settle"), pytest.raises(OutcomeUnknown):
        counting.run("a", work)
    assert counted(counting) == {"unknown": 1}


@pytest.mark.mission("E3")
def test_events_of_states_are_counted_as_applied_stale_and_replayed(counting: SyncClient) -> None:
    trucks = counting.once.state("trucks")

    def apply(minute: int, message: str) -> None:
        order = Ordering(f"2020-01-01T00:{minute:02}:00Z", message_id=message)
        counting.wait(trucks.apply("truck 7", order, minute))

    apply(5, "m1")
    apply(6, "m2")
    apply(6, "m2")
    apply(1, "m3")
    assert counted(counting) == {"applied": 2, "replayed": 1, "stale": 1}


def test_a_map_counts_its_items(counting: SyncClient) -> None:
    counting.map(work, [1, 2, 2, 3], key="{amount}")
    counting.map(work, [1, 2, 2, 3], key="{amount}")
    assert counted(counting) == {"executed": 3, "replayed": 5}


@pytest.mark.mission("A8")
def test_each_item_of_a_map_that_finds_no_store_at_all_is_a_claim_error(counting: SyncClient) -> None:
    with counting.store_trouble("open"), pytest.raises(StoreUnavailable):
        counting.map(work, [1, 2, 2], key="{amount}")
    assert counted(counting) == {"claim_errors": 2}


@pytest.mark.mission("A8")
def test_an_event_of_a_state_that_gets_no_answer_is_a_claim_error(counting: SyncClient) -> None:
    trucks = counting.once.state("trucks")
    order = Ordering("2020-01-01T00:00:00Z", message_id="m1")
    for verb in ("open", "apply_events"):
        with counting.store_trouble(verb), pytest.raises(StoreUnavailable):
            counting.wait(trucks.apply("truck 7", order, 1))
    assert counted(counting) == {"claim_errors": 2}
    [one, two] = counting.events_named("claim_failed")
    assert (one.scope, one.reason, two.error) == ("shop/trucks", "no answer", "StoreUnavailable")


# ── in the caller's own transaction ──


@pytest.fixture
def joining(sqlite_client: SyncClient) -> SyncClient:
    return sqlite_client.another(counters=True, app="shop", lease="300ms")


def test_work_within_a_transaction_is_counted_like_any_other(joining: SyncClient) -> None:
    connection = users_connection(joining)
    with within(joining, connection) as tx:
        tx.run("a", work)
        tx.run("a", work)
        assert tx.outcome("b", break_down).kind == "failed"
    connection.commit()
    connection.close()
    assert counted(joining) == {"executed": 1, "failed": 1, "replayed": 1}


@pytest.mark.mission("A8")
def test_a_claim_within_a_transaction_that_gets_no_answer_is_a_claim_error(joining: SyncClient) -> None:
    connection, writer = users_connection(joining), users_connection(joining)
    writer.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable), within(joining, connection) as tx:
        tx.run("a", work)
    for one in (writer, connection):
        one.rollback()
        one.close()
    assert counted(joining) == {"claim_errors": 1}


def test_the_sync_and_async_client_count_together(tmp_path: Path) -> None:
    async def awork() -> int:
        return 1

    with Once(f"sqlite:///{tmp_path}/once.db", counters=True) as once:
        once.run("a", work)
        asyncio.run(once.aio.run("b", awork))
        assert once.counters is not None
        assert once.counters.write()
        assert once.stats().total("executed") == 2


def test_counters_can_be_enabled_later_for_the_sync_and_async_client(tmp_path: Path) -> None:
    with Once(f"sqlite:///{tmp_path}/once.db") as once:

        @once(key="{n}")
        async def awork(n: int) -> int:
            return n

        asyncio.run(awork(1))
        enable_counters(once)
        once.run("b", work)
        asyncio.run(awork(2))
        assert once.counters is not None
        assert once.counters.write()
        assert once.stats().total("executed") == 2


# ── processes ──


def test_a_forked_child_counts_for_itself_and_not_again_for_its_parent(tmp_path: Path) -> None:
    once = Once(f"sqlite:///{tmp_path}/once.db", counters=True)
    once.run("before", work)

    def child() -> None:
        assert once.counters is not None
        assert once.counters.totals.counts() == {}
        once.run("in the child", work)
        once.close()

    in_a_forked_child(child)
    once.run("after", work)
    once.close()
    with Once(f"sqlite:///{tmp_path}/once.db") as other:
        assert other.stats().total("executed") == 3


def test_a_program_that_ends_without_closing_its_client_writes_what_it_has(tmp_path: Path) -> None:
    program = (
        f"from onceward import Once\nonce = Once('sqlite:///{tmp_path}/once.db', counters=True)\nonce.run('a', int)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env=dict(os.environ))
    with Once(f"sqlite:///{tmp_path}/once.db") as once:
        assert once.stats().total("executed") == 1


# ── stores without counters, and old files ──


class WithoutCounters(FaultyStore):
    """A third-party store without counters."""


def test_a_store_that_keeps_no_counters_is_refused_by_name() -> None:
    store = WithoutCounters(MemoryStore(), FaultyNetwork())
    with pytest.raises(ConfigurationError, match="cannot keep counters"):
        Once(store, counters=True)
    with Once(store) as once, pytest.raises(ConfigurationError, match="does not support counters"):
        once.stats()


def test_counters_work_with_a_cache_in_front_of_the_store(tmp_path: Path) -> None:
    with Once(f"sqlite:///{tmp_path}/once.db", counters=True, cache=10) as once:
        once.run("a", work)
        once.run("a", work)
        assert once.counters is not None
        assert once.counters.write()
        assert once.stats().total("replayed") == 1


def test_a_counter_that_was_edited_by_hand_is_reported_as_such(tmp_path: Path) -> None:
    path = tmp_path / "once.db"
    with Once(f"sqlite:///{path}", counters=True) as once:
        once.run("a", work)
    with contextlib.closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE onceward_counters SET counts = '[1]'")
    with Once(f"sqlite:///{path}") as once, pytest.raises(StoreBroken, match="edited by hand"):
        once.stats()
