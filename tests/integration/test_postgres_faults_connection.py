"""PostgreSQL out of reach: down, paused, replies lost, behind a pooler, locked out, forked. Real servers, no mocks."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import threading
from contextlib import ExitStack

import psycopg
import pytest

from onceward import AsyncOnce, Once
from onceward.errors import StoreUnavailable
from onceward.protocol.requests import Verdict
from onceward.runtime.aio import AsyncioRuntime
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.postgres import PostgresStore
from onceward.testing.conformance.harness import claim_request, id_of
from tests.integration.postgres_backend import claim, opened, proxy, store
from tests.raw_postgres import connections_of
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import URL, Postgres, execute
from tests.servers.proxy import CUT_REPLY, LOSE_REPLY, LOSE_REQUEST, RESET_REPLY, SWALLOW_REPLY, Fault, Proxy

__all__ = ["proxy", "store"]  # fixtures, re-exported so that pytest finds them

ACQUIRED = Verdict.ACQUIRED


# ── down, and up again ──


@pytest.mark.fault("F50")
def test_while_the_server_is_down_nothing_is_claimed_and_when_it_is_up_again_the_same_client_continues(
    own_postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []
    with Once(PostgresStore(own_postgres.url, migrate=True), lease="6s") as once:
        once.run("before", done.append, "before")
        own_postgres.kill()
        with caplog.at_level(logging.INFO, "onceward.postgres"):
            for _ in range(3):
                with pytest.raises(StoreUnavailable):
                    once.run("meanwhile", done.append, "meanwhile")
            own_postgres.start()
            once.run("meanwhile", done.append, "meanwhile")
        once.run("before", done.append, "before")
    assert done == ["before", "meanwhile"]
    messages = [record.message for record in caplog.records if record.name == "onceward.postgres"]
    lost, found = ([one for one in messages if word in one] for word in ("connection lost", ": connected again"))
    assert (len(lost), len(found)) == (1, 1), "an outage is logged once"


@pytest.mark.fault("F50")
def test_a_server_that_is_not_there_at_all_is_a_typed_error_that_names_it_without_the_password() -> None:
    once = Once("postgresql://me:secret@127.0.0.1:9/db?sslpassword=hidden")
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:9/db") as caught:
        once.run("k", lambda: None)
    assert "secret" not in str(caught.value)
    assert "hidden" not in str(caught.value)


# ── paused ──


@pytest.mark.rival(21)
@pytest.mark.fault("F52")
def test_a_paused_server_costs_no_more_than_the_call_may_take_and_the_grant_is_found_afterwards(
    own_postgres: Postgres,
) -> None:
    store = opened(own_postgres.url)
    request = claim_request("key")
    with own_postgres.paused(), pytest.raises(StoreUnavailable, match="no answer within the timeout"):
        claim(store, request, timeout=0.2)
    first = claim(store, request)
    again = claim(store, request)
    assert (first.verdict, again.verdict) == (ACQUIRED, ACQUIRED), "the same nonce is the same grant"
    assert first.record.token == again.record.token
    assert claim(store, claim_request("key")).verdict is Verdict.RUNNING
    run(store.close())


@pytest.mark.rival(21)
@pytest.mark.fault("F52")
async def test_a_paused_server_does_not_block_the_event_loop(own_postgres: Postgres) -> None:
    store, runtime = PostgresStore(own_postgres.url, migrate=True), AsyncioRuntime()
    await store.open(runtime)
    with own_postgres.paused():
        asked = asyncio.ensure_future(store.claim([claim_request("key")], timeout=0.3))
        ticks = 0
        while not asked.done():
            await asyncio.sleep(0.01)
            ticks += 1
        with pytest.raises(StoreUnavailable):
            await asked
    assert ticks > 3
    assert (await store.claim([claim_request("other")], timeout=5))[0].verdict is ACQUIRED
    await store.close()


# ── replies that never arrive ──


@pytest.mark.rival(20)
@pytest.mark.fault("F53")
@pytest.mark.parametrize("fault", [LOSE_REQUEST, LOSE_REPLY, RESET_REPLY, CUT_REPLY])
def test_a_reply_lost_on_the_way_is_asked_for_again_and_the_effect_happens_once(
    store: PostgresStore, schema: str, proxy: Proxy, fault: Fault
) -> None:
    through = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres"
    done: list[str] = []
    with Once(PostgresStore(through, schema=schema), lease="6s") as once:
        once.run("ready", done.append, "ready")
        for number in range(4):  # the claim, the completion, and those of the next
            proxy.next(fault, after=number % 2)
            once.run(f"k{number}", done.append, f"k{number}")
        assert len(proxy.struck) == 4
        proxy.reset_all()
        once.run("k0", done.append, "k0")
    assert done == ["ready", "k0", "k1", "k2", "k3"]
    answers = run(store.read([id_of("x")], timeout=5))
    assert answers[0].verdict is Verdict.ABSENT


@pytest.mark.fault("F51", "F53")
async def test_a_completion_whose_reply_is_swallowed_is_repeated_until_it_is_known(
    store: PostgresStore, schema: str, proxy: Proxy
) -> None:
    done: list[str] = []

    async def effect() -> str:
        done.append("once")
        proxy.next(SWALLOW_REPLY)
        return "value"

    through = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres"
    async with AsyncOnce(PostgresStore(through, schema=schema), lease="3s") as once:
        outcome = await once.outcome("k", effect)
        assert outcome.value == "value"
        assert (await once.outcome("k", effect)).replayed
    assert done == ["once"]


@pytest.mark.fault("F65")
def test_behind_a_pooler_nothing_is_prepared_and_nothing_is_left_on_its_connections(
    store: PostgresStore, schema: str, new_pgbouncer: PgBouncer
) -> None:
    with Once(PostgresStore(new_pgbouncer.url, schema=schema), lease="10s") as once:
        for number in range(20):
            assert once.run(f"k{number % 10}", lambda: "value") == "value"
    with psycopg.connect(new_pgbouncer.url, autocommit=True, prepare_threshold=None) as theirs:
        for _ in range(10):
            assert theirs.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
            assert theirs.execute("SELECT current_setting('enable_seqscan')").fetchone() == ("on",)


@pytest.mark.fault("F65")
def test_an_undeclared_pooler_is_detected_by_its_missing_prepared_statements(
    store: PostgresStore, schema: str, pgbouncer: PgBouncer
) -> None:
    with Once(PostgresStore(f"{pgbouncer.url}?prepare=1", schema=schema), lease="10s") as once:
        once.run("ready", lambda: None)
        with ExitStack() as others:  # they take the connections that ours were prepared on
            for number in range(3):
                other = others.enter_context(psycopg.connect(pgbouncer.url, prepare_threshold=None))
                other.execute("SELECT 1")
                once.run(f"while {number} are taken", lambda: None)
        for number in range(10):
            once.run(f"k{number}", lambda: None)


# ── locked out, or limited to one connection ──


@pytest.mark.fault("F51")
def test_a_user_who_is_locked_out_later_gets_an_outage(postgres: Postgres) -> None:
    """The URL was right, so it will be right again: completed work waits for its settlement as in any outage."""
    name = f"locked_out_{os.getpid()}"
    execute(f"CREATE ROLE {name} LOGIN SUPERUSER")
    with Once(f"{os.environ[URL]}?user={name}&schema={name}&migrate=1") as once:
        once.run("before", lambda: None)
        execute(f"ALTER ROLE {name} NOLOGIN")
        execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{name}'")
        with pytest.raises(StoreUnavailable):
            once.run("meanwhile", lambda: None)
        execute(f"ALTER ROLE {name} LOGIN")
        assert once.outcome("meanwhile", str).kind == "executed"
    execute(f"DROP OWNED BY {name}")
    execute(f"DROP ROLE {name}")


@pytest.mark.fault("F67")
@pytest.mark.usefixtures("postgres")
async def test_a_server_that_allows_one_connection_serves_many_callers_by_it() -> None:
    name = f"narrow_{os.getpid()}"
    execute(f"CREATE ROLE {name} LOGIN CONNECTION LIMIT 1")
    execute(f"GRANT CREATE ON DATABASE postgres TO {name}")

    async def doubled(number: int) -> int:
        return 2 * number

    async with AsyncOnce(f"{os.environ[URL]}?user={name}&schema={name}&migrate=1", lease=3600) as once:
        done = await asyncio.gather(*(once.run(f"caller {number}", doubled, number) for number in range(200)))
    assert done == [2 * number for number in range(200)]
    execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


# ── processes ──


@pytest.mark.rival(29)
@pytest.mark.fault("F34")
def test_a_forked_child_has_connections_of_its_own_and_leaves_the_parents_alone(store: PostgresStore) -> None:
    assert claim(store, claim_request("parent")).verdict is ACQUIRED
    [mine] = connections_of(store)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            seen = claim(store, claim_request("parent")).verdict, claim(store, claim_request("child")).verdict
            code = 0 if seen == (Verdict.RUNNING, ACQUIRED) else 2
            run(store.close())
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for number in range(3):
        assert claim(store, claim_request(f"parent {number}")).verdict is ACQUIRED
    assert connections_of(store) == (mine,), "the child has not closed the parent's connection"
    assert claim(store, claim_request("child")).verdict is Verdict.RUNNING


@pytest.mark.fault("F34")
def test_a_pickled_store_opens_connections_of_its_own(store: PostgresStore) -> None:
    assert claim(store, claim_request("key")).verdict is ACQUIRED
    other: PostgresStore = pickle.loads(pickle.dumps(store))
    run(other.open(ThreadRuntime()))
    assert claim(other, claim_request("key")).verdict is Verdict.RUNNING
    run(other.close())


def test_no_more_connections_than_allowed_however_many_ask(schema: str, store: PostgresStore) -> None:
    few = opened(f"{os.environ[URL]}?connections=2&application_name=few", schema=schema)
    threads = [threading.Thread(target=lambda: run(few.read([id_of("k")] * 50, timeout=20))) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    [(number,)] = execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'few'")
    assert 1 <= number <= 2
    run(few.close())
