"""SQLAlchemy: sessions and connections that are open around a call are found, on PostgreSQL and SQLite."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
import sqlmodel
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import NullPool

from onceward import AsyncOnce, ConfigurationError, Executed, Once, Replayed
from onceward.sqlalchemy import detect_transactions
from onceward.stores.postgres import PostgresStore
from tests.integration.postgres_connections import effects, make_effects, sqlalchemy_url
from tests.servers.postgres import URL

pytestmark = pytest.mark.finding("N3")


class Base(DeclarativeBase):
    pass


class Effect(Base):
    __tablename__ = "effects"
    word: Mapped[str] = mapped_column(primary_key=True)


class Shop:
    """A client and an engine on the same database."""

    def __init__(self, once: Once, engine: sqlalchemy.Engine, words: Callable[[], list[str]]) -> None:
        self.once, self.engine, self.words = once, engine, words
        once.migrate()
        self.end = detect_transactions(once, engine)

        @once(key="order:{word}", name="order")
        def order(session: Session, word: str) -> str:
            session.add(Effect(word=word))
            return f"receipt {word}"

        self.order = order

    def outcome(self, session: Any, word: str) -> type[Any]:
        return type(self.once.outcome(word, write, session, word))


def write(session: Any, word: str) -> str:
    session.execute(sqlalchemy.insert(Effect).values(word=word))
    return word


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Iterator[Shop]:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    engine = sqlalchemy.create_engine(url)
    Base.metadata.create_all(engine)

    def words() -> list[str]:
        with engine.connect() as connection:
            return list(connection.scalars(sqlalchemy.select(Effect.word).order_by(Effect.word)))

    with Once(url, fingerprint="none", lease="10s") as once:
        shop = Shop(once, engine, words)
        yield shop
        shop.end()
    engine.dispose()


@pytest.fixture
def on_postgres(postgres: Any, schema: str) -> Iterator[Shop]:
    make_effects(schema)
    options = {"schema_translate_map": {None: schema}}
    engine = sqlalchemy.create_engine(sqlalchemy_url("psycopg"), execution_options=options, poolclass=NullPool)
    with Once(PostgresStore(os.environ[URL], schema=schema, migrate=True), fingerprint="none", lease="10s") as once:
        shop = Shop(once, engine, lambda: effects(schema))
        yield shop
        shop.end()
    engine.dispose()


@pytest.fixture(params=["on_sqlite", "on_postgres"])
def shop(request: pytest.FixtureRequest) -> Shop:
    found: Shop = request.getfixturevalue(request.param)
    return found


def test_a_rollback_of_the_session_undoes_rows_and_records(shop: Shop) -> None:
    with Session(shop.engine) as session:
        write(session, "own")
        assert shop.outcome(session, "a") is Executed
        session.rollback()
        assert shop.words() == []
        write(session, "own")
        assert shop.outcome(session, "a") is Executed
        assert shop.outcome(session, "a") is Replayed
        session.commit()
    with Session(shop.engine) as session, session.begin():
        assert shop.outcome(session, "a") is Replayed
    assert shop.words() == ["a", "own"]


def test_a_session_that_has_only_read_is_found(shop: Shop) -> None:
    """A request that loads its user has begun the transaction that it commits at the end."""
    with Session(shop.engine) as session:
        session.scalars(sqlalchemy.select(Effect)).all()
        assert shop.outcome(session, "a") is Executed
        session.rollback()
        session.scalars(sqlalchemy.select(Effect)).all()
        assert shop.outcome(session, "a") is Executed
        session.rollback()
    assert shop.words() == []


def test_a_connection_of_core_is_found_before_its_first_statement(shop: Shop) -> None:
    with shop.engine.connect() as connection:
        with connection.begin() as transaction:
            assert shop.outcome(connection, "a") is Executed
            transaction.rollback()
        with connection.begin():
            assert shop.outcome(connection, "a") is Executed
    assert shop.words() == ["a"]


def test_a_savepoint_of_the_caller_undoes_the_records_in_it(shop: Shop) -> None:
    with Session(shop.engine) as session, session.begin():
        assert shop.outcome(session, "kept") is Executed
        with session.begin_nested() as savepoint:
            assert shop.outcome(session, "undone") is Executed
            savepoint.rollback()
        assert shop.outcome(session, "kept") is Replayed
        assert shop.outcome(session, "undone") is Executed
    assert shop.words() == ["kept", "undone"]


def test_failed_work_leaves_the_session_usable(shop: Shop) -> None:
    def broken(session: Session) -> None:
        session.add(Effect(word="broken"))
        raise ValueError("no")

    with Session(shop.engine) as session, session.begin():
        first = Effect(word="first")
        session.add(first)
        with pytest.raises(ValueError, match="no"):
            shop.once.run("broken", broken, session)
        assert shop.outcome(session, "second") is Executed
        assert first.word == "first"
    assert shop.words() == ["first", "second"]


def test_a_replay_after_the_commit_does_not_depend_on_expired_objects(shop: Shop) -> None:
    def order(session: Session, word: str) -> str:
        row = Effect(word=word)
        session.add(row)
        return row.word

    for expire in (True, False):
        with Session(shop.engine, expire_on_commit=expire) as session:
            with session.begin():
                session.connection()
                receipt = shop.once.run(f"expire {expire}", order, session, f"expire {expire}")
            with session.begin():
                session.connection()
                assert shop.once.run(f"expire {expire}", order, session, f"expire {expire}") == receipt
    assert shop.words() == ["expire False", "expire True"]


def test_rows_that_the_work_adds_and_does_not_commit_are_not_recorded(shop: Shop) -> None:
    """Nothing is open when the call begins, and the session sends nothing before the caller commits."""
    with Session(shop.engine) as session:
        with pytest.raises(ConfigurationError, match="without committing its changes"):
            shop.order(session, "a")
        session.rollback()
    entry = shop.order.read(None, "a")  # type: ignore[arg-type]  # the key does not use the session
    assert entry is not None
    assert entry.state == "FAILED"


def test_work_that_commits_and_reads_again_is_fine(shop: Shop) -> None:
    def order(session: Session) -> str:
        row = Effect(word="a")
        session.add(row)
        session.commit()
        return row.word  # expired by the commit: this begins the next transaction

    with Session(shop.engine) as session:
        assert shop.once.run("a", order, session) == "a"
    assert shop.words() == ["a"]


def test_work_that_writes_in_another_session_than_it_was_joined_to_is_refused(shop: Shop) -> None:
    def own_session() -> None:
        with Session(shop.engine) as session, session.begin():
            write(session, "separate")

    with Session(shop.engine) as session:
        session.scalars(sqlalchemy.select(Effect)).all()
        with pytest.raises(ConfigurationError, match="writes in another one"):
            shop.once.run("a", own_session)
        session.rollback()
        shop.once.run("a", own_session)
    assert shop.words() == ["separate"]


def test_a_transaction_of_another_thread_is_not_around_this_call(on_postgres: Shop) -> None:
    shop, opened, done = on_postgres, threading.Event(), threading.Event()

    def other() -> None:
        with Session(shop.engine) as session:
            write(session, "theirs")
            opened.set()
            done.wait(60)
            session.rollback()

    thread = threading.Thread(target=other)
    thread.start()
    assert opened.wait(60)
    try:
        with Session(shop.engine) as session:
            shop.once.run("mine", lambda: None)
            session.rollback()
        assert shop.once.read("mine") is not None
    finally:
        done.set()
        thread.join()


def test_rows_added_to_a_session_that_another_thread_began_are_not_recorded(on_postgres: Shop) -> None:
    """As in a web framework that runs a dependency and the endpoint in two threads."""
    with Session(on_postgres.engine) as session:
        thread = threading.Thread(target=lambda: session.scalars(sqlalchemy.select(Effect)).all())
        thread.start()
        thread.join()
        with pytest.raises(ConfigurationError, match="without committing its changes"):
            on_postgres.order(session, "a")
        session.rollback()


def test_after_the_end_nothing_is_detected(on_sqlite: Shop) -> None:
    on_sqlite.end()
    with Session(on_sqlite.engine) as session:
        session.scalars(sqlalchemy.select(Effect)).all()
        on_sqlite.once.run("a", lambda: None)
        session.rollback()
    assert on_sqlite.once.read("a") is not None


def test_sessions_of_sqlmodel_are_found(on_sqlite: Shop) -> None:
    with sqlmodel.Session(on_sqlite.engine) as session:
        session.exec(sqlmodel.select(Effect)).all()
        assert on_sqlite.outcome(session, "a") is Executed
        session.rollback()
    assert on_sqlite.words() == []


# ── async ──


@asynccontextmanager
async def async_shop(schema: str, driver: str) -> AsyncIterator[tuple[AsyncOnce, AsyncEngine]]:
    options = {"schema_translate_map": {None: schema}}
    engine = create_async_engine(sqlalchemy_url(driver), execution_options=options, poolclass=NullPool)
    async with AsyncOnce(
        PostgresStore(os.environ[URL], schema=schema, migrate=True), fingerprint="none", lease="10s"
    ) as once:
        end = detect_transactions(once, engine)
        yield once, engine
        end()
    await engine.dispose()


async def write_async(session: Any, word: str) -> str:
    await session.execute(sqlalchemy.insert(Effect).values(word=word))
    return word


def test_the_error_of_uncommitted_work_is_raised_although_sqlite_is_locked(on_sqlite: Shop) -> None:
    once = on_sqlite.once.using(lease="1s")
    with Session(on_sqlite.engine) as session:
        with pytest.raises(ConfigurationError, match="without committing its changes"):
            once.run("a", write, session, "a")
        session.rollback()
    assert on_sqlite.words() == []


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_async_sessions_and_connections_are_found(postgres: Any, schema: str, driver: str) -> None:
    make_effects(schema)

    async def main() -> None:
        async with async_shop(schema, driver) as (once, engine):
            sessions = async_sessionmaker(engine)
            async with sessions() as session:
                await session.scalars(sqlalchemy.select(Effect))
                await once.run("a", write_async, session, "a")
                await session.rollback()
                assert await once.read("a") is None
                await session.scalars(sqlalchemy.select(Effect))
                assert isinstance(await once.outcome("a", write_async, session, "a"), Executed)
                await session.commit()
            async with engine.connect() as connection, connection.begin() as transaction:
                await once.run("b", write_async, connection, "b")
                await transaction.rollback()
            assert await once.read("b") is None

    asyncio.run(main())
    assert effects(schema) == ["a"]


def test_a_transaction_of_another_task_is_not_around_this_call(postgres: Any, schema: str) -> None:
    make_effects(schema)

    async def main() -> None:
        async with async_shop(schema, "asyncpg") as (once, engine), AsyncSession(engine) as session:
            await session.scalars(sqlalchemy.select(Effect))
            async with asyncio.TaskGroup() as group:  # the tasks get a copy of this context
                for word in ("a", "b"):
                    group.create_task(once.run(word, work_with_own_session, engine, word))
            await session.rollback()

    asyncio.run(main())
    assert effects(schema) == ["a", "b"]


async def work_with_own_session(engine: AsyncEngine, word: str) -> None:
    async with AsyncSession(engine) as session, session.begin():
        await write_async(session, word)


def test_async_work_that_leaves_its_rows_uncommitted_is_not_recorded(postgres: Any, schema: str) -> None:
    make_effects(schema)

    async def add(session: AsyncSession, word: str) -> None:
        session.add(Effect(word=word))

    async def main() -> None:
        async with async_shop(schema, "asyncpg") as (once, engine), AsyncSession(engine) as session:
            with pytest.raises(ConfigurationError, match="without committing its changes"):
                await once.run("a", add, session, "a")
            await session.rollback()

    asyncio.run(main())


def test_something_else_than_an_engine_is_refused() -> None:
    with Once("memory://") as once, pytest.raises(ConfigurationError, match="pass an Engine"):
        detect_transactions(once, "sqlite://")  # type: ignore[arg-type]
