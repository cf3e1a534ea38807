"""The store inside the caller's own transaction: nothing commits here, nothing stays behind on their connection."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from onceward.errors import ConfigurationError, RetryTransaction, StoreBroken, StoreUnavailable
from onceward.protocol import transitions
from onceward.protocol.latest import EntityState, EventDelivery, LatestResult, Retention
from onceward.protocol.ports import Clock
from onceward.protocol.requests import Answer, AnySettlement, ClaimRequest, Renewal
from onceward.protocol.runtime import Runtime
from onceward.stores.caller_connection import (
    TRANSACTION_ENDED,
    TRANSACTION_ENDED_HINT,
    SessionSavepoint,
    keeps_connection,
)

from . import errors as faults
from . import latest as latest_rows
from .table import THEIRS, Change, Request, ids_of, judge, write

T = TypeVar("T")
Connection = sqlite3.Connection
Cursor = sqlite3.Cursor

FIRST_WAIT, LONGEST_WAIT = 0.001, 0.05  # seconds between tries for the write lock

TAKE_WRITE_LOCK = "UPDATE onceward_meta SET value = value WHERE name IS NULL"
"""Changes nothing, but asks for the lock before anything is read: a snapshot that grew stale cannot be written from."""

NO_RELEASE = "PRAGMA main.journal_mode"
"""Only asks, but counts as one that writes. Until its row is fetched, SQLite releases no savepoint."""

_savepoints = count(1)


def check_connection(connection: Any, file: os.stat_result | None, name: str) -> None:
    """Refuse what cannot be joined, before anything happens."""
    if not isinstance(connection, Connection):
        raise ConfigurationError(
            f"cannot join a {type(connection).__module__}.{type(connection).__qualname__}",
            hint="hand over a sqlite3.Connection to the store's own file",
        )
    if file is None:
        raise ConfigurationError(
            f"{name} is not open yet", hint="open the store first: tables are not made in your transaction"
        )
    with _undisturbed(connection) as cursor:
        databases = cursor.execute("PRAGMA database_list").fetchall()
    path = next((path for _, schema, path in databases if schema == "main"), "")
    try:
        same = bool(path) and os.path.samestat(Path(path).stat(), file)
    except OSError:
        same = False
    if not same:
        raise ConfigurationError(
            f"this connection is on {path or 'a private database'}, not on {name}: the two cannot commit together",
            hint="open the connection on the store's file, or the store on the connection's",
        )
    _begins_by_itself(connection)


def _begins_by_itself(connection: Connection) -> bool:
    """True if no transaction is open and we have to begin one; an error if that would surprise the caller."""
    if connection.in_transaction:
        return False
    legacy = (
        getattr(connection, "autocommit", -1) == -1
    )  # since Python 3.12: True, False, or LEGACY_TRANSACTION_CONTROL
    if legacy and connection.isolation_level is not None:
        return True
    raise ConfigurationError(
        "this connection commits every statement by itself, so there is no transaction to join",
        hint="open a transaction first: connection.execute('BEGIN IMMEDIATE')",
    )


def _always_in_transaction(connection: Connection) -> bool:
    """With autocommit=False (since Python 3.12) the end of a transaction is the begin of the next."""
    return getattr(connection, "autocommit", None) is False


def _is_gone(point: str, error: BaseException | None) -> bool:
    return f"no such savepoint: {point}" in str(error)


def _cursor(connection: Connection) -> Cursor:
    try:
        _ = connection.in_transaction  # an error if it is closed
        return Cursor(connection)
    except sqlite3.ProgrammingError as error:
        raise ConfigurationError(
            f"this connection cannot be used here ({error})", hint="join on the thread that opened it, while it is open"
        ) from error


@contextmanager
def _undisturbed(connection: Connection) -> Iterator[Cursor]:
    """A plain cursor: no row factory, no subclass, text as str, and closed afterwards."""
    cursor = _cursor(connection)
    text_factory, connection.text_factory = connection.text_factory, str
    try:
        yield cursor
    except sqlite3.Error as error:
        explained = faults.explain(error, "your transaction")
        if not connection.in_transaction:
            explained.add_note("SQLite has rolled your transaction back")
        raise explained from error
    finally:
        connection.text_factory = text_factory
        cursor.close()


class SQLiteJoined:
    """The store, seen from the caller's transaction. Runs on the caller's thread: the connection may be bound to it."""

    exclusive = True
    number: str | None = None  # SQLite remembers no transactions: what is in the file was committed

    def __init__(
        self, connection: Connection, runtime: Runtime, clock: Clock, name: str, *, block: str, given: Any
    ) -> None:
        self._connection = connection
        self._keeps_connection = keeps_connection(given)
        self._session = SessionSavepoint(given)
        self.block = block
        self._runtime = runtime
        self._clock = clock
        self._name = name
        self._points: list[str] = []
        self._mark: str | None = None  # a savepoint that tells this transaction from the next one

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        return await self._apply(transitions.claim, requests, timeout)

    async def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> list[Answer]:
        return await self._apply(transitions.renew, renewals, timeout)

    async def settle(self, settlements: Sequence[AnySettlement], *, timeout: float) -> list[Answer]:
        return await self._apply(transitions.settle, settlements, timeout)

    async def apply_events(
        self, deliveries: Sequence[EventDelivery], keep: Retention, *, timeout: float
    ) -> list[LatestResult]:
        """Behind a savepoint: if it fails, a caller who goes on must not commit a mark without its state."""
        await self.begin(timeout=timeout)
        try:
            with _undisturbed(self._connection) as cursor:
                decisions = latest_rows.kept(cursor, deliveries, keep, self._clock.now())
            await self.keep()
        except BaseException:
            await self.undo()
            raise
        return decisions.answers

    async def latest(self, ids: Sequence[bytes], *, timeout: float) -> list[EntityState | None]:  # noqa: ARG002 (reads without waiting)
        with _undisturbed(self._connection) as cursor:
            return latest_rows.standings(cursor, ids, self._clock.now())

    def is_open(self) -> bool:
        if not self._in_transaction():
            return False
        if self._points or not _always_in_transaction(self._connection):
            return True
        return self._mark is not None and self._is_set(self._mark)

    def is_in_the_way(self) -> bool:
        """Not by `is_open`, which is for the thread of the connection."""
        if not self._in_transaction():
            return False
        try:
            return self._mark is not None or not _always_in_transaction(self._connection)
        except sqlite3.ProgrammingError:  # this is another thread, and may see no more of it
            return True

    def _in_transaction(self) -> bool:
        """Of the caller's: whatever a connection is used for that went back to its pool is somebody else's."""
        try:
            return self._keeps_connection() and self._connection.in_transaction
        except sqlite3.ProgrammingError:  # closed, and its transaction with it
            return False

    def _set_mark(self) -> None:
        if _always_in_transaction(self._connection) and not self.is_open():
            self._mark = f"onceward_{next(_savepoints)}"
            self._execute(f"SAVEPOINT {self._mark}")

    def _is_set(self, point: str) -> bool:
        """Asked for by a RELEASE that SQLite has to refuse: one that it did would take the caller's points along."""
        with _undisturbed(self._connection) as pending, _undisturbed(self._connection) as cursor:
            pending.execute(NO_RELEASE)
            try:
                cursor.execute(f"RELEASE {point}")
            except sqlite3.OperationalError as error:
                return not _is_gone(point, error)
        raise AssertionError  # no SQLite does that while a statement that writes is pending

    async def begin(self, *, timeout: float) -> None:
        await self._take_write_lock(timeout)  # a savepoint outside of a transaction would commit when it ends
        await self._session.flush()
        point = f"onceward_{next(_savepoints)}"
        self._execute(f"SAVEPOINT {point}")
        self._points.append(point)
        await self._session.begin()

    async def keep(self) -> bool:
        """If it fails, the point is still there to return to."""
        point = self._points[-1]
        if self._in_transaction():
            await self._session.commit()
        there = self._end(point, f"RELEASE {point}")
        self._points.pop()
        return there

    async def undo(self) -> bool:
        point = self._points.pop()
        if self._in_transaction():
            await self._session.rollback()
        return self._end(point, f"ROLLBACK TO {point}", f"RELEASE {point}")

    async def abandon(self) -> bool:
        if not self._in_transaction():
            return False
        with _undisturbed(self._connection):
            Connection.rollback(self._connection)  # not by a statement: with autocommit=False another one is to begin
        return True

    def _end(self, point: str, *statements: str) -> bool:
        """False if the point is gone: whoever ends a transaction ends all points in it."""
        if not self._in_transaction():
            return False
        try:
            self._execute(*statements)
        except StoreBroken as error:
            if _is_gone(point, error.__cause__):
                return False
            raise
        return True

    def _execute(self, *statements: str) -> None:
        with _undisturbed(self._connection) as cursor:
            for statement in statements:
                cursor.execute(statement)

    async def _apply(self, change: Change[Request], requests: Sequence[Request], timeout: float) -> list[Answer]:
        ids = ids_of(requests)
        await self._take_write_lock(timeout)
        with _undisturbed(self._connection) as cursor:
            found = THEIRS.fetch(cursor, ids)
            answers, changes = judge(found, change, requests, self._clock.now())
            if changes:
                write(cursor, found, answers)
        return answers

    async def _take_write_lock(self, timeout: float) -> None:
        """Wait for other writers without blocking an event loop: SQLite only tries, and the world sleeps in between."""
        if not self._keeps_connection():
            raise ConfigurationError(TRANSACTION_ENDED, hint=TRANSACTION_ENDED_HINT)
        deadline = self._runtime.monotonic() + timeout
        pause = FIRST_WAIT
        while True:
            busy = self._try_write_lock()
            if busy is None:
                self._set_mark()
                return
            if faults.extended(busy) == sqlite3.SQLITE_BUSY_SNAPSHOT:
                raise RetryTransaction(
                    "your transaction has read from the database before another one changed it",
                    hint="roll back and repeat it; BEGIN IMMEDIATE avoids this",
                ) from busy
            remaining = deadline - self._runtime.monotonic()
            if remaining <= 0:
                raise StoreUnavailable(
                    f"{self._name}: another writer holds the file for longer than this call may wait ({busy})",
                    hint="keep transactions on this file short",
                ) from busy
            await self._runtime.sleep(min(pause * (0.5 + self._runtime.jitter() / 2), remaining))
            pause = min(pause * 2, LONGEST_WAIT)

    def _try_write_lock(self) -> sqlite3.Error | None:
        with _undisturbed(self._connection) as cursor:
            statement = "BEGIN IMMEDIATE" if _begins_by_itself(self._connection) else TAKE_WRITE_LOCK
            patience = cursor.execute("PRAGMA busy_timeout").fetchall()[0][0]
            cursor.execute("PRAGMA busy_timeout = 0").fetchall()
            try:
                cursor.execute(statement)
            except sqlite3.OperationalError as error:
                if faults.is_busy(error):
                    return error
                raise
            finally:
                cursor.execute(f"PRAGMA busy_timeout = {patience:d}").fetchall()
        return None
