"""Joining connections of Django and SQLAlchemy: on SQLite and on PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import django
import pytest
import sqlalchemy
from django.conf import settings
from django.db import connections, transaction
from sqlalchemy.orm import Session, registry, sessionmaker
from sqlalchemy.pool import NullPool, QueuePool

from onceward import AsyncOnce, ConfigurationError, Once, RecordState
from onceward.errors import ClaimError
from onceward.stores.postgres import PostgresStore
from tests.integration.postgres_connections import make_effects
from tests.servers.postgres import URL

if not settings.configured:
    settings.configure(DATABASES={"default": {}}, USE_TZ=True)
    django.setup()


class Stop(Exception):
    pass


def effect_of(connection: Any, table: str, word: str) -> Callable[[], str]:
    """Return a handler that writes by the caller's own connection."""

    def effect() -> str:
        if hasattr(connection, "cursor"):
            with connection.cursor() as cursor:
                cursor.execute(f"INSERT INTO {table} VALUES (%s)", [word])
        else:
            connection.execute(sqlalchemy.text(f"INSERT INTO {table} VALUES (:word)"), {"word": word})
        return word

    return effect


# ── Django ──


@pytest.fixture
def django_on_postgres(postgres: Any, schema: str) -> Iterator[tuple[Once, Any, str]]:
    make_effects(schema)
    place = urlsplit(os.environ[URL])
    database = {"ENGINE": "django.db.backends.postgresql", "NAME": "postgres", "USER": "postgres"}
    where = {"HOST": place.hostname, "PORT": place.port}
    connections.databases["theirs"] = {**connections["default"].settings_dict, **database, **where}
    with Once(PostgresStore(os.environ[URL], schema=schema, migrate=True), lease="10s") as once:
        once.run("ready", lambda: None)
        yield once, connections["theirs"], f'"{schema}".effects'
    connections["theirs"].close()
    del connections["theirs"]
    del connections.databases["theirs"]


@pytest.fixture
def django_on_sqlite(tmp_path: Path) -> Iterator[tuple[Once, Any, str]]:
    path = tmp_path / "once.db"
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path)}
    connections.databases["theirs"] = {**connections["default"].settings_dict, **database}
    with Once(f"sqlite:///{path}", lease="10s") as once:
        once.run("ready", lambda: None)
        connections["theirs"].cursor().execute("CREATE TABLE effects (word TEXT)")
        yield once, connections["theirs"], "effects"
    connections["theirs"].close()
    del connections["theirs"]
    del connections.databases["theirs"]


@pytest.fixture(params=["django_on_postgres", "django_on_sqlite"])
def in_django(request: pytest.FixtureRequest) -> tuple[Once, Any, str]:
    found: tuple[Once, Any, str] = request.getfixturevalue(request.param)
    return found


def words(connection: Any, table: str) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT word FROM {table} ORDER BY word")
        return [word for (word,) in cursor.fetchall()]


@pytest.mark.mission("E2")
def test_a_view_of_django_claims_and_writes_in_its_own_transaction(in_django: tuple[Once, Any, str]) -> None:
    once, theirs, table = in_django
    for word in ("first", "second"):
        with transaction.atomic(using="theirs"), once.within(theirs) as tx:
            assert tx.run("k", effect_of(theirs, table, word)) == "first"
    assert words(theirs, table) == ["first"]


@pytest.mark.fault("F57")
def test_a_rollback_by_django_also_rolls_back_the_claim(in_django: tuple[Once, Any, str]) -> None:
    once, theirs, table = in_django
    with pytest.raises(Stop), transaction.atomic(using="theirs"), once.within(theirs) as tx:
        tx.run("k", effect_of(theirs, table, "undone"))
        raise Stop
    assert words(theirs, table) == []
    assert once.read("k") is None


def test_complete_in_a_transaction_of_django(in_django: tuple[Once, Any, str]) -> None:
    once, theirs, table = in_django
    with once.claim("k") as claim, transaction.atomic(using="theirs"):
        effect_of(theirs, table, "done")()
        claim.complete_in(theirs, "value")
    assert words(theirs, table) == ["done"]
    assert once.run("k", lambda: "not again") == "value"


