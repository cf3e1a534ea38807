"""Connections of all drivers to the tests' PostgreSQL, used alike: begin, write a word, commit or roll back."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

import asyncpg
import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from tests.servers.postgres import URL, execute

LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")


def effects(schema: str) -> list[str]:
    """Return the effects that were executed."""
    return sorted(word for (word,) in execute(f'SELECT word FROM "{schema}".effects'))


def make_effects(schema: str) -> None:
    execute(f'DROP TABLE IF EXISTS "{schema}".effects')
    execute(f'CREATE TABLE "{schema}".effects (word text)')


def sqlalchemy_url(driver: str) -> str:
    return os.environ[URL].replace("postgresql://", f"postgresql+{driver}://")


# ── blocking ──


@contextmanager
def with_psycopg(level: str) -> Iterator[Any]:
    with psycopg.connect(os.environ[URL]) as connection:
        connection.isolation_level = psycopg.IsolationLevel[level.replace(" ", "_")]
        yield connection


@contextmanager
def with_session(level: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(sqlalchemy_url("psycopg"), isolation_level=level, poolclass=NullPool)
    with Session(engine) as session, session.begin():
        yield session
    engine.dispose()


@contextmanager
def with_sqlalchemy_connection(level: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(sqlalchemy_url("psycopg"), isolation_level=level, poolclass=NullPool)
    with engine.begin() as connection:
        yield connection
    engine.dispose()


def write(connection: Any, schema: str, word: str) -> None:
    if isinstance(connection, psycopg.Connection):
        connection.execute(f'INSERT INTO "{schema}".effects VALUES (%s)', (word,))
    else:
        connection.execute(sqlalchemy.text(f'INSERT INTO "{schema}".effects VALUES (:word)'), {"word": word})


def writing(connection: Any, schema: str, word: str) -> Callable[[], str]:
    """Return a handler without arguments, so that the connection is not part of the fingerprint."""

    def effect() -> str:
        write(connection, schema, word)
        return word

    return effect


BLOCKING: dict[str, Callable[[str], AbstractContextManager[Any]]] = {
    "psycopg": with_psycopg,
    "Session": with_session,
    "Connection": with_sqlalchemy_connection,
}


# ── on an event loop ──


@asynccontextmanager
async def with_async_psycopg(level: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(os.environ[URL]) as connection:
        await connection.set_isolation_level(psycopg.IsolationLevel[level.replace(" ", "_")])
        yield connection


@asynccontextmanager
async def with_asyncpg(level: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(os.environ[URL])
    try:
        chosen: Any = level.lower().replace(" ", "_")
        async with connection.transaction(isolation=chosen):
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def with_async_session(level: str, driver: str = "asyncpg") -> AsyncIterator[Any]:
    engine = create_async_engine(sqlalchemy_url(driver), isolation_level=level, poolclass=NullPool)
    async with AsyncSession(engine) as session, session.begin():
        yield session
    await engine.dispose()


@asynccontextmanager
async def with_async_psycopg_session(level: str) -> AsyncIterator[Any]:
    async with with_async_session(level, "psycopg") as session:
        yield session


async def write_async(connection: Any, schema: str, word: str) -> None:
    if isinstance(connection, psycopg.AsyncConnection):
        await connection.execute(f'INSERT INTO "{schema}".effects VALUES (%s)', (word,))
    elif isinstance(connection, AsyncSession):
        await connection.execute(sqlalchemy.text(f'INSERT INTO "{schema}".effects VALUES (:word)'), {"word": word})
    else:
        await connection.execute(f'INSERT INTO "{schema}".effects VALUES ($1)', word)


def writing_async(connection: Any, schema: str, word: str) -> Callable[[], Coroutine[Any, Any, str]]:
    async def effect() -> str:
        await write_async(connection, schema, word)
        return word

    return effect


ASYNC: dict[str, Callable[[str], AbstractAsyncContextManager[Any]]] = {
    "psycopg": with_async_psycopg,
    "asyncpg": with_asyncpg,
    "AsyncSession on asyncpg": with_async_session,
    "AsyncSession on psycopg": with_async_psycopg_session,
}
