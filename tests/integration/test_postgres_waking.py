"""Waiters on PostgreSQL are woken by the server, if that was asked for; nothing depends on it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from onceward.protocol.requests import Complete
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.postgres import PostgresStore
from onceward.testing.conformance.harness import claim_request, id_of
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import URL, Postgres, execute
from tests.unit.batcher_calls import until

pytestmark = [pytest.mark.fault("F69")]

TOO_LONG = 60.0


def opened(url: str, schema: str) -> PostgresStore:
    store = PostgresStore(f"{url}?notify=1&application_name={schema}", schema=schema, migrate=True)
    run(store.open(ThreadRuntime()))
    return store


@pytest.fixture
def two(postgres: Postgres, schema: str) -> Iterator[tuple[PostgresStore, PostgresStore]]:
    stores = opened(os.environ[URL], schema), opened(os.environ[URL], schema)
    yield stores
    for store in stores:
        run(store.close())


def settle(store: PostgresStore, key: str) -> None:
    record = run(store.claim([claim_request(key)], timeout=5))[0].record
    assert record is not None
    run(store.settle([Complete(record.id, record.token, record.nonce, b"", b"")], timeout=5))


def listeners(schema: str) -> set[int]:
    """Return the server's processes that listen for this test's stores."""
    named = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%%' AND application_name = %s"
    return {pid for (pid,) in execute(named, schema)}


def listener_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "onceward-listener"]


def test_a_waiter_of_another_store_is_woken_by_its_own_key_and_by_no_other(
    two: tuple[PostgresStore, PostgresStore], schema: str
) -> None:
    worker, waiter = two
    woken, other = threading.Event(), threading.Event()
    stop = [waiter.watch(id_of("key"), woken.set), waiter.watch(id_of("another"), other.set)]
    until(lambda: bool(listeners(schema)))
    settle(worker, "key")
    assert woken.wait(TOO_LONG)
    assert not other.is_set()
    for one in stop:
        one()


def test_a_listener_that_was_cut_off_listens_again(two: tuple[PostgresStore, PostgresStore], schema: str) -> None:
    worker, waiter = two
    woken = threading.Event()
    stop = waiter.watch(id_of("key"), woken.set)
    until(lambda: bool(listeners(schema)))
    cut_off = listeners(schema)
    for pid in cut_off:
        execute("SELECT pg_terminate_backend(%s)", pid)
    until(lambda: bool(listeners(schema) - cut_off))
    settle(worker, "key")
    assert woken.wait(TOO_LONG)
    stop()


def test_behind_a_pooler_the_store_warns_once_and_everything_else_works(
    schema: str, pgbouncer: PgBouncer, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(pgbouncer.url, schema)
    stop = store.watch(id_of("key"), lambda: None)
    settle(store, "key")
    for thread in listener_threads():
        thread.join(TOO_LONG)
    assert listener_threads() == []
    assert [record.message for record in caplog.records if "no effect behind a pooler" in record.message] != []
    stop()
    run(store.close())


def test_the_store_does_not_listen_while_no_caller_waits(two: tuple[PostgresStore, PostgresStore]) -> None:
    worker, waiter = two
    settle(worker, "key")
    assert listener_threads() == []
    waiter.watch(id_of("key"), lambda: None)
    assert len(listener_threads()) == 1