def test_outside_of_atomic_there_is_nothing_to_join(in_django: tuple[Once, Any, str]) -> None:
    once, theirs, _ = in_django
    with pytest.raises(ConfigurationError, match=r"transaction\.atomic"), once.within(theirs) as tx:
        tx.run("k", lambda: None)


# ── SQLAlchemy on SQLite ──


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'once.db'}", poolclass=NullPool)
    yield engine
    engine.dispose()


@pytest.mark.mission("E2")
@pytest.mark.parametrize("kind", ["Session", "Connection"])
def test_sqlalchemy_on_sqlite_commits_effect_and_record_together(
    engine: sqlalchemy.Engine, tmp_path: Path, kind: str
) -> None:
    with Once(f"sqlite:///{tmp_path / 'once.db'}", lease="10s") as once:
        once.run("ready", lambda: None)
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("CREATE TABLE effects (word TEXT)"))
        for word in ("first", "second"):
            with begun(engine, kind) as theirs, once.within(theirs) as tx:
                assert tx.run("k", effect_of(theirs, "effects", word)) == "first"
        with pytest.raises(Stop), begun(engine, kind) as theirs, once.within(theirs) as tx:
            tx.run("undone", effect_of(theirs, "effects", "undone"))
            raise Stop
        with engine.connect() as connection:
            assert [row.word for row in connection.execute(sqlalchemy.text("SELECT word FROM effects"))] == ["first"]
        assert once.read("undone") is None


def begun(engine: sqlalchemy.Engine, kind: str) -> Any:
    return sessionmaker(engine).begin() if kind == "Session" else engine.begin()


@pytest.mark.usefixtures("postgres")
def test_an_object_that_is_not_a_session_or_connection_of_sqlalchemy_is_refused(
    schema: str, engine: sqlalchemy.Engine
) -> None:
    with Once(PostgresStore(os.environ[URL], schema=schema, migrate=True)) as once:
        once.run("ready", lambda: None)
        with pytest.raises(ConfigurationError, match="Session or a Connection"), once.within(engine):
            pass
        made = sqlalchemy.create_engine(os.environ[URL].replace("://", "+psycopg://"), isolation_level="AUTOCOMMIT")
        alone = pytest.raises(ConfigurationError, match="autocommit mode")
        with made.connect() as theirs, alone, once.within(theirs) as tx:
            tx.run("k", lambda: None)
        made.dispose()


@pytest.mark.usefixtures("postgres")
async def test_a_blocking_session_is_refused_on_an_event_loop(schema: str) -> None:
    async with AsyncOnce(PostgresStore(os.environ[URL], schema=schema, migrate=True)) as once:
        made = sqlalchemy.create_engine(os.environ[URL].replace("://", "+psycopg://"))
        with Session(made) as theirs, pytest.raises(ConfigurationError, match="AsyncSession"):
            async with once.within(theirs):
                pass
        made.dispose()


# ── a connection that went back to the pool belongs to its next user ──


@pytest.fixture(params=["sqlite", "postgres"])
def one_for_all(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Once, sqlalchemy.Engine, str]]:
    """A pool with a single connection: its next user gets the one that was returned."""
    if request.param == "sqlite":
        url, table = f"sqlite:///{tmp_path / 'once.db'}", "effects"
        store: Any = url
    else:
        request.getfixturevalue("postgres")
        schema = request.getfixturevalue("schema")
        url, table = os.environ[URL].replace("://", "+psycopg://"), f'"{schema}".effects'
        store = PostgresStore(os.environ[URL], schema=schema, migrate=True)
    made = sqlalchemy.create_engine(url, poolclass=QueuePool, pool_size=1, max_overflow=0)
    with Once(store, lease="10s") as once:
        once.run("ready", lambda: None)
        with made.begin() as connection:
            connection.execute(sqlalchemy.text(f"DROP TABLE IF EXISTS {table}"))
            connection.execute(sqlalchemy.text(f"CREATE TABLE {table} (word TEXT)"))
        yield once, made, table
    made.dispose()


