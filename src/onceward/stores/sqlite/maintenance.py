"""Operations on many records: scan, counts, purge."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec.structs import replace

from onceward.protocol import transitions
from onceward.protocol.cells import KEEP_UNFINISHED
from onceward.protocol.ports import Filter, Page, SortOrder
from onceward.protocol.record import READER, AfterCrash, RecordState
from onceward.stores.sql import COLUMNS, FIELDS, PURGEABLE_FROM, STATES, Row, record_or_stub, records_from_rows

from . import history
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

_decode_position = msgspec.msgpack.Decoder(tuple[str, int, int]).decode
_STATE, _TOKEN = FIELDS.index("state"), FIELDS.index("token")
_ORDER_BY = {
    SortOrder.UPDATED: "updated_at DESC, id",
    SortOrder.CREATED: "coalesce(created_at, token) DESC, id",
    SortOrder.KEY: "key, id",
}


@contextmanager
def with_deadline(cursor: Cursor, deadline: float) -> Iterator[None]:
    """Interrupt a long read when the deadline has passed."""
    cursor.connection.set_progress_handler(lambda: time.monotonic() > deadline, PROGRESS_INSTRUCTIONS)
    try:
        yield
    finally:
        cursor.connection.set_progress_handler(None, 0)


def scan(cursor: Cursor, wanted: Filter, after: bytes | None, limit: int, now: int) -> Page:
    """Return a page of records, starting after the cursor: in the order of their ids, or of the unfinished index."""
    if wanted.states and RecordState.COMPLETED not in wanted.states:
        return _scan_unfinished(cursor, wanted, after, limit, now)
    conditions, values = _conditions(wanted)
    if after is not None:
        conditions.append("id > ?")
        values.append(after)
    statement = " ".join(
        ("SELECT", COLUMNS, "FROM onceward_records WHERE", " AND ".join(conditions) or "TRUE", "ORDER BY id LIMIT ?")
    )
    rows = cursor.execute(statement, [*values, limit + 1]).fetchall()
    records, unreadable = records_from_rows(rows[:limit])
    return Page(records, rows[limit - 1][0] if len(rows) > limit else None, now, unreadable)


def _scan_unfinished(cursor: Cursor, wanted: Filter, after: bytes | None, limit: int, now: int) -> Page:
    """Return a page of records that are not COMPLETED: state by state, each by its last claim, so without a sort."""
    conditions, values = _conditions(replace(wanted, states=()))
    states = sorted({state.value for state in wanted.states})
    begin, token, number = (states[0], -1, -1) if after is None else _decode_position(after)
    where = " AND ".join(["state = ?", "(token, rowid) > (?, ?)", *conditions])
    statement = f"SELECT rowid, {COLUMNS} FROM onceward_records WHERE {where} ORDER BY token, rowid LIMIT ?"  # noqa: S608 (our own texts)
    rows: list[Row] = []
    for state in states:
        if state < begin or len(rows) > limit:
            continue
        position = (token, number) if state == begin else (-1, -1)
        rows += cursor.execute(statement, [state, *position, *values, limit + 1 - len(rows)]).fetchall()
    records, unreadable = records_from_rows(row[1:] for row in rows[:limit])
    if len(rows) <= limit:
        return Page(records, None, now, unreadable)
    last = rows[limit - 1]
    position_after = (last[1 + _STATE], last[1 + _TOKEN], last[0])
    return Page(records, msgspec.msgpack.encode(position_after), now, unreadable)


def first(cursor: Cursor, wanted: Filter, order: SortOrder, limit: int, now: int) -> Page:
    """Return the first records in an order. Only row ids are sorted: records may contain large results."""
    conditions, values = _conditions(wanted)
    order_by = _ORDER_BY[order]
    where = " AND ".join(conditions) or "TRUE"
    chosen = f"SELECT rowid FROM onceward_records WHERE {where} ORDER BY {order_by} LIMIT ?"  # noqa: S608 (our own texts)
    statement = f"SELECT {COLUMNS} FROM onceward_records WHERE rowid IN ({chosen}) ORDER BY {order_by}"  # noqa: S608 (as above)
    records, unreadable = records_from_rows(cursor.execute(statement, [*values, limit]).fetchall())
    return Page(records, None, now, unreadable)


def _conditions(wanted: Filter) -> tuple[list[str], list[Any]]:
    conditions: list[str] = []
    values: list[Any] = []
    if wanted.states:
        completed = "state IS NULL OR " if RecordState.COMPLETED in wanted.states else ""
        conditions.append(f"({completed}state IN ({', '.join('?' * len(wanted.states))}))")
        values.extend(state.value for state in wanted.states)
    if wanted.scope is not None:
        conditions.append("scope = ?")
        values.append(wanted.scope)
    if wanted.key is not None:
        conditions.append("key = ?")
        values.append(wanted.key)
    if wanted.updated_before is not None:
        conditions.append("updated_at < ?")
        values.append(wanted.updated_before)
    if wanted.prefix is not None:
        conditions.append("substr(key, 1, length(?)) = ?")
        values += (wanted.prefix, wanted.prefix)
    return conditions, values


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
