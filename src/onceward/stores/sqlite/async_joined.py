"""The store inside the transaction of an AsyncSession or AsyncConnection of SQLAlchemy, whose driver is aiosqlite.

Its connection lives in a thread of aiosqlite. SQLAlchemy's `run_sync` lets the same blocking code use it from there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Self, TypeVar

from onceward.errors import ConfigurationError
from onceward.protocol.ports import Clock
from onceward.protocol.runtime import Runtime
from onceward.stores.caller_connection import begin_before_savepoints, begin_before_savepoints_of, keeps_connection

from .joined import LIST_DATABASES, SQLiteJoined, check_databases, errors_explained

T = TypeVar("T")


class AsyncSQLiteJoined(SQLiteJoined):
    """The store inside the caller's transaction. It connects at its first call, because connecting must be awaited."""

    def __init__(
        self, wrapper: Any, runtime: Runtime, clock: Clock, name: str, *, block: str, file: os.stat_result | None
    ) -> None:
        super().__init__(None, runtime, clock, name, block=block, wrapper=wrapper)
        self._wrapper = wrapper
        self._file = file
        self._sqlalchemy_connection: Any = None
        begin_before_savepoints_of(wrapper)

    async def abandon(self) -> bool:
        if not self._in_transaction():
            return False
        await self._wrapper.rollback()
        return True

    async def _take_write_lock(self, deadline: float) -> None:
        if self._sqlalchemy_connection is None:
            await self._connect()
        await super()._take_write_lock(deadline)

    async def _connect(self) -> None:
        wrapper = self._wrapper
        connection = wrapper if hasattr(wrapper, "get_raw_connection") else await wrapper.connection()
        driver = (await connection.get_raw_connection()).driver_connection
        if not hasattr(driver, "in_transaction"):
            raise ConfigurationError(
                f"cannot join a connection of {connection.dialect.driver}",
                hint="use sqlite+aiosqlite:///… on the store's own file",
            )
        self._sqlalchemy_connection, self._connection = connection, driver
        self._keeps_connection = keeps_connection(connection)
        begin_before_savepoints(connection.sync_connection)
        check_databases(
            await self._run(lambda cursor: cursor.execute(LIST_DATABASES).fetchall()), self._file, self._name
        )

    async def _run(self, work: Callable[[Any], T]) -> T:
        if self._sqlalchemy_connection is None:
            await self._connect()
        connection: Any = self._sqlalchemy_connection
        result: T = await connection.run_sync(_with_cursor, work, self._connection)
        return result


class AdaptedCursor:
    """The cursor that SQLAlchemy offers for aiosqlite, with the return values of sqlite3's own."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor
        self.fetchall = cursor.fetchall
        self.executemany = cursor.executemany

    def execute(self, statement: str, parameters: Any = ()) -> Self:
        self._cursor.execute(statement, parameters)
        return self

    def fetchone(self) -> Any:
        return self._cursor.fetchone()

    @property
    def rowcount(self) -> int:
        count: int = self._cursor.rowcount
        return count


def _with_cursor(connection: Any, work: Callable[[Any], T], driver: Any) -> T:
    cursor = connection.connection.cursor()
    try:
        with errors_explained(driver):
            return work(AdaptedCursor(cursor))
    finally:
        cursor.close()
