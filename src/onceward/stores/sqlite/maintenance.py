"""Operations on many records: scan, counts, purge."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager

from onceward.protocol import transitions
from onceward.protocol.cells import KEEP_UNFINISHED
from onceward.protocol.ports import Filter, Page, SortOrder
from onceward.protocol.record import READER, AfterCrash, RecordState
from onceward.stores import sql_reading
from onceward.stores.sql import PURGEABLE_FROM, STATES, record_or_stub
from onceward.stores.sql_reading import without_waiting

from . import history
from .reader import SQLiteReader
from .table import SELECT_WITHOUT_RESULTS

Cursor = sqlite3.Cursor

CHUNK = 500
"""Records deleted in one transaction: a claim waits for a few milliseconds at most."""

PAUSE = 0.02
"""Seconds between two chunks: about as long as a chunk takes."""

PROGRESS_INSTRUCTIONS = 20_000
"""SQLite VM instructions between two checks of the deadline: well below a millisecond."""

# Candidates only: `transitions.purgeable` decides again, inside the transaction.
SELECT_EXPIRED = f"""
SELECT id FROM onceward_records
WHERE valid_until IS NOT NULL AND max{PURGEABLE_FROM} <= ? AND coalesce(min_reader, 1) <= ?
ORDER BY max{PURGEABLE_FROM} LIMIT ?
"""  # noqa: S608 (our own numbers)
SELECT_FREE = """
SELECT id FROM onceward_records
WHERE state = 'FREE' AND token < ? AND coalesce(min_reader, 1) <= ?
LIMIT ?
"""
SELECT_ABANDONED = """
SELECT id FROM onceward_records
WHERE state = 'PENDING' AND lease_until <= ? AND token < ? AND coalesce(min_reader, 1) <= ?
    AND coalesce(after_crash, 0) = ? AND coalesce(released, 0) = 0
    AND (coalesce(max_attempts, 0) = 0 OR coalesce(attempt, 1) < max_attempts)
LIMIT ?
"""


@contextmanager
def with_deadline(cursor: Cursor, deadline: float) -> Iterator[None]:
    """Interrupt a long read when the deadline has passed."""
    cursor.connection.set_progress_handler(lambda: time.monotonic() > deadline, PROGRESS_INSTRUCTIONS)
    try:
        yield
    finally:
        cursor.connection.set_progress_handler(None, 0)


def scan(cursor: Cursor, wanted: Filter, after: bytes | None, limit: int, now: int) -> Page:
    return without_waiting(sql_reading.scan(SQLiteReader(cursor, now), wanted, after, limit))


def first(cursor: Cursor, wanted: Filter, order: SortOrder, limit: int, now: int) -> Page:
    return without_waiting(sql_reading.first(SQLiteReader(cursor, now), wanted, order, limit))


def counts(cursor: Cursor) -> dict[tuple[str, RecordState], int]:
    rows = cursor.execute("SELECT scope, state, count(*) FROM onceward_records GROUP BY scope, state").fetchall()
    return {(scope, STATES[state]): number for scope, state, number in rows if state in STATES}


def candidates(cursor: Cursor, now: int, limit: int) -> list[bytes]:
    """Return the ids of up to `limit` records that look purgeable. Reads without a lock."""
    old = now - transitions.CLOCK_MARGIN
    found = cursor.execute(SELECT_EXPIRED, (now, READER, limit)).fetchall()
    if len(found) < limit:
        found += cursor.execute(SELECT_FREE, (old, READER, limit - len(found))).fetchall()
    if len(found) < limit:
        values = (now - KEEP_UNFINISHED, old, READER, AfterCrash.RERUN.value, limit - len(found))
        found += cursor.execute(SELECT_ABANDONED, values).fetchall()
    return [row[0] for row in found]


def purge(cursor: Cursor, ids: list[bytes], now: int) -> int:
    """Delete the candidates that are still purgeable. Runs inside the write transaction."""
    found = SELECT_WITHOUT_RESULTS.fetch(cursor, ids, record_or_stub)  # undecodable ones must not block the others
    purgeable = [(id,) for id, record in found.items() if transitions.purgeable(record, now)]
    cursor.executemany("DELETE FROM onceward_records WHERE id = ?", purgeable)
    history.delete(cursor, [id for (id,) in purgeable])
    return len(purgeable)
