"""A caller's connection that breaks or gets no answer: no call waits without end, and the error says what happened."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext, suppress
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import NullPool

from onceward import AsyncOnce, Once, StoreUnavailable
from onceward.stores.postgres import PostgresStore, joined
from tests.clients import TOO_LONG
from tests.integration.postgres_connections import effects, make_effects, write, write_async, writing
from tests.servers.postgres import URL, Postgres, execute
from tests.servers.proxy import SWALLOW_REQUEST, Proxy

pytestmark = [pytest.mark.usefixtures("postgres")]

NO_ANSWER = "did not answer in time, so Onceward closed the connection"


@pytest.fixture
def store(schema: str, monkeypatch: pytest.MonkeyPatch) -> PostgresStore:
    monkeypatch.setattr(joined, "END_TIMEOUT", 0.5)
    make_effects(schema)
    return PostgresStore(os.environ[URL], schema=schema, migrate=True)


@pytest.fixture
def once(store: PostgresStore) -> Iterator[Once]:
    with Once(store, on_running="raise") as once:
        once.run("ready", lambda: None)
        yield once


@pytest.fixture
def proxy(postgres: Postgres) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", postgres.port) as proxy:
        yield proxy


def psycopg_connection(port: int) -> Any:
    return psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres")


def sqlalchemy_connection(port: int) -> Any:
    url = f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres"
    connection = sqlalchemy.create_engine(url, poolclass=NullPool).connect()
    connection.rollback()
    return connection


def session(port: int) -> Any:
    url = f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres"
    return Session(sqlalchemy.create_engine(url, poolclass=NullPool).connect())


BLOCKING: dict[str, Callable[[int], Any]] = {
    "psycopg": psycopg_connection,
    "Connection": sqlalchemy_connection,
    "Session": session,
}


async def async_psycopg(port: int) -> Any:
    return await psycopg.AsyncConnection.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres")


async def asyncpg_connection(port: int) -> Any:
    connection = await asyncpg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres")
    await connection.transaction().start()
    return connection


async def async_session(driver: str, port: int) -> Any:
    url = f"postgresql+{driver}://postgres@127.0.0.1:{port}/postgres"
    return AsyncSession(await create_async_engine(url, poolclass=NullPool).connect())


async def asyncpg_session(port: int) -> Any:
    return await async_session("asyncpg", port)


async def psycopg_session(port: int) -> Any:
    return await async_session("psycopg", port)


ASYNC: dict[str, Callable[[int], Any]] = {
    "psycopg": async_psycopg,
    "asyncpg": asyncpg_connection,
    "AsyncSession on asyncpg": asyncpg_session,
    "AsyncSession on psycopg": psycopg_session,
}


def discard(connection: Any) -> None:
    """Close a broken connection without any exchange."""
    connection.invalidate() if hasattr(connection, "invalidate") else connection.close()
    if hasattr(connection, "invalidate"):
        connection.close()


async def discard_async(connection: Any) -> None:
    if isinstance(connection, AsyncSession):
        await connection.invalidate()
        await connection.bind.close()  # type: ignore[union-attr]
    elif isinstance(connection, psycopg.AsyncConnection):
        await connection.close()
    else:
        connection.terminate()


# ── a black hole ──


ANSWERED = (0, 1, 2, 3, 5, 7)
"""How many exchanges are answered before the connection becomes a black hole."""

LEASES = ("1s", "4s", "16s", "64s")
"""On a busy machine, the deadline of a short lease may pass before the connection becomes a black hole."""

LOST = (NO_ANSWER, "was lost after the handler had returned", "the connection broke")
"""What the error may say. The last text was seen once, on a busy machine; which side closed it is not known."""


@pytest.mark.finding("N71")
@pytest.mark.parametrize("kind", BLOCKING)
def test_a_block_on_a_connection_without_answers_ends_at_its_deadline(once: Once, proxy: Proxy, kind: str) -> None:
    for answered in ANSWERED:
        for lease in LEASES:
            proxy.struck.clear()
            theirs = BLOCKING[kind](proxy.port)
            proxy.next(SWALLOW_REQUEST, after=answered)
            with pytest.raises(StoreUnavailable) as caught, once.using(lease=lease).within(theirs) as tx:
                tx.run(f"k{answered} {lease}", lambda: None)
            assert any(text in str(caught.value) for text in LOST)
            discard(theirs)
            if proxy.struck:
                break
        assert proxy.struck


@pytest.mark.finding("N71")
@pytest.mark.parametrize("kind", ASYNC)
async def test_a_block_of_a_task_on_a_connection_without_answers_ends_at_its_deadline(
    store: PostgresStore, proxy: Proxy, kind: str
) -> None:
    async def handler() -> None:
        pass

    async with AsyncOnce(store) as once:
        await once.run("ready", handler)
        for answered in ANSWERED:
            for lease in LEASES:
                proxy.struck.clear()
                theirs = await ASYNC[kind](proxy.port)
                proxy.next(SWALLOW_REQUEST, after=answered)
                with pytest.raises(StoreUnavailable) as caught:
                    async with asyncio.timeout(TOO_LONG), once.using(lease=lease).within(theirs) as tx:
                        await tx.run(f"k{answered} {lease}", handler)
                assert any(text in str(caught.value) for text in LOST)
                if isinstance(theirs, asyncpg.Connection):
                    assert theirs.is_closed(), "a late reply would be read as the reply to the next statement"
                await discard_async(theirs)
                if proxy.struck:
                    break
            assert proxy.struck


@pytest.mark.finding("N71")
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_a_session_that_has_yet_to_connect_has_the_deadline_too(
    store: PostgresStore, proxy: Proxy, driver: str
) -> None:
    url = f"postgresql+{driver}://postgres@127.0.0.1:{proxy.port}/postgres"
    theirs = AsyncSession(create_async_engine(url, poolclass=NullPool))
    proxy.always(SWALLOW_REQUEST)

    async def handler() -> None:
        raise AssertionError("the handler must not run")

    async with AsyncOnce(store) as once:
        with pytest.raises(StoreUnavailable, match="did not answer in time"):
            async with asyncio.timeout(TOO_LONG), once.using(lease="1s").within(theirs) as tx:
                await tx.run("k", handler)
    await theirs.close()


@pytest.mark.finding("N71")
@pytest.mark.parametrize("kind", BLOCKING)
def test_complete_in_on_a_connection_without_answers_ends_at_its_deadline(once: Once, proxy: Proxy, kind: str) -> None:
    theirs = BLOCKING[kind](proxy.port)
    proxy.next(SWALLOW_REQUEST)
    with pytest.raises(StoreUnavailable, match=NO_ANSWER), once.claim("k", lease="1s") as claim:
        claim.complete_in(theirs, "value")
    discard(theirs)
    assert once.run("k", lambda: "again") == "again"


@pytest.mark.finding("N71")
@pytest.mark.parametrize("level", ["SERIALIZABLE", "REPEATABLE_READ", "READ_COMMITTED"])
def test_the_transaction_begins_with_the_settings_of_the_connection(once: Once, schema: str, level: str) -> None:
    with psycopg.connect(os.environ[URL], options="-c default_transaction_read_only=on") as theirs:
        theirs.isolation_level = psycopg.IsolationLevel[level]
        theirs.deferrable = True
        theirs.read_only = False
        with once.within(theirs) as tx:
            tx.run("k", writing(theirs, schema, "effect"))
            settings = "transaction_isolation", "transaction_deferrable", "transaction_read_only"
            found = [theirs.execute(f"SHOW {name}").fetchone() for name in settings]
    assert found == [(level.lower().replace("_", " "),), ("on",), ("off",)]
    assert effects(schema) == ["effect"]


# ── what the error says ──


@pytest.mark.finding("N72")
def test_a_connection_that_breaks_while_the_handler_runs_is_not_the_handlers_fault(once: Once, schema: str) -> None:
    theirs = psycopg.connect(os.environ[URL])

    def breaks() -> None:
        execute(f"SELECT pg_terminate_backend({theirs.info.backend_pid})")
        write(theirs, schema, "effect")

    lost = pytest.raises(StoreUnavailable, match="was lost while the handler ran; nothing of it was committed")
    with lost as caught, once.within(theirs) as tx:
        tx.run("k", breaks)
    assert caught.value.key is not None
    assert isinstance(caught.value.__cause__, psycopg.OperationalError)
    assert effects(schema) == []
    assert once.read("k") is None


@pytest.mark.finding("N72")
@pytest.mark.parametrize("kind", ["asyncpg", "AsyncSession on asyncpg", "AsyncSession on psycopg", "psycopg"])
async def test_a_connection_that_breaks_in_a_task_is_not_the_handlers_fault(
    store: PostgresStore, proxy: Proxy, schema: str, kind: str
) -> None:
    async with AsyncOnce(store) as once:
        theirs = await ASYNC[kind](proxy.port)

        async def breaks() -> None:
            proxy.reset_all()
            await write_async(theirs, schema, "effect")

        with pytest.raises(StoreUnavailable, match="was lost while the handler ran; nothing of it was committed"):
            async with once.within(theirs) as tx:
                await tx.run("k", breaks)
        await discard_async(theirs)


@pytest.mark.finding("N72")
@pytest.mark.parametrize("kind", BLOCKING)
@pytest.mark.parametrize("swallowed", [False, True])
def test_a_connection_that_breaks_in_a_blocking_handler_is_not_the_handlers_fault(
    once: Once, proxy: Proxy, schema: str, kind: str, swallowed: bool
) -> None:
    theirs = BLOCKING[kind](proxy.port)

    def breaks() -> None:
        proxy.reset_all()
        with suppress(psycopg.Error, sqlalchemy.exc.DBAPIError) if swallowed else nullcontext():
            write(theirs, schema, "effect")

    when = "after the handler had returned" if swallowed else "while the handler ran"
    lost = pytest.raises(StoreUnavailable, match=f"was lost {when}; nothing of it was committed")
    with lost, once.within(theirs) as tx:
        tx.run("k", breaks)
    discard(theirs)
    assert effects(schema) == []


@pytest.mark.finding("N72")
@pytest.mark.parametrize("kind", ["Connection", "Session"])
def test_a_connection_that_the_handler_gave_up_is_reported_as_lost(once: Once, proxy: Proxy, kind: str) -> None:
    """A handler invalidates its connection if it no longer trusts it, for example after a timeout of its own."""
    theirs = BLOCKING[kind](proxy.port)
    with pytest.raises(StoreUnavailable, match="was lost after the handler had returned"), once.within(theirs) as tx:
        tx.run("k", theirs.invalidate)
    theirs.close()
    assert once.read("k") is None


@pytest.mark.finding("N72")
def test_a_connection_that_breaks_in_a_handler_that_is_only_observed_is_reported(store: PostgresStore) -> None:
    """In the mode observe, a duplicate runs without a claim, so nothing else notices the loss."""
    with Once(store) as enforcing:
        enforcing.run("k", lambda: None)
    theirs = psycopg.connect(os.environ[URL])

    def breaks() -> None:
        execute(f"SELECT pg_terminate_backend({theirs.info.backend_pid})")
        with suppress(psycopg.Error):
            theirs.execute("SELECT 1")

    lost = pytest.raises(StoreUnavailable, match="the connection of your transaction was lost")
    with Once(store, mode="observe") as once, lost, once.within(theirs) as tx:
        tx.run("k", breaks)
    theirs.close()


@pytest.mark.finding("N72")
def test_a_connection_that_breaks_after_the_handler_is_not_its_fault(once: Once) -> None:
    theirs = psycopg.connect(os.environ[URL])
    kill = f"SELECT pg_terminate_backend({theirs.info.backend_pid})"
    lost = pytest.raises(StoreUnavailable, match="was lost after the handler had returned; nothing of it was committed")
    with lost, once.within(theirs) as tx:
        tx.run("k", lambda: execute(kill))
    assert once.read("k") is None


@pytest.mark.finding("N72")
def test_a_lock_that_is_not_released_in_time_is_reported_as_such(once: Once, schema: str) -> None:
    ran: list[int] = []
    with closing(psycopg.connect(os.environ[URL])) as other, closing(psycopg.connect(os.environ[URL])) as theirs:
        other.execute(f'LOCK TABLE "{schema}".onceward_records IN ACCESS EXCLUSIVE MODE')
        with pytest.raises(StoreUnavailable, match=NO_ANSWER) as caught, once.using(lease="1s").within(theirs) as tx:
            tx.run("k", ran.append, 1)
    assert "k" in str(caught.value.key)
    assert "handler" not in str(caught.value)
    assert ran == []


@pytest.mark.finding("N72")
@pytest.mark.parametrize("way", ["within", "complete_in"])
@pytest.mark.parametrize("answered", [0, 2])
def test_closing_the_session_does_not_hide_that_its_connection_was_lost(
    once: Once, proxy: Proxy, way: str, answered: int
) -> None:
    url = f"postgresql+psycopg://postgres@127.0.0.1:{proxy.port}/postgres"
    short = once.using(lease="1s")
    with pytest.raises(StoreUnavailable), Session(sqlalchemy.create_engine(url, poolclass=NullPool)) as theirs:
        theirs.execute(sqlalchemy.text("SELECT 1"))
        proxy.next(SWALLOW_REQUEST, after=answered)
        if way == "within":
            with short.within(theirs) as tx:
                tx.run("k", lambda: None)
        else:
            with short.claim("k") as claim:
                claim.complete_in(theirs, "value")


@pytest.mark.finding("N72")
@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_closing_the_async_session_does_not_hide_that_its_connection_was_lost(
    store: PostgresStore, proxy: Proxy, driver: str
) -> None:
    async def handler() -> None:
        pass

    engine = create_async_engine(f"postgresql+{driver}://postgres@127.0.0.1:{proxy.port}/postgres", poolclass=NullPool)
    async with AsyncOnce(store) as once:
        await once.run("ready", handler)
        with pytest.raises(StoreUnavailable):
            async with AsyncSession(engine) as theirs:
                await theirs.execute(sqlalchemy.text("SELECT 1"))
                proxy.next(SWALLOW_REQUEST)
                async with asyncio.timeout(TOO_LONG), once.using(lease="1s").within(theirs) as tx:
                    await tx.run("k", handler)


class Row(DeclarativeBase):
    pass


class Effect(Row):
    __tablename__ = "effects"
    word: Mapped[str] = mapped_column(primary_key=True)


@pytest.mark.finding("N71")
def test_rows_that_a_session_sends_on_a_connection_without_answers_end_at_the_deadline(
    once: Once, proxy: Proxy, schema: str
) -> None:
    for answered in ANSWERED:
        theirs = session(proxy.port)
        theirs.execute(sqlalchemy.text(f'SET search_path TO "{schema}"'))
        theirs.add(Effect(word=f"unsent {answered}"))
        proxy.next(SWALLOW_REQUEST, after=answered)
        with pytest.raises(StoreUnavailable) as caught, once.using(lease="1s").within(theirs) as tx:
            tx.run(f"k{answered}", lambda: None)
        assert any(text in str(caught.value) for text in LOST)
        discard(theirs)


@pytest.mark.finding("N71")
@pytest.mark.parametrize("kind", ["AsyncSession on asyncpg", "AsyncSession on psycopg"])
async def test_rows_that_an_async_session_sends_on_a_connection_without_answers_end_at_the_deadline(
    store: PostgresStore, proxy: Proxy, schema: str, kind: str
) -> None:
    async def handler() -> None:
        pass

    async with AsyncOnce(store) as once:
        await once.run("ready", handler)
        for answered in ANSWERED:
            theirs = await ASYNC[kind](proxy.port)
            await theirs.execute(sqlalchemy.text(f'SET search_path TO "{schema}"'))
            theirs.add(Effect(word=f"unsent {answered}"))
            proxy.next(SWALLOW_REQUEST, after=answered)
            with pytest.raises(StoreUnavailable) as caught:
                async with asyncio.timeout(TOO_LONG), once.using(lease="1s").within(theirs) as tx:
                    await tx.run(f"k{answered}", handler)
            assert any(text in str(caught.value) for text in LOST)
            await discard_async(theirs)
