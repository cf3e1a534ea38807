"""One connection to the file, used by one thread at a time: its mutex, its deadlines, and what a fork does to it."""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from onceward.errors import Reentrant, StoreBroken, StoreUnavailable

from . import errors as faults
from . import schema

T = TypeVar("T")
Work = Callable[..., T]
Cursor = sqlite3.Cursor

MEMORY = ":memory:"
OPENING = 30.0  # seconds; opening may wait for another process that migrates
SLACK = 0.005  # seconds a call may overrun: below it, the busy timeout stays as it is and costs no statement
LOOK = 1.0  # seconds between looks at the file while only reading
LOOK_WRITING = 0.01  # ... and while writing: a lone write always looks, a stream of them shares the cost
NEVER = float("-inf")
FORKING = 2.0  # seconds that a fork may be held up by a call in another thread
RETRY = 0.01  # seconds between attempts at what SQLite's own busy handler does not cover

SETTINGS = (
    "PRAGMA wal_autocheckpoint = 8000",  # 32 MB: with fewer pages the same hot ones are copied again and again
    "PRAGMA cache_size = -65536",  # 64 MB
    "PRAGMA temp_store = MEMORY",
)


class Allowance(NamedTuple):
    """How long a call may take: its timeout, and the monotonic time at which that ends."""

    timeout: float
    deadline: float

    @classmethod
    def of(cls, timeout: float) -> Allowance:
        return cls(timeout, time.monotonic() + timeout)

    def left(self) -> float:
        """Seconds."""
        return max(0.0, self.deadline - time.monotonic())


