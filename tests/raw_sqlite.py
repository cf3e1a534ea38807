"""The connection inside a SQLite store, for tests that trace its statements or keep it busy.

`connection_of` is the only place that knows where the store keeps it.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from onceward.stores.sqlite import SQLiteStore
from onceward.stores.sqlite.connection import SQLiteConnection

T = TypeVar("T")


def connection_of(store: SQLiteStore) -> SQLiteConnection:
    return store._connection


def run_on(store: SQLiteStore, work: Callable[[sqlite3.Cursor], T]) -> T:
    """Run this on the store's connection; no other call can use it meanwhile."""
    return connection_of(store).run(time.monotonic() + 5, work)


def write_on(store: SQLiteStore, work: Callable[[sqlite3.Cursor], T]) -> T:
    """Run this in a write transaction on the store's connection."""
    return run_on(store, lambda cursor: connection_of(store).write(cursor, work))


def database_of(store: SQLiteStore) -> sqlite3.Connection:
    """Return the driver's connection of an open store."""
    return run_on(store, lambda cursor: cursor.connection)


@contextmanager
def traced(store: SQLiteStore) -> Iterator[list[str]]:
    """Collect the statements that the store executes inside the block."""
    statements: list[str] = []
    database = database_of(store)
    database.set_trace_callback(statements.append)
    yield statements
    database.set_trace_callback(None)


@contextmanager
def busy(store: SQLiteStore) -> Iterator[None]:
    """Keep the store's connection busy in another thread."""
    inside, leave = threading.Event(), threading.Event()

    def hold(_: sqlite3.Cursor) -> None:
        inside.set()
        leave.wait(60)

    thread = threading.Thread(target=run_on, args=(store, hold))
    thread.start()
    assert inside.wait(60)
    try:
        yield
    finally:
        leave.set()
        thread.join()
