"""The connections of a PostgreSQL store: how long a call waits for one, and what an interrupted call leaves behind."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Iterator

import pytest

from onceward import AsyncOnce, Once
from onceward.errors import StoreUnavailable
from onceward.protocol.requests import Verdict
from onceward.runtime.aio import AsyncioRuntime
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.postgres import PostgresStore
from onceward.stores.postgres.maintenance import CallContext
from onceward.stores.postgres.pool import HAND_OVER_AFTER
from onceward.testing.conformance.harness import claim_request, id_of
from tests.clients import TOO_LONG
from tests.integration.postgres_backend import claim, proxy, store
from tests.raw_postgres import connections_of, pool_of, waits_for
from tests.servers.postgres import URL, Postgres, execute
from tests.servers.proxy import SWALLOW_REQUEST, Proxy
from tests.unit.batcher_calls import until

__all__ = ["proxy", "store"]  # fixtures, re-exported so that pytest finds them

NO_SERVER = "postgresql://me@127.0.0.1:9/db"


@pytest.fixture
def narrow(store: PostgresStore, schema: str) -> Iterator[PostgresStore]:
    """A store with a single connection, which no call has opened yet."""
    narrow = PostgresStore(f"{os.environ[URL]}?connections=1", schema=schema)
    yield narrow
    run(narrow.close())


async def sleep_on_the_server(context: CallContext) -> None:
    await context.connection.query("SELECT pg_sleep(30) IS NULL", context.deadline)


def connections_named(name: str) -> int:
    [(number,)] = execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", name)
    return int(number)


# ── waiting for a connection ──


def test_a_call_without_a_server_says_that_it_cannot_connect_instead_of_waiting() -> None:
    with Once(NO_SERVER, lease="60s") as once:
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match="cannot connect"):
                once.run("key", lambda: None)


@pytest.mark.finding("N76")
def test_the_error_of_a_server_that_is_down_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with Once(NO_SERVER, lease="60s") as once, pytest.raises(StoreUnavailable) as down:
        once.run("key", lambda: None)
    for text in (str(down.value), *caplog.messages):
        assert not {"\n", "\t"} & set(text)
    assert "Connection refused Is the server running on that host" in str(down.value)


def test_a_call_that_finds_all_connections_busy_waits_until_its_timeout_and_says_so(narrow: PostgresStore) -> None:
    run(narrow.open(ThreadRuntime()))
    connection = run(pool_of(narrow).acquire(ThreadRuntime(), time.monotonic() + 5))
    begun = time.monotonic()
    with pytest.raises(StoreUnavailable, match="other calls of this process kept its connections busy"):
        claim(narrow, claim_request("key"), timeout=0.3)
    assert time.monotonic() - begun >= 0.3
    pool_of(narrow).release(connection)
    assert claim(narrow, claim_request("key")).verdict is Verdict.ACQUIRED


def test_a_call_that_has_waited_long_gets_the_next_connection(narrow: PostgresStore) -> None:
    run(narrow.open(ThreadRuntime()))
    pool, waited = pool_of(narrow), threading.Event()
    mine = run(pool.acquire(ThreadRuntime(), time.monotonic() + TOO_LONG))

    def wait_for_it() -> None:
        theirs = run(pool.acquire(ThreadRuntime(), time.monotonic() + TOO_LONG))
        waited.set()
        pool.release(theirs)

    other = threading.Thread(target=wait_for_it)
    other.start()
    until(lambda: waits_for(pool) >= HAND_OVER_AFTER)
    pool.release(mine)
    again = run(pool.acquire(ThreadRuntime(), time.monotonic() + TOO_LONG))
    assert waited.is_set(), "the call that returned the connection took it again"
    pool.release(again)
    other.join()


async def test_a_task_that_is_cancelled_returns_the_connection_that_it_was_handed(narrow: PostgresStore) -> None:
    runtime = AsyncioRuntime()
    await narrow.open(runtime)
    pool = pool_of(narrow)
    mine = await pool.acquire(runtime, time.monotonic() + TOO_LONG)
    other = asyncio.ensure_future(pool.acquire(runtime, time.monotonic() + TOO_LONG))
    await asyncio.sleep(0)  # it starts to wait
    await asyncio.to_thread(until, lambda: waits_for(pool) >= HAND_OVER_AFTER)
    pool.release(mine)
    other.cancel()
    with pytest.raises(asyncio.CancelledError):
        await other
    assert await pool.acquire(runtime, time.monotonic() + TOO_LONG) is mine
    pool.release(mine)


# ── opening ──


async def test_a_call_that_fails_or_is_cancelled_while_it_opens_the_store_affects_no_other(
    narrow: PostgresStore,
) -> None:
    runtime = AsyncioRuntime()
    impatient = asyncio.ensure_future(narrow.open(runtime))
    patient = asyncio.ensure_future(narrow.open(runtime))
    await asyncio.sleep(0)
    impatient.cancel()
    await patient
    with pytest.raises(asyncio.CancelledError):
        await impatient
    assert (await narrow.claim([claim_request("key")], timeout=5))[0].verdict is Verdict.ACQUIRED
    await narrow.close()


def test_after_a_failed_opening_the_next_one_works(own_postgres: Postgres) -> None:
    url = own_postgres.url
    own_postgres.kill()
    store = PostgresStore(url, migrate=True)
    with pytest.raises(StoreUnavailable):
        run(store.open(ThreadRuntime()))
    own_postgres.start()
    run(store.open(ThreadRuntime()))
    assert claim(store, claim_request("key")).verdict is Verdict.ACQUIRED
    run(store.close())


# ── interrupted calls ──


async def test_a_cancelled_exchange_closes_its_connection_and_the_pool_replaces_it(
    narrow: PostgresStore, caplog: pytest.LogCaptureFixture
) -> None:
    await narrow.open(AsyncioRuntime())
    for _ in range(5):
        sleeping = asyncio.ensure_future(narrow._run(10, sleep_on_the_server))
        await asyncio.sleep(0.05)
        sleeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sleeping
        assert (await narrow.read([id_of("key")], timeout=5))[0].verdict is Verdict.ABSENT
    assert not [one for one in caplog.records if one.name == "onceward.postgres"], "a cancellation is not an outage"
    await narrow.close()


def test_an_exchange_past_its_deadline_closes_its_connection_and_the_pool_replaces_it(narrow: PostgresStore) -> None:
    run(narrow.open(ThreadRuntime()))
    [before] = connections_of(narrow)
    with pytest.raises(StoreUnavailable, match="no answer within the timeout"):
        run(narrow._run(0.1, sleep_on_the_server))
    assert before.is_closed()
    assert claim(narrow, claim_request("key")).verdict is Verdict.ACQUIRED
    [after] = connections_of(narrow)
    assert after is not before


# ── event loops ──


def test_one_store_serves_several_event_loops_and_closes_the_connections_of_those_that_ended(
    store: PostgresStore, schema: str
) -> None:
    loops, runtime = PostgresStore(f"{os.environ[URL]}?application_name=loops", schema=schema), AsyncioRuntime()

    async def ask(key: str) -> Verdict:
        await loops.open(runtime)
        return (await loops.claim([claim_request(key)], timeout=5))[0].verdict

    for number in range(5):
        assert asyncio.run(ask(f"key {number}")) is Verdict.ACQUIRED
    until(lambda: connections_named("loops") == 1)
    run(loops.open(ThreadRuntime()))
    assert claim(loops, claim_request("key 0")).verdict is Verdict.RUNNING
    run(loops.close())
    until(lambda: connections_named("loops") == 0)


# ── messages ──


def test_an_outage_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), Once(NO_SERVER) as once:
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                once.run("key", lambda: None)
    assert len([one for one in caplog.records if one.name == "onceward.postgres"]) == 1


# ── the end of an event loop ──


def test_a_result_in_flight_is_stored_although_asyncio_run_ends(store: PostgresStore, schema: str) -> None:
    """`asyncio.run` cancels all tasks, also the one that sends the result: it is sent again by another task."""
    for steps in range(6):
        begun: list[int] = []

        async def main(key: str, begun: list[int], steps: int) -> None:
            once = AsyncOnce(PostgresStore(os.environ[URL], schema=schema), lease="60s")

            async def work() -> str:
                begun.append(1)
                return "receipt"

            call = asyncio.ensure_future(once.run(key, work))
            while not begun:  # noqa: ASYNC110 (the call has no event to wait for)
                await asyncio.sleep(0)
            for _ in range(steps):
                await asyncio.sleep(0)
            call.add_done_callback(lambda done: done.cancelled() or done.exception())

        asyncio.run(main(f"key {steps}", begun, steps))
    with Once(store) as once:
        states = [entry.state for steps in range(6) if (entry := once.read(f"key {steps}")) is not None]
    assert states == ["COMPLETED"] * 6


def test_a_connection_attempt_without_an_answer_does_not_delay_other_calls(
    store: PostgresStore, proxy: Proxy, schema: str
) -> None:
    """Each call connects by itself. A pool that waits for the swallowed attempt does not answer in time."""
    behind = PostgresStore(f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres", schema=schema)
    run(behind.open(ThreadRuntime()))
    proxy.always(SWALLOW_REQUEST)
    for _ in range(3):  # the first loses the open connection, the others get no answer when they connect
        with pytest.raises(StoreUnavailable):
            claim(behind, claim_request("key"), timeout=0.3)
    proxy.always(None)
    assert claim(behind, claim_request("key"), timeout=6).verdict is Verdict.ACQUIRED
    run(behind.close())
