"""List records for people, newest first. Searches walk an index and visit a limited number of records.

Unfinished records are in the order of their last claims. All records together are in the order in which their keys
were first stored: an index by time would cost 19 bytes per key.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from onceward.protocol.listing import UNFINISHED, ListingFilter, ListingPage
from onceward.protocol.record import RecordState
from onceward.stores.sql import Row, records_from_rows
from onceward.stores.sql_listing import (
    MAX_VISITED,
    FoundRows,
    Position,
    decode_position,
    filter_conditions,
    merged_page,
    searched_states,
)

from .rows import COLUMNS_WITHOUT_RESULT, MAX_INTEGER

Cursor = sqlite3.Cursor
START: Position = (MAX_INTEGER, MAX_INTEGER)


def newest(cursor: Cursor, wanted: ListingFilter, after: bytes | None, limit: int, now: int) -> ListingPage:
    """Return a page of matching records."""
    start = START if after is None else decode_position(after, tuple[int, int])
    found = [_search(cursor, wanted, state, start, limit) for state in searched_states(wanted)]
    return merged_page(found, wanted, limit, now)


def _search(cursor: Cursor, wanted: ListingFilter, state: RecordState | None, start: Position, limit: int) -> FoundRows:
    visited, values = _visited(wanted, state, start)
    texts, filters = _conditions(wanted, state)
    statement = (
        f"SELECT * FROM (SELECT token AS claimed, rowid AS number, {COLUMNS_WITHOUT_RESULT} {visited} LIMIT ?)"  # noqa: S608 (our own texts)
        f" WHERE {texts} LIMIT ?"
    )
    rows = cursor.execute(statement, [*values, MAX_VISITED, *filters, limit + 1]).fetchall()
    found = [(_position(row, state), row[2:]) for row in rows]
    if len(found) > limit:
        return FoundRows(found, None, None)
    last = f"SELECT token, rowid {visited} LIMIT 1 OFFSET ?"
    ends = cursor.execute(last, [*values, MAX_VISITED - 1]).fetchall()
    return FoundRows(found, _position(ends[0], state) if ends else None, ends[0][0] if ends else None)


def _visited(wanted: ListingFilter, state: RecordState | None, start: Position) -> tuple[str, list[Any]]:
    """Return the clauses that walk the index from the position."""
    if state is None:
        return "FROM onceward_records WHERE rowid < ? ORDER BY rowid DESC", [start[1]]
    conditions, values = ["state = ?", "(token, rowid) < (?, ?)"], [state.value, *start]
    if wanted.claimed_before is not None:
        conditions.append("token < ?")
        values.append(wanted.claimed_before)
    if wanted.claimed_since is not None:
        conditions.append("token >= ?")
        values.append(wanted.claimed_since)
    return f"FROM onceward_records WHERE {' AND '.join(conditions)} ORDER BY token DESC, rowid DESC", values


def _conditions(wanted: ListingFilter, state: RecordState | None) -> tuple[str, list[Any]]:
    conditions = filter_conditions(wanted, "instr", "lower(hex(id))")
    if state is None:
        others = [one.value for one in wanted.states if one is not RecordState.COMPLETED]
        conditions.append((f"(state IS NULL OR state IN ({', '.join(['{}'] * len(others))}))", others))
        for name, sign in (("claimed_since", ">="), ("claimed_before", "<")):
            instant = getattr(wanted, name)
            if instant is not None:
                conditions.append((f"claimed {sign} {{}}", [instant]))
    texts = [text.replace("{}", "?") for text, _ in conditions]
    return " AND ".join(texts) or "TRUE", [value for _, values in conditions for value in values]


def _position(row: Row, state: RecordState | None) -> Position:
    """Return the position of a row. All records together are ordered by row id alone."""
    return (0 if state is None else row[0]), row[1]


def oldest_pending(cursor: Cursor, wanted: ListingFilter, limit: int, now: int) -> ListingPage:
    """Return the PENDING records that were claimed first."""
    conditions = filter_conditions(wanted, "instr", "lower(hex(id))")
    texts = " AND ".join(text.replace("{}", "?") for text, _ in conditions) or "TRUE"
    statement = (
        f"SELECT * FROM (SELECT {COLUMNS_WITHOUT_RESULT} FROM onceward_records"  # noqa: S608 (our own texts)
        f" WHERE state = 'PENDING' ORDER BY token LIMIT ?) WHERE {texts} LIMIT ?"
    )
    values = [value for _, some in conditions for value in some]
    records, unreadable = records_from_rows(cursor.execute(statement, [MAX_VISITED, *values, limit]).fetchall())
    return ListingPage(records, None, now, unreadable=unreadable)


def count_unfinished(cursor: Cursor, limit: int) -> dict[RecordState, int]:
    """Count the records of each unfinished state, up to the limit, in one query."""
    counts = ", ".join(
        f"(SELECT count(*) FROM (SELECT 1 FROM onceward_records WHERE state = '{state.value}' LIMIT ?))"  # noqa: S608 (our own texts)
        for state in UNFINISHED
    )
    numbers = cursor.execute(f"SELECT {counts}", (limit,) * len(UNFINISHED)).fetchone()
    return dict(zip(UNFINISHED, numbers, strict=True))
