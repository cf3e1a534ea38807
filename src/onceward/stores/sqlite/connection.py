"""One connection to the file, used by one thread at a time: its mutex, its deadlines, and its handling of forks."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from onceward.errors import Reentrant, StoreBroken, StoreUnavailable
from onceward.protocol.fork import call_around_fork

from . import errors as sqlite_errors
from . import schema
from .private_file import create_private_file

T = TypeVar("T")
Work = Callable[..., T]
Cursor = sqlite3.Cursor

MEMORY = ":memory:"
OPEN_TIMEOUT = 30.0  # seconds; opening may wait for another process that migrates
MIN_SLACK, SLACK_SHARE = 0.005, 50  # the busy timeout may differ from the remaining time by 5 ms or a 50th
SHORTEST = 0.001  # seconds: SQLite's busy timeout is in milliseconds
FILE_CHECK_INTERVAL = 1.0  # seconds between checks of the file while only reading
FILE_CHECK_INTERVAL_WRITING = 0.01  # the same after writes: a rare write always checks, frequent writes share a check
NEVER, ALWAYS = float("-inf"), float("inf")
NOT_SET = (1.0, 0.0)
FORK_TIMEOUT = 2.0  # seconds that a fork may wait for a call in another thread
RETRY_DELAY = 0.01  # seconds between retries where SQLite's own busy handler does not apply

SETTINGS = (
    "PRAGMA wal_autocheckpoint = 8000",  # 32 MB: with fewer pages, the same hot pages are copied again and again
    "PRAGMA cache_size = -65536",  # 64 MB
    "PRAGMA temp_store = MEMORY",
    "PRAGMA secure_delete = ON",  # overwrites deleted content with zeros, as `onceward erase` documents
)


class SQLiteConnection:
    """A connection that opens when it is needed, and again after a fork. All access goes through `run`."""

    def __init__(self, path: str, name: str, synchronous: str, *, migrate: bool) -> None:
        self.path = path
        self.name = name
        self.in_memory = path == MEMORY
        self._synchronous = synchronous
        self._migrate = migrate
        self.is_open = False
        self._database: sqlite3.Connection | None = None
        self._cursor: Cursor | None = None
        self._busy_range = NOT_SET  # the remaining seconds for which the busy timeout need not be set again
        self._file: os.stat_result | None = None
        self._wal: os.stat_result | None = None
        self.checked_at = ALWAYS if self.in_memory else NEVER  # when the file was checked last
        self._create_lock()
        self._unusable_after_fork = False
        self.on_fork: Callable[[], None] = _do_nothing
        _connections[next(_numbers)] = self

    def _create_lock(self) -> None:
        """Create the lock. It is reentrant only to detect reentry by a signal handler or `__del__` of its thread."""
        self._lock = threading.RLock()
        self._is_owned: Callable[[], bool] = self._lock._is_owned  # type: ignore[attr-defined]  # noqa: SLF001 (as Condition does)

    @property
    def file(self) -> os.stat_result | None:
        """The file as it was when first opened; None before that."""
        return self._file

    # ── opening and closing ─────────────────────────────────────────────────────────────────────────────────────

    def open(self) -> None:
        """Open the connection. May be called again, and by several threads at the same time.

        If it fails, the connection stays open for other callers: each call connects by itself until one succeeds.
        """
        deadline = time.monotonic() + OPEN_TIMEOUT
        self.is_open = True  # without the lock: another caller that opens the file may hold it until its own deadline
        self.run(deadline, _do_nothing)

    def close(self) -> None:
        if self._is_owned():
            raise Reentrant(
                "a signal handler or __del__ closed the store while the same thread was inside a store call"
            )
        self.is_open = False  # without the lock: ends a connection attempt that holds it
        with self._lock:
            self._disconnect()
            self._file = None

    def __del__(self) -> None:
        """Close the connection of an unclosed client: Python 3.13 warns about connections that are merely dropped."""
        with contextlib.suppress(sqlite3.Error, AttributeError):
            self._disconnect()

    def _disconnect(self) -> None:
        database, self._database, self._cursor = self._database, None, None
        self._wal = None
        if database is not None:
            database.close()

    def _connect(self, deadline: float) -> Cursor:
        """Connect. When openers race, SQLite fails some steps without its busy handler: those are retried here."""
        while True:
            database = None
            try:
                create_private_file(self.path)
                database = sqlite3.connect(
                    self.path, timeout=RETRY_DELAY, isolation_level=None, check_same_thread=False, cached_statements=256
                )
                cursor = self._set_up(database)
                break
            except BaseException as error:
                if database is not None:
                    database.close()
                if not isinstance(error, sqlite3.Error) or not sqlite_errors.is_busy(error):
                    raise
                if time.monotonic() > deadline or not self.is_open:
                    raise
            time.sleep(RETRY_DELAY)
        self._database, self._cursor, self._busy_range = database, cursor, NOT_SET
        return cursor

    def _set_up(self, database: sqlite3.Connection) -> Cursor:
        cursor = database.cursor()
        if not self.in_memory:
            mode = cursor.execute("PRAGMA journal_mode = WAL").fetchall()[0][0]
            if mode != "wal":
                raise StoreBroken(
                    f"{self.name}: SQLite cannot use write-ahead logging here (journal_mode stays {mode})",
                    hint="put the file on a local disk: network file systems lack the shared memory and locks it needs",
                )
        cursor.execute(f"PRAGMA synchronous = {self._synchronous}")
        for setting in SETTINGS:
            cursor.execute(setting).fetchall()
        schema.prepare(cursor, self.name, migrate=self._migrate)
        if not self.in_memory:
            self._remember_file()
        return cursor

    # ── running calls ───────────────────────────────────────────────────────────────────────────────────────────

    def run(self, deadline: float, work: Work[T], *arguments: Any) -> T:
        """Run `work(cursor, *arguments)` with exclusive use of the connection. SQLite's errors become StoreErrors.

        `deadline` is a time of `time.monotonic()`: until then, the call waits for other threads and processes.
        A signal handler may raise after any call: only a `with` block makes sure that no lock stays held.
        """
        lock, is_owned = self._lock, self._is_owned
        if is_owned():
            raise Reentrant(
                "a signal handler or __del__ called the store while the same thread was inside a store call"
            )
        try:
            if not lock.acquire(blocking=False) and not lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
                raise StoreUnavailable(  # noqa: TRY301 (the handler below checks before it cleans up)
                    f"{self.name}: other calls of this process kept the connection busy for too long"
                )
            with lock:
                lock.release()  # the lock is reentrant: from here on only the block holds it
                cursor, now = self._cursor, time.monotonic()
                shortest, longest = self._busy_range
                if (
                    cursor is None
                    or not shortest <= deadline - now <= longest
                    or now - self.checked_at > FILE_CHECK_INTERVAL
                ):
                    cursor = self._prepare(deadline, now)
                return work(cursor, *arguments)
        except sqlite3.Error as error:
            if not sqlite_errors.is_not_utf_8(error) or not self._escape_text():
                raise sqlite_errors.explain(error, self.name, self.path) from error
        except BaseException:
            if is_owned():  # interrupted between acquiring the lock and entering the block
                lock.release()
            raise
        return self.run(deadline, work, *arguments)  # the failed call was rolled back

    def _escape_text(self) -> bool:
        """Show bytes that are not UTF-8 as escapes from now on. Return False if the connection was closed meanwhile.

        Otherwise one damaged text would fail every call that reads its row, such as a list of other records.
        """
        database = self._database
        if database is None:
            return False
        database.text_factory = _escaped  # not from the beginning: it takes longer than the default
        return True

    def try_fetch(self, statement: str, id: bytes) -> tuple[Any, ...] | None:
        """Return one row, or () if there is none. None: the lock is taken, or the connection needs a check first."""
        lock, is_owned, cursor = self._lock, self._is_owned, self._cursor
        if cursor is None or is_owned():
            return None
        try:
            if not lock.acquire(blocking=False):
                return None
            with lock:
                lock.release()
                if self._cursor is not cursor or time.monotonic() - self.checked_at > FILE_CHECK_INTERVAL:
                    return None
                rows = cursor.execute(statement, (bytearray(id),)).fetchall()  # bytes are slower to bind
                return rows[0] if rows else ()
        except sqlite3.Error:  # the regular call that follows reports it
            return None
        except BaseException:
            if is_owned():
                lock.release()
            raise

    def _prepare(self, deadline: float, now: float) -> Cursor:
        """Return a cursor on an open connection to the right file. It waits for other processes until `deadline`."""
        if self._unusable_after_fork:
            raise StoreBroken(
                f"{self.name} belongs to the process that created it; after a fork it would protect nothing",
                hint="open a store in the child, or use one that processes can share (sqlite:///…)",
            )
        if not self.is_open:
            raise StoreUnavailable(f"{self.name} is not open", hint="open the store before you use it")
        remaining = deadline - now
        if remaining <= 0:
            raise StoreUnavailable(f"{self.name}: the call timed out while it waited for the connection")
        cursor = self._cursor or self._connect(deadline)
        if now - self.checked_at > FILE_CHECK_INTERVAL:
            self.check_file()
        shortest, longest = self._busy_range
        if not shortest <= remaining <= longest:
            milliseconds = min(math.ceil(remaining * 1000), 2**31 - 1)
            cursor.execute(f"PRAGMA busy_timeout = {milliseconds}").fetchall()
            slack = max(MIN_SLACK, remaining / SLACK_SHARE)
            self._busy_range = max(remaining - slack, SHORTEST), remaining + slack
        return cursor

    def write(self, cursor: Cursor, work: Work[T], *arguments: Any) -> T:
        """Run `work` in a write transaction of its own. If it raises, everything is rolled back.

        The block commits or rolls back in C, where no signal handler can raise. If a transaction were left open, later
        calls would succeed inside it and never be committed.
        """
        with cursor.connection:
            cursor.execute("BEGIN IMMEDIATE")
            result = work(cursor, *arguments)
        if time.monotonic() - self.checked_at > FILE_CHECK_INTERVAL_WRITING:
            self.check_file()
        return result

    # ── is it still the same file? ──────────────────────────────────────────────────────────────────────────────

    def _remember_file(self) -> None:
        file = Path(self.path).stat()
        if self._file is None:
            self._file = file
        self._wal = None
        self.check_file()

    def check_file(self) -> None:
        """Raise StoreBroken if the file was deleted or replaced: writes to the open file would be lost."""
        self.checked_at = NEVER  # if this raises, the next call checks again
        try:
            file = os.stat(self.path)  # noqa: PTH116 (on every write: creating a Path would cost more than the check)
            wal = os.stat(self.path + "-wal")  # noqa: PTH116 (as above)
        except OSError as error:
            raise self._replaced(str(error.strerror)) from error
        if self._wal is None:
            self._wal = wal
        if self._file is None or not os.path.samestat(file, self._file) or not os.path.samestat(wal, self._wal):
            raise self._replaced("another file is in its place")
        self.checked_at = time.monotonic()

    def _replaced(self, detail: str) -> StoreBroken:
        return StoreBroken(
            f"{self.name}: the database file was replaced or deleted while it was open ({detail})",
            hint="stop every process that uses it before you touch the file or its -wal, then open the store again",
        )

    # ── fork ────────────────────────────────────────────────────────────────────────────────────────────────────

    def before_fork(self, deadline: float) -> bool:
        """Close, so that the child inherits nothing. Return whether the mutex is held until the fork is over.

        It is not enough that the child opens a connection of its own. With an open connection it would inherit SQLite's
        record of the parent's locks, would not really lock, and would lose its writes when the parent closes.
        """
        inside = self._is_owned()
        if not self._lock.acquire(timeout=max(deadline - time.monotonic(), 0)):
            return False
        if not inside and not self.in_memory:
            with contextlib.suppress(sqlite3.Error):
                self._disconnect()
        return True

    def after_fork_in_parent(self) -> None:
        self._lock.release()

    def after_fork_in_child(self) -> None:
        if self._database is not None:
            _inherited.append(self._database)  # never closed: that would end the parent's transaction or delete its log
        self._database = self._cursor = self._wal = None
        self._create_lock()
        self._unusable_after_fork = self.in_memory
        self.on_fork()


def _do_nothing(*_: object) -> None: ...


def _escaped(text: bytes) -> str:
    return text.decode("utf-8", "backslashreplace")


_connections: weakref.WeakValueDictionary[int, SQLiteConnection] = weakref.WeakValueDictionary()
_numbers = itertools.count()
_forking = threading.local()  # per thread, because two threads may fork at the same time
_inherited: list[sqlite3.Connection] = []


def _all_connections() -> list[SQLiteConnection]:
    found = (reference() for reference in _connections.valuerefs())
    return [connection for connection in found if connection is not None]


def _before_fork() -> None:
    deadline = time.monotonic() + FORK_TIMEOUT
    _forking.locked = [connection for connection in _all_connections() if connection.before_fork(deadline)]


def _after_fork_in_parent() -> None:
    for connection in _forking.__dict__.pop("locked", ()):
        connection.after_fork_in_parent()


def _after_fork_in_child() -> None:
    _forking.__dict__.clear()
    for connection in _all_connections():
        connection.after_fork_in_child()


call_around_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
