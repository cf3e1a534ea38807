"""The minimum that one could reasonably write by hand on the same storage.

A lower bound, not an alternative: no fingerprints, result types, renewals or attempts, and no handling of crashes or
lost replies. But each has what prevents obvious errors: an owner, a lease, and a check of both.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

LEASE = 600.0  # seconds, as ours
BUSY_MS = 60_000  # how long a connection waits for other transactions: longer than any block takes

SETTINGS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA wal_autocheckpoint = 8000",
    "PRAGMA cache_size = -65536",
    "PRAGMA temp_store = MEMORY",
    f"PRAGMA busy_timeout = {BUSY_MS}",
)
"""The same as in our own store, so that only the statements and the code around them differ."""

CREATE = (
    "CREATE TABLE IF NOT EXISTS done (key TEXT NOT NULL PRIMARY KEY, state TEXT NOT NULL, token INTEGER NOT NULL,"
    " lease_until REAL, valid_until REAL, result TEXT) WITHOUT ROWID"  # measured: faster here than with a rowid
)
CLAIM = "INSERT INTO done (key, state, token, lease_until) VALUES (?, 'PENDING', ?, ?) ON CONFLICT DO NOTHING"
COMPLETE = (
    "UPDATE done SET state = 'COMPLETED', result = ?, lease_until = NULL"
    " WHERE key = ? AND token = ? AND state = 'PENDING'"
)
READ = "SELECT state, valid_until, result FROM done WHERE key = ?"

tokens = count(1)

Work = Callable[[str], str]


class Busy(Exception):
    """Another caller is processing this key, or was faster. No benchmark raises this."""


class Entry:
    """The value of a key in the dict."""

    __slots__ = ("lease_until", "result", "state", "token", "valid_until")

    def __init__(self, token: int, lease_until: float) -> None:
        self.state = "PENDING"
        self.token = token
        self.lease_until = lease_until
        self.valid_until: float | None = None
        self.result: object = None


class Memory:
    """A dict and a lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}

    def run(self, key: str, fn: Callable[[], object]) -> object:
        entry = self.claim(key)
        if entry.state == "COMPLETED":
            return entry.result
        token = entry.token
        result = fn()
        self.complete(key, token, result)
        return result

    def claim(self, key: str) -> Entry:
        """Return the entry: either completed, or owned by this caller from now on."""
        with self._lock:
            now = time.time()
            entry = self._entries.get(key)
            if entry is not None:
                if entry.state == "COMPLETED":
                    if entry.valid_until is None or entry.valid_until > now:
                        return entry
                elif entry.lease_until > now:
                    raise Busy(key)
            entry = self._entries[key] = Entry(next(tokens), now + LEASE)
            return entry

    def complete(self, key: str, token: int, result: object) -> None:
        """Complete the entry if the caller is the owner: a replaced owner must not overwrite the new one."""
        with self._lock:
            entry = self._entries[key]
            if entry.token != token:
                raise Busy(key)
            entry.state = "COMPLETED"
            entry.result = result


def connect(path: Path, durability: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    for setting in (*SETTINGS, f"PRAGMA synchronous = {durability}", CREATE):
        connection.execute(setting).fetchall()
    return connection


def fresh_on(cursor: sqlite3.Cursor, work: Work) -> Work:
    """Claim and complete, each with an auto-committed statement, on one cursor that keeps them prepared."""

    def call(key: str) -> str:
        token = next(tokens)
        if cursor.execute(CLAIM, (key, token, time.time() + LEASE)).rowcount != 1:
            raise Busy(key)
        result = work(key)
        if cursor.execute(COMPLETE, (result, key, token)).rowcount != 1:
            raise Busy(key)
        return result

    return call


def replay_on(cursor: sqlite3.Cursor, work: Work) -> Work:
    """Read the key with one SELECT. All calls except the first one of a key find a completed row."""
    do = fresh_on(cursor, work)

    def call(key: str) -> str:
        found = cursor.execute(READ, (key,)).fetchone()
        if found is None:
            return do(key)
        state, valid_until, result = found
        if state != "COMPLETED" or (valid_until is not None and valid_until <= time.time()):
            raise Busy(key)
        return str(result)

    return call


@contextmanager
def shared_connection(path: Path, work: Work) -> Iterator[Work]:
    """Share one connection among threads, with a lock around each statement."""
    lock = threading.Lock()
    with closing(connect(path, "FULL")) as connection:
        cursor = connection.cursor()

        def call(key: str) -> str:
            with lock:
                token = next(tokens)
                claimed = cursor.execute(CLAIM, (key, token, time.time() + LEASE)).rowcount == 1
            if not claimed:
                raise Busy(key)
            result = work(key)
            with lock:
                completed = cursor.execute(COMPLETE, (result, key, token)).rowcount == 1
            if not completed:
                raise Busy(key)
            return result

        yield call


@contextmanager
def connection_per_thread(path: Path, work: Work) -> Iterator[Work]:
    """Use one connection per thread, and transactions that acquire the write lock first."""
    own = threading.local()
    connections = [
        connect(path, "FULL")
    ]  # opened first: several connections cannot switch a new file to WAL at the same time

    def write(cursor: sqlite3.Cursor, statement: str, *values: object) -> bool:
        cursor.execute("BEGIN IMMEDIATE")
        written = cursor.execute(statement, values).rowcount == 1
        cursor.execute("COMMIT")
        return written

    def call(key: str) -> str:
        cursor: sqlite3.Cursor | None = getattr(own, "cursor", None)
        if cursor is None:
            connections.append(connect(path, "FULL"))
            cursor = own.cursor = connections[-1].cursor()
        token = next(tokens)
        if not write(cursor, CLAIM, key, token, time.time() + LEASE):
            raise Busy(key)
        result = work(key)
        if not write(cursor, COMPLETE, result, key, token):
            raise Busy(key)
        return result

    try:
        yield call
    finally:
        for connection in connections:
            connection.close()
