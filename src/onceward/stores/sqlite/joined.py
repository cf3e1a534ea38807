"""The store inside the caller's transaction: it never commits, and leaves the caller's connection as it was."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from onceward.errors import ConfigurationError, RetryTransaction, StoreBroken, StoreUnavailable
from onceward.protocol.latest import EntityState, EventDelivery, LatestResult, Retention
from onceward.protocol.ports import Clock
from onceward.protocol.requests import Answer
from onceward.protocol.runtime import Runtime
from onceward.stores.caller_connection import (
    TRANSACTION_ENDED,
    TRANSACTION_ENDED_HINT,
    keeps_connection,
)
from onceward.stores.joined_savepoints import JoinedSavepoints, new_savepoint

from . import errors as sqlite_errors
from . import latest as latest_rows
from .table import SELECT_ON_CALLER_CONNECTION, Change, Request, compute_answers, ids_of, write

T = TypeVar("T")
Connection = sqlite3.Connection
Cursor = sqlite3.Cursor

A_MICROSECOND = 1e-6
MIN_WAIT, MAX_WAIT = 0.001, 0.05  # seconds between attempts to take the write lock

TAKE_WRITE_LOCK = "UPDATE onceward_meta SET value = value WHERE name IS NULL"
"""Changes nothing, but takes the write lock before anything is read: SQLite refuses writes from a stale snapshot."""

LIST_DATABASES = "PRAGMA database_list"

BLOCKS_RELEASE = "PRAGMA main.journal_mode"
"""Only reads, but SQLite treats it as a writing statement: until its row is fetched, no savepoint can be released."""


def check_connection(connection: Any, file: os.stat_result | None, name: str) -> None:
    """Raise ConfigurationError if the connection cannot be joined."""
    if not isinstance(connection, Connection):
        raise ConfigurationError(
            f"cannot join a {type(connection).__module__}.{type(connection).__qualname__}",
            hint="pass a sqlite3.Connection to the store's own file",
        )
    with _plain_cursor(connection) as cursor:
        check_databases(cursor.execute(LIST_DATABASES).fetchall(), file, name)
    _must_begin(connection)


def check_databases(databases: list[Any], file: os.stat_result | None, name: str) -> None:
    """Raise ConfigurationError if the connection's main database is not the store's file."""
    if file is None:
        raise ConfigurationError(
            f"{name} is not open yet", hint="open the store first: tables are not created in your transaction"
        )
    path = next((path for _, schema, path in databases if schema == "main"), "")
    try:
        same = bool(path) and os.path.samestat(Path(path).stat(), file)
    except OSError:
        same = False
    if not same:
        raise ConfigurationError(
            f"this connection is on {path or 'a private database'}, not on {name}: the two cannot commit together",
            hint="open the connection on the store's file, or the store on the connection's file",
        )


def _must_begin(connection: Connection) -> bool:
    """Return whether we must begin a transaction. Raise if the connection is in autocommit mode."""
    if connection.in_transaction:
        return False
    # Since Python 3.12, `autocommit` is True, False or LEGACY_TRANSACTION_CONTROL (-1).
    legacy = getattr(connection, "autocommit", -1) == -1
    if legacy and connection.isolation_level is not None:
        return True
    raise ConfigurationError(
        "this connection is in autocommit mode, so there is no transaction to join",
        hint="open a transaction first: connection.execute('BEGIN IMMEDIATE')",
    )


def _always_in_transaction(connection: Connection) -> bool:
    """Return whether the end of a transaction begins the next one: autocommit=False, since Python 3.12."""
    return getattr(connection, "autocommit", None) is False


def _savepoint_is_missing(error: BaseException | None) -> bool:
    return "no such savepoint: " in str(error)


def _cursor(connection: Connection) -> Cursor:
    try:
        _ = connection.in_transaction  # raises if the connection is closed
        return Cursor(connection)
    except sqlite3.ProgrammingError as error:
        raise ConfigurationError(
            f"this connection cannot be used here ({error})", hint="join on the thread that opened it, while it is open"
        ) from error


@contextmanager
def _plain_cursor(connection: Connection) -> Iterator[Cursor]:
    """Yield a plain cursor without row factory or subclass, with text as str. It is closed afterwards."""
    cursor = _cursor(connection)
    text_factory, connection.text_factory = connection.text_factory, str
    try:
        with errors_explained(connection):
            yield cursor
    finally:
        connection.text_factory = text_factory
        cursor.close()


@contextmanager
def errors_explained(connection: Any) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        explained = sqlite_errors.explain(error, "your transaction")
        if not connection.in_transaction:
            explained.add_note("SQLite has rolled your transaction back")
        raise explained from error


class SQLiteJoined(JoinedSavepoints):
    """The store inside the caller's transaction. Runs on the caller's thread: the connection may be bound to it."""

    exclusive = True

    def __init__(
        self, connection: Connection | None, runtime: Runtime, clock: Clock, name: str, *, block: str, wrapper: Any
    ) -> None:
        super().__init__(wrapper)
        self._connection: Any = connection
        self._keeps_connection: Callable[[], bool] = bool if connection is None else keeps_connection(wrapper)
        self.block = block
        self._runtime = runtime
        self._clock = clock
        self._name = name
        self._marker: str | None = None  # a savepoint that distinguishes this transaction from the next one

    async def apply_events(
        self, deliveries: Sequence[EventDelivery], keep: Retention, *, timeout: float
    ) -> list[LatestResult]:
        """Apply the events behind a savepoint: if this fails, the caller must not commit a mark without its state."""
        await self.begin(timeout=timeout)
        try:
            decisions = await self._run(
                lambda cursor: latest_rows.apply_deliveries(cursor, deliveries, keep, self._clock.now())
            )
            await self.keep()
        except BaseException:
            await self.undo()
            raise
        return decisions.answers

    async def read_latest(self, ids: Sequence[bytes], *, timeout: float) -> list[EntityState | None]:  # noqa: ARG002 (reads without waiting)
        return await self._run(lambda cursor: latest_rows.read_states(cursor, ids, self._clock.now()))

    def is_open(self) -> bool:
        if not self._in_transaction():
            return False
        if self._savepoints or not _always_in_transaction(self._connection):
            return True
        return self._marker is not None and self._savepoint_exists(self._marker)

    def blocks_writes(self) -> bool:
        """Return whether the transaction may block the store. Unlike `is_open`, it works on any thread."""
        if not self._in_transaction():
            return False
        try:
            return self._marker is not None or not _always_in_transaction(self._connection)
        except sqlite3.ProgrammingError:  # on another thread, nothing more can be read
            return True

    def _in_transaction(self) -> bool:
        """Return whether the caller's transaction is open.

        Once the wrapper has returned the connection to its pool, a transaction on it belongs to another caller.
        """
        try:
            return self._keeps_connection() and self._connection.in_transaction
        except (sqlite3.ProgrammingError, ValueError):  # the connection was closed, which ended its transaction
            return False

    async def _run(self, work: Callable[[Cursor], T]) -> T:
        """Run the work with a cursor of the caller's connection."""
        with _plain_cursor(self._connection) as cursor:
            return work(cursor)

    async def _set_marker(self, deadline: float) -> None:
        if _always_in_transaction(self._connection) and not self.is_open():
            self._marker = new_savepoint()
            await self._run_commands(deadline, f"SAVEPOINT {self._marker}")

    def _savepoint_exists(self, savepoint: str) -> bool:
        """Return whether the savepoint exists, by a RELEASE that SQLite must refuse.

        A RELEASE that succeeded would also release the caller's savepoints.
        """
        with _plain_cursor(self._connection) as pending, _plain_cursor(self._connection) as cursor:
            pending.execute(BLOCKS_RELEASE)
            try:
                cursor.execute(f"RELEASE {savepoint}")
            except sqlite3.OperationalError as error:
                return not _savepoint_is_missing(error)
        raise AssertionError  # SQLite never releases while a writing statement is pending

    async def _enter(self, deadline: float) -> None:
        await self._take_write_lock(deadline)  # a savepoint outside of a transaction would commit on RELEASE

    async def _is_same(self, *, if_failed: bool = False) -> bool:  # noqa: ARG002 (errors do not abort a transaction)
        return self._in_transaction()

    async def abandon(self) -> bool:
        if not self._in_transaction():
            return False
        with _plain_cursor(self._connection):
            Connection.rollback(self._connection)  # not by SQL: with autocommit=False, Python begins the next one
        return True

    async def _run_commands(self, deadline: float, *commands: str) -> bool:  # noqa: ARG002 (nothing is waited for)
        def work(cursor: Cursor) -> None:
            for command in commands:
                cursor.execute(command)

        try:
            await self._run(work)
        except StoreBroken as error:
            if _savepoint_is_missing(error.__cause__):
                return False
            raise
        return True

    async def _apply_each(self, change: Change[Request], requests: Sequence[Request], timeout: float) -> list[Answer]:
        ids = ids_of(requests)
        await self._take_write_lock(time.monotonic() + timeout)

        def work(cursor: Cursor) -> list[Answer]:
            found = SELECT_ON_CALLER_CONNECTION.fetch(cursor, ids)
            answers, changes = compute_answers(found, change, requests, self._clock.now())
            if changes:
                write(cursor, found, answers)
            return answers

        return await self._run(work)

    async def _take_write_lock(self, deadline: float) -> None:
        """Wait for other writers without blocking an event loop: SQLite tries once, then the runtime sleeps."""
        if not self._keeps_connection():
            raise ConfigurationError(TRANSACTION_ENDED, hint=TRANSACTION_ENDED_HINT)
        give_up_at = self._runtime.monotonic() + deadline - time.monotonic()  # on the clock by which it sleeps
        pause = MIN_WAIT
        while True:
            busy = await self._run(self._try_write_lock)
            if busy is None:
                await self._set_marker(deadline)
                return
            if sqlite_errors.extended_code(busy) == sqlite3.SQLITE_BUSY_SNAPSHOT:
                raise RetryTransaction(
                    "your transaction read from the database before another one changed it",
                    hint="roll back and repeat the transaction; BEGIN IMMEDIATE avoids this",
                ) from busy
            remaining = give_up_at - self._runtime.monotonic()
            if remaining < A_MICROSECOND:  # some clocks cannot sleep for less
                raise StoreUnavailable(
                    f"{self._name}: another writer holds the file for longer than this call may wait ({busy})",
                    hint="keep transactions on this file short",
                ) from busy
            await self._runtime.sleep(min(pause * (0.5 + self._runtime.jitter() / 2), remaining))
            pause = min(pause * 2, MAX_WAIT)

    def _try_write_lock(self, cursor: Cursor) -> sqlite3.Error | None:
        statement = "BEGIN IMMEDIATE" if _must_begin(self._connection) else TAKE_WRITE_LOCK
        busy_timeout = cursor.execute("PRAGMA busy_timeout").fetchall()[0][0]
        cursor.execute("PRAGMA busy_timeout = 0").fetchall()
        try:
            cursor.execute(statement)
        except sqlite3.OperationalError as error:
            if sqlite_errors.is_busy(error):
                return error
            raise
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {busy_timeout:d}").fetchall()
        return None