class SQLiteConnection:
    """Opens the connection when it is needed, and again after a fork; `turn` is the only way to it."""

    def __init__(self, path: str, name: str, synchronous: str, *, migrate: bool) -> None:
        self.path = path
        self.name = name
        self.in_memory = path == MEMORY
        self._synchronous = synchronous
        self._migrate = migrate
        self.is_open = False
        self._connection: sqlite3.Connection | None = None
        self._cursor: Cursor | None = None
        self._busy_ms = -1
        self._file: os.stat_result | None = None
        self._wal: os.stat_result | None = None
        self._looked = NEVER
        self._renew_lock()
        self._orphaned = False
        self.on_fork: Callable[[], None] = _nothing
        _links[next(_numbers)] = self

    def _renew_lock(self) -> None:
        """Re-entrant, only to notice its own thread coming back in, from a signal handler or `__del__`."""
        self._lock = threading.RLock()
        self._is_ours: Callable[[], bool] = self._lock._is_owned  # type: ignore[attr-defined]  # noqa: SLF001 (as Condition does)

    @property
    def file(self) -> os.stat_result | None:
        """The file as it was when first opened; None before that."""
        return self._file

    # ── opening and closing ─────────────────────────────────────────────────────────────────────────────────────

    def open(self) -> None:
        """May be called again, and by several threads at once."""
        with self._lock:
            was_open, self.is_open = self.is_open, True
        try:
            self.turn(Allowance.of(OPENING), _nothing)
        except BaseException:
            self.is_open = was_open
            raise

    def close(self) -> None:
        if self._is_ours():
            raise Reentrant("close interrupted a store call of its own thread (signal handler or __del__)")
        with self._lock:
            self.is_open = False
            self._disconnect()
            self._file = None

    def __del__(self) -> None:
        """A client that nobody closed: Python 3.13 warns about connections that are merely dropped."""
        with contextlib.suppress(sqlite3.Error, AttributeError):
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection, self._cursor = self._connection, None, None
        self._wal = None
        if connection is not None:
            connection.close()

    def _connect(self, allowance: Allowance) -> Cursor:
        """SQLite refuses some steps of a race of openers at once, without its busy handler: those are repeated here."""
        while True:
            connection = None
            try:
                connection = sqlite3.connect(
                    self.path, timeout=RETRY, isolation_level=None, check_same_thread=False, cached_statements=256
                )
                cursor = self._set_up(connection)
                break
            except BaseException as error:
                if connection is not None:
                    connection.close()
                if not isinstance(error, sqlite3.Error) or not faults.is_busy(error):
                    raise
                if time.monotonic() > allowance.deadline:
                    raise
            time.sleep(RETRY)
        self._connection, self._cursor, self._busy_ms = connection, cursor, -1
        return cursor

    def _set_up(self, connection: sqlite3.Connection) -> Cursor:
        cursor = connection.cursor()
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
            self._recognise()
        return cursor

    # ── a turn ──────────────────────────────────────────────────────────────────────────────────────────────────

    def turn(self, allowance: Allowance, work: Work[T], *arguments: Any) -> T:
        """Run `work(cursor, *arguments)` with the connection to itself. SQLite's errors come out as ours.

        A signal may raise after any call, so only a block that `with` leaves by itself may give the lock back.
        """
        lock, is_ours = self._lock, self._is_ours
        if is_ours():
            raise Reentrant("a store call interrupted another one of its own thread (signal handler or __del__)")
        try:
            if not lock.acquire(blocking=False) and not lock.acquire(timeout=allowance.left()):
                raise StoreUnavailable(  # noqa: TRY301 (what cleans up after it looks first)
                    f"{self.name}: other calls of this process kept the connection busy for too long"
                )
            with lock:
                lock.release()  # it is re-entrant: from here on the block alone holds it
                return work(self._ready(allowance), *arguments)
        except sqlite3.Error as error:
            raise faults.explain(error, self.name, self.path) from error
        except BaseException:
            if is_ours():  # struck between the lock and its block
                lock.release()
            raise

    def peek(self, statement: str, id: bytes) -> tuple[Any, ...] | None:
        """One row, empty if there is none. None: it would have needed to wait, or a further look at something."""
        lock, is_ours, cursor = self._lock, self._is_ours, self._cursor
        if cursor is None or is_ours():
            return None
        try:
            if not lock.acquire(blocking=False):
                return None
            with lock:
                lock.release()
                if self._cursor is not cursor or (not self.in_memory and time.monotonic() - self._looked > LOOK):
                    return None
                rows = cursor.execute(statement, (id,)).fetchall()
                return rows[0] if rows else ()
        except sqlite3.Error:  # whoever asks properly is told
            return None
        except BaseException:
            if is_ours():
                lock.release()
            raise

    def _ready(self, allowance: Allowance) -> Cursor:
        if self._orphaned:
            raise StoreBroken(
                f"{self.name} belongs to the process that made it; after a fork it would protect nothing",
                hint="open a store in the child, or use one that processes share (sqlite:///…)",
            )
        if not self.is_open:
            raise StoreUnavailable(f"{self.name} is not open", hint="open the store first, and close it last")
        now = time.monotonic()
        remaining = allowance.deadline - now
        if remaining <= 0:
            raise StoreUnavailable(f"{self.name}: the time for this call was over before its turn came")
        cursor = self._cursor or self._connect(allowance)
        if now - self._looked > LOOK and not self.in_memory:
            self.look()
        nominal = allowance.timeout if allowance.timeout - remaining < SLACK else remaining
        milliseconds = min(int(nominal * 1000), 2**31 - 1)
        if milliseconds != self._busy_ms:
            cursor.execute(f"PRAGMA busy_timeout = {milliseconds}").fetchall()
            self._busy_ms = milliseconds
        return cursor

    def write(self, cursor: Cursor, work: Work[T], *arguments: Any) -> T:
        """Run `work` in a write transaction of its own: all of it, or nothing and an error.

        The block commits or rolls back in C, where no signal can raise: what a transaction that was left open is given
        afterwards would be answered for, and never be committed.
        """
        with cursor.connection:
            cursor.execute("BEGIN IMMEDIATE")
            result = work(cursor, *arguments)
        self.look_after_writing()
        return result

    def look_after_writing(self) -> None:
        if not self.in_memory and time.monotonic() - self._looked > LOOK_WRITING:
            self.look()

    # ── is it still the same file? ──────────────────────────────────────────────────────────────────────────────

    def _recognise(self) -> None:
        file = Path(self.path).stat()
        if self._file is None:
            self._file = file
        self._wal = None
        self.look()

    def look(self) -> None:
        """What is written to a file that has no name any more is lost: say so instead of saying "claimed"."""
        self._looked = NEVER  # unless all is well, the next call looks again
        try:
            file = os.stat(self.path)  # noqa: PTH116 (each write does this: a Path would cost more than the look)
            wal = os.stat(self.path + "-wal")  # noqa: PTH116 (as above)
        except OSError as error:
            raise self._replaced(str(error.strerror)) from error
        if self._wal is None:
            self._wal = wal
        if self._file is None or not os.path.samestat(file, self._file) or not os.path.samestat(wal, self._wal):
            raise self._replaced("another file has taken its place")
        self._looked = time.monotonic()

    def _replaced(self, how: str) -> StoreBroken:
        return StoreBroken(
            f"{self.name}: the database file was replaced or deleted while it was open ({how})",
            hint="stop every process that uses it before you touch the file or its -wal, then open the store again",
        )

    # ── fork ────────────────────────────────────────────────────────────────────────────────────────────────────

    def before_fork(self, deadline: float) -> bool:
        """Close, so that the child inherits nothing; tells whether the mutex is held until the fork is over.

        A child cannot simply open a connection of its own: with the open one it would inherit SQLite's notes about
        the parent's locks, not lock in earnest, and lose what it writes as soon as the parent closes.
        """
        inside = self._is_ours()
        if not self._lock.acquire(timeout=max(deadline - time.monotonic(), 0)):
            return False
        if not inside and not self.in_memory:
            with contextlib.suppress(sqlite3.Error):
                self._disconnect()
        return True

    def after_fork_in_parent(self) -> None:
        self._lock.release()

    def after_fork_in_child(self) -> None:
        if self._connection is not None:
            _abandoned.append(self._connection)  # closing it would end the parent's transaction or delete its log
        self._connection = self._cursor = self._wal = None
        self._renew_lock()
        self._orphaned = self.in_memory
        self.on_fork()


def _nothing(*_: object) -> None: ...


_links: weakref.WeakValueDictionary[int, SQLiteConnection] = weakref.WeakValueDictionary()
_numbers = itertools.count()
_attempt = threading.local()  # by thread, because two may fork at the same time
_abandoned: list[sqlite3.Connection] = []


def _all() -> list[SQLiteConnection]:
    return [link for link in (reference() for reference in _links.valuerefs()) if link is not None]


def _before_fork() -> None:
    deadline = time.monotonic() + FORKING
    _attempt.links = [link for link in _all() if link.before_fork(deadline)]


def _after_fork_in_parent() -> None:
    for link in _attempt.__dict__.pop("links", ()):
        link.after_fork_in_parent()


def _after_fork_in_child() -> None:
    _attempt.__dict__.clear()
    for link in _all():
        link.after_fork_in_child()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
