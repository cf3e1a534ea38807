"""PostgreSQL in trouble: down, paused, lost replies, full, refused, forked, restored. Real servers, no mocks."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from onceward import AsyncOnce, Once
from onceward.bridge import run
from onceward.errors import ConfigurationError, StoreBroken, StoreNotSetUp, StoreUnavailable, VersionSkew
from onceward.model.record import Complete, Verdict
from onceward.ports import Filter, Order
from onceward.stores import open_store
from onceward.stores.postgres import PostgresStore
from onceward.stores.postgres.table import Table
from onceward.testing.conformance.stage import LEASE, id_of, wanting
from onceward.worlds.aio import EventLoop
from onceward.worlds.threads import Threads
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import URL, Postgres, execute
from tests.servers.proxy import CUT_REPLY, LOSE_REPLY, LOSE_REQUEST, RESET_REPLY, SWALLOW_REPLY, Fault, Proxy

ACQUIRED = Verdict.ACQUIRED


def opened(url: str, **more: Any) -> PostgresStore:
    store = PostgresStore(url, migrate=True, **more)
    run(store.open(Threads()))
    return store


@pytest.fixture
def store(schema: str) -> Iterator[PostgresStore]:
    store = opened(os.environ[URL], schema=schema)
    yield store
    run(store.close())


@pytest.fixture
def proxy(postgres: Postgres) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", postgres.port) as proxy:
        yield proxy


def claim(store: PostgresStore, request: Any, timeout: float = 5.0) -> Any:
    return run(store.claim([request], timeout=timeout))[0]


def test_a_record_that_cannot_be_read_hides_no_other_in_a_scan(store: PostgresStore, schema: str) -> None:
    ids = {claim(store, wanting(key)).record.id for key in ("a", "b", "c")}
    bad = min(ids)
    execute(f'UPDATE "{schema}".onceward_records SET after_crash = 9 WHERE id = %s', bad)
    found: set[bytes] = set()
    unreadable: list[str] = []
    cursor: bytes | None = None
    while True:
        page = run(store.scan(Filter(), cursor=cursor, limit=1, timeout=5))
        found |= {record.id for record in page.records}
        unreadable += page.unreadable
        cursor = page.cursor
        if cursor is None:
            break
    assert (found, len(unreadable)) == (ids - {bad}, 1)
    assert len(run(store.first(Filter(), order=Order.CREATED, limit=9, timeout=5)).unreadable) == 1


# ── down, and up again ──


@pytest.mark.fault("F50")
def test_while_it_is_down_nothing_is_claimed_and_when_it_is_up_again_the_same_client_goes_on(
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
    told = [record.message for record in caplog.records if record.name == "onceward.postgres"]
    lost, found = ([one for one in told if word in one] for word in ("connection lost", "connected again"))
    assert (len(lost), len(found)) == (1, 1), "an outage is told once"


@pytest.mark.fault("F50")
def test_a_server_that_is_not_there_at_all_is_a_typed_error_that_names_it_without_the_password() -> None:
    once = Once("postgresql://me:secret@127.0.0.1:9/db?sslpassword=hidden")
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:9/db") as told:
        once.run("k", lambda: None)
    assert "secret" not in str(told.value)
    assert "hidden" not in str(told.value)


# ── paused ──


@pytest.mark.rival(21)
@pytest.mark.fault("F52")
def test_a_paused_server_costs_no_more_than_the_call_may_take_and_the_grant_is_found_afterwards(
    own_postgres: Postgres,
) -> None:
    store = opened(own_postgres.url)
    request = wanting("key")
    with own_postgres.paused(), pytest.raises(StoreUnavailable, match="no answer in the time"):
        claim(store, request, timeout=0.2)
    first = claim(store, request)
    again = claim(store, request)
    assert (first.verdict, again.verdict) == (ACQUIRED, ACQUIRED), "the same nonce is the same grant"
    assert first.record.token == again.record.token
    assert claim(store, wanting("key")).verdict is Verdict.RUNNING
    run(store.close())


@pytest.mark.rival(21)
@pytest.mark.fault("F52")
async def test_a_paused_server_does_not_block_the_event_loop(own_postgres: Postgres) -> None:
    store, world = PostgresStore(own_postgres.url, migrate=True), EventLoop()
    await store.open(world)
    with own_postgres.paused():
        asked = asyncio.ensure_future(store.claim([wanting("key")], timeout=0.3))
        ticks = 0
        while not asked.done():
            await asyncio.sleep(0.01)
            ticks += 1
        with pytest.raises(StoreUnavailable):
            await asked
    assert ticks > 3
    assert (await store.claim([wanting("other")], timeout=5))[0].verdict is ACQUIRED
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
    store: PostgresStore, schema: str, pgbouncer: PgBouncer
) -> None:
    with Once(PostgresStore(pgbouncer.url, schema=schema), lease="10s") as once:
        for number in range(20):
            assert once.run(f"k{number % 10}", lambda: "value") == "value"
    with psycopg.connect(pgbouncer.url, autocommit=True, prepare_threshold=None) as theirs:
        for _ in range(10):
            assert theirs.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
            assert theirs.execute("SELECT current_setting('enable_seqscan')").fetchone() == ("on",)


@pytest.mark.fault("F65")
def test_a_pooler_that_nobody_noticed_is_noticed_by_its_missing_statements(
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


# ── others in the way ──


@pytest.mark.fault("F55")
def test_a_transaction_of_ours_that_the_server_cannot_serialize_is_repeated(schema: str, store: PostgresStore) -> None:
    strict = f"{os.environ[URL]}?options=-c%20default_transaction_isolation%3Dserializable"
    done: list[str] = []
    start = threading.Barrier(6)

    def work(name: str) -> None:
        with Once(PostgresStore(strict, schema=schema), lease="10s") as once:
            start.wait(20)
            for number in range(12):
                once.run(f"k{number}", done.append, f"{number}")

    def guarded(name: str) -> None:
        try:
            work(name)
        except BaseException as error:
            done.append(repr(error))

    threads = [threading.Thread(target=guarded, args=(f"{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(done, key=len) == sorted((f"{number}" for number in range(12)), key=len)


@pytest.mark.rival(28)
@pytest.mark.fault("F66")
def test_purge_goes_in_chunks_of_their_own_and_waits_for_nobody(store: PostgresStore, schema: str) -> None:
    table = f'"{schema}".onceward_records'
    execute(
        f"INSERT INTO {table} (id, scope, key, state, token) "
        "SELECT sha256(n::text::bytea), 's', n::text, 'FREE', 1 FROM generate_series(1, 1200) AS n"
    )
    with psycopg.connect(os.environ[URL]) as other:
        other.execute(f"SELECT * FROM {table} WHERE key = '7' FOR UPDATE")  # somebody is at one of them
        before = commits()
        assert run(store.purge(10_000, timeout=20)) == 1199
        assert commits() - before >= 3, "one transaction for at most 500"
    assert run(store.purge(10_000, timeout=20)) == 1


def commits() -> int:
    execute("SELECT pg_stat_force_next_flush()")
    [(number,)] = execute("SELECT pg_current_xact_id()::text::bigint")
    return int(number)


# ── what the tables are, and are not ──


def test_without_its_tables_it_says_which_command_makes_them(postgres: Postgres) -> None:
    with pytest.raises(StoreBroken, match="onceward migrate"):
        run(PostgresStore(os.environ[URL], schema="nobody_made_it").open(Threads()))
    assert execute("SELECT to_regnamespace('nobody_made_it')") == [(None,)], "no DDL unless asked for"


@pytest.mark.fault("F50")
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"dbname": "nobody_made_it"}, "no such database"),
        ({"user": "nobody"}, "user name or password is wrong"),
        ({"sslmode": "requir"}, "cannot work"),
        ({}, "onceward migrate"),
    ],
    ids=["database", "user", "value", "tables"],
)
def test_a_wrong_url_is_never_taken_for_a_store_that_is_down(
    postgres: Postgres, caplog: pytest.LogCaptureFixture, wrong: dict[str, str], told: str
) -> None:
    """A typing error with on_store_down="run" would let everything run unprotected, from the first day on."""
    url = f"{os.environ[URL]}?schema=nobody_made_it"
    done: list[int] = []
    with (
        caplog.at_level(logging.WARNING),
        Once("".join([url, *(f"&{name}={value}" for name, value in wrong.items())]), on_store_down="run") as once,
        pytest.raises(StoreNotSetUp, match=told),
    ):
        once.run("key", done.append, 1)
    assert done == []
    assert "connection lost" not in caplog.text


@pytest.mark.fault("F51")
def test_a_user_who_is_locked_out_later_meets_an_outage(postgres: Postgres) -> None:
    """The URL was right, so it will be right again: what is done waits for its settlement as through any outage."""
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
async def test_a_server_that_has_no_second_connection_for_us_serves_a_crowd_by_the_first() -> None:
    name = f"narrow_{os.getpid()}"
    execute(f"CREATE ROLE {name} LOGIN CONNECTION LIMIT 1")
    execute(f"GRANT CREATE ON DATABASE postgres TO {name}")

    async def doubled(number: int) -> int:
        return 2 * number

    async with AsyncOnce(f"{os.environ[URL]}?user={name}&schema={name}&migrate=1", lease=3600) as once:
        done = await asyncio.gather(*(once.run(f"crowd {number}", doubled, number) for number in range(200)))
    assert done == [2 * number for number in range(200)]
    execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


def test_a_schema_that_only_newer_ones_may_touch_is_left_alone(store: PostgresStore, schema: str) -> None:
    before = execute(f"""SELECT name, value FROM "{schema}".onceward_meta""")
    execute(f"""UPDATE "{schema}".onceward_meta SET value = 99 WHERE name IN ('min_reader', 'schema_version')""")
    try:
        with pytest.raises(VersionSkew, match="99"):
            opened(os.environ[URL], schema=schema)
    finally:
        for name, value in before:
            execute(f"""UPDATE "{schema}".onceward_meta SET value = %s WHERE name = %s""", value, name)


@pytest.mark.rival(25)
def test_nothing_partitions_the_records_and_their_id_is_unique_in_all_states(store: PostgresStore, schema: str) -> None:
    [(kind, unique)] = execute(
        "SELECT c.relkind::text, i.indkey::text FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid "
        "WHERE i.indisprimary AND c.oid = %s::regclass",
        f'"{schema}".onceward_records',
    )
    [(place,)] = execute(
        "SELECT attnum::text FROM pg_attribute WHERE attrelid = %s::regclass AND attname = 'id'",
        f'"{schema}".onceward_records',
    )
    assert (kind, unique) == ("r", place)


@pytest.mark.mission("B4")
def test_a_replay_is_one_round_trip_and_not_one_byte_of_log(store: PostgresStore, proxy: Proxy, schema: str) -> None:
    through = opened(f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres", schema=schema)
    record = claim(through, wanting("key")).record
    run(through.settle([Complete(record.id, record.token, record.nonce, b"x" * 5_000, b"d")], timeout=5))
    for _ in range(3):
        claim(through, wanting("key"))  # its statement is prepared, and the pages are tidied up
    exchanges, position = proxy.exchanges, written()
    for _ in range(20):
        answer = claim(through, wanting("key"))
        assert (answer.verdict, len(answer.record.result)) == (Verdict.REPLAY, 5_000)
    assert proxy.exchanges - exchanges == 20
    assert written() == position
    run(through.close())


def test_a_fresh_call_is_two_round_trips(store: PostgresStore, proxy: Proxy, schema: str) -> None:
    with Once(f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres?schema={schema}", lease="60s") as once:
        once.run("ready", lambda: None)
        before = proxy.exchanges
        for number in range(5):
            once.run(f"k{number}", lambda: None)
        assert proxy.exchanges - before == 10


def test_after_many_replays_a_key_is_looked_up_first_which_costs_a_fresh_one_a_round_trip_once(
    store: PostgresStore, proxy: Proxy, schema: str
) -> None:
    with Once(f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres?schema={schema}", lease="60s") as once:
        for _ in range(Table.often + 3):
            once.run("known", lambda: "done")
        before, position = proxy.exchanges, written()
        for _ in range(5):
            assert once.run("known", lambda: "again") == "done"
        assert (proxy.exchanges - before, written() - position) == (5, 0)
        before = proxy.exchanges
        assert [once.run(key, lambda: "fresh") for key in ("a", "b")] == ["fresh", "fresh"]
        assert proxy.exchanges - before == 1 + 2 + 2, "one look, two claims, two completions"


def written() -> int:
    [(position,)] = execute("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint")
    return int(position)


# ── processes ──


@pytest.mark.rival(29)
@pytest.mark.fault("F34")
def test_a_forked_child_has_connections_of_its_own_and_leaves_the_parents_alone(store: PostgresStore) -> None:
    assert claim(store, wanting("parent")).verdict is ACQUIRED
    [mine] = store._pool._idle
    child = os.fork()
    if child == 0:
        code = 1
        try:
            seen = claim(store, wanting("parent")).verdict, claim(store, wanting("child")).verdict
            code = 0 if seen == (Verdict.RUNNING, ACQUIRED) else 2
            run(store.close())
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for number in range(3):
        assert claim(store, wanting(f"parent {number}")).verdict is ACQUIRED
    assert store._pool._idle == [mine], "the child has not said goodbye on the parent's connection"
    assert claim(store, wanting("child")).verdict is Verdict.RUNNING


@pytest.mark.fault("F34")
def test_a_pickled_store_opens_connections_of_its_own(store: PostgresStore) -> None:
    assert claim(store, wanting("key")).verdict is ACQUIRED
    other: PostgresStore = pickle.loads(pickle.dumps(store))
    run(other.open(Threads()))
    assert claim(other, wanting("key")).verdict is Verdict.RUNNING
    run(other.close())


def test_no_more_connections_than_allowed_however_many_ask(schema: str, store: PostgresStore) -> None:
    few = opened(f"{os.environ[URL]}?connections=2&application_name=few", schema=schema)
    threads = [threading.Thread(target=lambda: run(few.read([id_of("k")] * 50, timeout=20))) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    [(number,)] = execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'few'")
    assert 1 <= number <= 2
    run(few.close())


@pytest.mark.fault("F68")
def test_after_an_older_backup_is_restored_the_token_still_grows(store: PostgresStore, schema: str) -> None:
    table = f'"{schema}".onceward_records'
    claim(store, wanting("key", lease=1))
    [(row,)] = execute(f"SELECT token FROM {table}")  # what the backup has
    late = claim(store, wanting("key", lease=LEASE)).record
    execute(f"UPDATE {table} SET token = %s, nonce = '', state = 'FREE', lease_until = NULL", row)
    fresh = claim(store, wanting("key")).record
    assert fresh.token > late.token > row
    [answer] = run(store.settle([Complete(late.id, late.token, late.nonce, b"late", b"d")], timeout=5))
    assert answer.verdict is Verdict.LOST


# ── URLs ──


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("schema=a.b", "schema"),
        ("schema=1a", "schema"),
        ("migrate=perhaps", "neither yes nor no"),
        ("connections=0", "1 to 1000"),
        ("schema=a&schema=b", "twice"),
        ("schem=a", "did you mean 'schema'"),
        ("ssl_mode=require", "did you mean 'sslmode'"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused(query: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        open_store(f"postgresql://localhost/db?{query}")


def test_the_name_of_a_store_has_no_password() -> None:
    store = open_store("postgresql://me:secret@host/db?password=hidden&sslmode=require")
    assert store.name == "postgresql://me@host/db?sslmode=require"


def test_an_encoding_that_cannot_hold_every_key_is_refused(postgres: Postgres, tmp_path: Path) -> None:
    name = f"latin_{os.getpid()}"
    execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    with pytest.raises(StoreBroken, match="LATIN1"):
        opened(os.environ[URL].replace("/postgres", f"/{name}").replace(f"/{name}@", "/postgres@"))
    execute(f"DROP DATABASE {name} WITH (FORCE)")
