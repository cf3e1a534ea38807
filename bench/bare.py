"""The least that one could reasonably write by hand on the same storage.

A floor, not an alternative: no fingerprint, no types of results, no renewals, no attempts, no answer to a crash or to a
lost reply. But each has what keeps it from being wrong in plain sight: an owner, a lease, and a check of both.
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
BUSY_MS = 60_000  # how long a connection waits for the others' transactions: longer than any block takes

SETTINGS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA wal_autocheckpoint = 8000",
    "PRAGMA cache_size = -65536",
    "PRAGMA temp_store = MEMORY",
    f"PRAGMA busy_timeout = {BUSY_MS}",
)
"""The same as our own store's, so that the difference is the statements and what is around them."""

CREATE = (
    "CREATE TABLE IF NOT EXISTS done (key TEXT NOT NULL PRIMARY KEY, state TEXT NOT NULL, token INTEGER NOT NULL,"
    " lease_until REAL, valid_until REAL, result TEXT) WITHOUT ROWID"  # measured: quicker here than with a rowid
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
    """Somebody else is at it, or was faster: no benchmark gets here."""


class Entry:
    """What the dict holds under a key."""

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
        """The entry: done already, or ours from now on."""
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
        """Only for the owner: whoever was replaced meanwhile must not overwrite the winner."""
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
    """Claim and complete, each a statement that commits by itself, on one cursor that keeps them prepared."""

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
    """One SELECT and a look at what it found; done before is what all calls but the first of a key find."""
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
    """Threads share one connection, and each statement has it to itself."""
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
    """Each thread has a connection, and writes in transactions that take the write lock before anything else."""
    own = threading.local()
    connections = [connect(path, "FULL")]  # first, alone: several at once cannot switch a new file to WAL

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
