"""What is asked about many records at once: scan, counts, purge."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from onceward.model import transitions
from onceward.model.record import READER, AfterCrash, State
from onceward.ports import Filter, Page

from .rows import COLUMNS, Row, record_of
from .table import WITHOUT_RESULTS

Cursor = sqlite3.Cursor

CHUNK = 500
"""Records deleted in one transaction: a claim waits for some milliseconds at most."""

STRETCH = 10_000
"""Records that one call looks at in search of abandoned attempts: some milliseconds."""

INSTRUCTIONS = 20_000
"""How many steps of SQLite's machine may pass between looks at the clock: well below a millisecond."""

RARE = (State.FAILED, State.FREE, State.PARKED)
_RARE = "state IN ('FAILED', 'FREE', 'PARKED')"  # word by word the condition of the index, or SQLite does not use it

# What looks purgeable. `transitions.purgeable` decides, once more and within the transaction.
_OVER = """
SELECT id FROM onceward_records
WHERE valid_until IS NOT NULL AND valid_until <= ? AND token < ? AND min_reader <= ?
ORDER BY valid_until LIMIT ?
"""
_FREE = f"SELECT id FROM onceward_records WHERE {_RARE} AND state = 'FREE' AND token < ? AND min_reader <= ? LIMIT ?"  # noqa: S608 (constants)
_ABANDONED = """
SELECT id FROM onceward_records
WHERE rowid > ? AND rowid <= ? AND state = 'PENDING' AND lease_until <= ? AND token < ? AND after_crash = ?
    AND min_reader <= ?
LIMIT ?
"""
_STRETCH = (
    "SELECT count(*), max(rowid) FROM (SELECT rowid FROM onceward_records WHERE rowid > ? ORDER BY rowid LIMIT ?)"
)


@contextmanager
def bounded(cursor: Cursor, deadline: float) -> Iterator[None]:
    """A long read ends when its time is over."""
    cursor.connection.set_progress_handler(lambda: time.monotonic() > deadline, INSTRUCTIONS)
    try:
        yield
    finally:
        cursor.connection.set_progress_handler(None, 0)


def scan(cursor: Cursor, wanted: Filter, after: bytes | None, limit: int, now: int) -> Page:
    """Records in the order of their ids, from behind the cursor on."""
    conditions, values = ["id > ?"], [b"" if after is None else after]
    conditions, values = _conditions(wanted, conditions, values)
    statement = " ".join(
        ("SELECT", COLUMNS, "FROM onceward_records WHERE", " AND ".join(conditions), "ORDER BY id LIMIT ?")
    )
    rows = cursor.execute(statement, [*values, limit + 1]).fetchall()
    return Page([record_of(row) for row in rows[:limit]], rows[limit - 1][0] if len(rows) > limit else None, now)


def _conditions(wanted: Filter, conditions: list[str], values: list[Any]) -> tuple[list[str], list[Any]]:
    if wanted.states:
        conditions.append(f"state IN ({', '.join('?' * len(wanted.states))})")
        values.extend(state.value for state in wanted.states)
        if set(wanted.states) <= set(RARE):
            conditions.append(_RARE)
    if wanted.scope is not None:
        conditions.append("scope = ?")
        values.append(wanted.scope)
    if wanted.key is not None:
        conditions.append("key = ?")
        values.append(wanted.key)
    if wanted.updated_before is not None:
        conditions.append("updated_at < ?")
        values.append(wanted.updated_before)
    return conditions, values


def counts(cursor: Cursor) -> dict[tuple[str, State], int]:
    rows = cursor.execute("SELECT scope, state, count(*) FROM onceward_records GROUP BY scope, state").fetchall()
    known = {state.value: state for state in State}
    return {(scope, known[state]): number for scope, state, number in rows if state in known}


class Candidates:
    """Ids of records that look purgeable, read without any lock.

    What has a window or is FREE is found by index. An abandoned attempt is rare and a month old when it may go: no index
    is kept for it, which every claim would have to pay for; each call goes through the next stretch of the table.
    """

    def __init__(self) -> None:
        self._seen = 0  # the rowid where the last stretch ended

    def find(self, cursor: Cursor, now: int, limit: int) -> list[bytes]:
        old = now - transitions.CLOCK_MARGIN
        found = cursor.execute(_OVER, (now, old, READER, limit)).fetchall()
        if len(found) < limit:
            found += cursor.execute(_FREE, (old, READER, limit - len(found))).fetchall()
        if len(found) < limit:
            found += self._abandoned(cursor, now, limit - len(found))
        return [row[0] for row in found]

    def _abandoned(self, cursor: Cursor, now: int, limit: int) -> list[Row]:
        wanted = (now - transitions.KEEP_UNFINISHED, now - transitions.CLOCK_MARGIN, AfterCrash.RERUN.value, READER)
        found: list[Row] = []
        left = STRETCH
        for start in (self._seen, 0):  # on from where it was, and from the beginning once the end is reached
            length, end = cursor.execute(_STRETCH, (start, left)).fetchall()[0]
            if length:
                found += cursor.execute(_ABANDONED, (start, end, *wanted, limit)).fetchall()
                self._seen = end
            left -= length
            if not left or not start:
                break
        return found[:limit]


def purge(cursor: Cursor, ids: list[bytes], now: int) -> int:
    """Delete those which still may go, now that nobody else writes."""
    found = WITHOUT_RESULTS.fetch(cursor, ids)
    going = [(id,) for id, record in found.items() if transitions.purgeable(record, now)]
    cursor.executemany("DELETE FROM onceward_records WHERE id = ?", going)
    return len(going)