def begin_of(connection: sqlalchemy.Connection, table: str) -> None:
    """Begin a transaction that blocks no writer: SQLite has one writer, and the store must write at the same time."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN")
    else:
        effect_of(connection, table, "theirs")()


def is_in_transaction(connection: sqlalchemy.Connection) -> bool:
    driver: Any = connection.connection.driver_connection
    if connection.dialect.name == "sqlite":
        return bool(driver.in_transaction)
    return bool(driver.info.transaction_status.name == "INTRANS")


@pytest.mark.mission("A1")
def test_a_handler_that_commits_its_session_does_not_affect_the_next_user_of_the_connection(
    one_for_all: tuple[Once, sqlalchemy.Engine, str],
) -> None:
    once, made, table = one_for_all
    with Session(made) as session:
        others: list[sqlalchemy.Connection] = []

        def commits() -> str:
            effect_of(session, table, "mine")()
            session.commit()  # its connection goes back to the pool, and to its next user
            others.append(made.connect())
            begin_of(others[0], table)
            return "value"

        with pytest.raises(ClaimError, match="recorded as completed"), once.within(session) as tx:
            tx.run("k", commits)
        assert is_in_transaction(others[0])
        others[0].commit()
        others[0].close()
    entry = once.read("k")
    assert entry is not None
    assert entry.state is RecordState.COMPLETED


def test_a_claim_does_not_mistake_the_next_user_of_the_connection_for_its_own(
    one_for_all: tuple[Once, sqlalchemy.Engine, str],
) -> None:
    once, made, table = one_for_all
    with once.claim("k") as claim, Session(made) as session:
        effect_of(session, table, "mine")()
        claim.complete_in(session, "value")
        session.commit()
        other = made.connect()
        begin_of(other, table)
    assert is_in_transaction(other)
    other.close()
    entry = once.read("k")
    assert entry is not None
    assert entry.state is RecordState.COMPLETED


def test_a_block_whose_session_was_given_back_touches_nothing_more(
    one_for_all: tuple[Once, sqlalchemy.Engine, str],
) -> None:
    once, made, table = one_for_all
    with Session(made) as session, once.within(session) as tx:
        tx.run("k", effect_of(session, table, "mine"))
        session.rollback()
        with made.connect() as other:
            with pytest.raises(ConfigurationError, match=r"a new within\(\) block"):
                tx.run("k", effect_of(session, table, "mine"))
            assert not is_in_transaction(other)
    assert once.read("k") is None


# ── rows that a Session has not flushed yet ──


@pytest.mark.mission("A1")
def test_rows_that_a_session_had_not_sent_yet_share_the_fate_of_the_job_that_added_them(
    one_for_all: tuple[Once, sqlalchemy.Engine, str],
) -> None:
    once, made, table = one_for_all
    word_of = mapped(table)

    def fails(session: Session) -> None:
        session.add(word_of(word="of the job that failed"))
        raise Stop

    with sessionmaker(made).begin() as session, once.using(fingerprint="none").within(session) as tx:
        session.add(word_of(word="before"))
        assert tx.outcome("fails", fails, session).kind == "failed"
        assert tx.outcome("works", lambda: session.add(word_of(word="of the job that worked"))).kind == "executed"
    with made.connect() as connection:
        found = connection.execute(sqlalchemy.text(f"SELECT word FROM {table} ORDER BY word"))
        assert [row.word for row in found] == ["before", "of the job that worked"]


@pytest.mark.mission("A1")
def test_a_row_that_the_database_refuses_fails_the_job_that_added_it_and_not_the_commit(
    one_for_all: tuple[Once, sqlalchemy.Engine, str],
) -> None:
    once, made, table = one_for_all
    word_of = mapped(table)
    with made.begin() as connection:
        connection.execute(sqlalchemy.text(f"CREATE UNIQUE INDEX once_each ON {table} (word)"))
    with sessionmaker(made).begin() as session, once.within(session) as tx:
        session.add(word_of(word="taken"))
        assert tx.outcome("k", lambda: session.add(word_of(word="taken"))).kind == "failed"
    assert once.read("k") is None


def mapped(table: str) -> Any:
    """A class of the user's own on that table."""
    schema, _, name = table.replace('"', "").rpartition(".")
    columns = sqlalchemy.Column("word", sqlalchemy.Text, primary_key=True)
    one = sqlalchemy.Table(name, sqlalchemy.MetaData(), columns, schema=schema or None)

    class Word:
        def __init__(self, word: str) -> None:
            self.word = word

    registry().map_imperatively(Word, one)
    return Word
