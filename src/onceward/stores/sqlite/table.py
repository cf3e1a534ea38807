"""Apply the state table to rows: read, let `protocol.transitions` decide, write. The caller holds the lock."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from onceward.errors import ConfigurationError
from onceward.protocol import transitions
from onceward.protocol.audit import AuditSignature, audit_entries
from onceward.protocol.record import READER, Record
from onceward.protocol.requests import Answer, AnyRequest, AnySettlement, ClaimRequest, ExpectedRecord, Renewal, Verdict
from onceward.stores.sql import COLUMNS, FIELDS, Row, record_from_row, record_or_stub, row_from_record

from . import audit, history
from .bulk_statement import BulkStatement
from .cache import StaleCache
from .rows import COLUMNS_WITHOUT_RESULT, COMPARED, WITHOUT_DECLARED_TYPES, compared_values, storable

Cursor = sqlite3.Cursor
Columns = tuple[int, ...]
Request = TypeVar("Request", ClaimRequest, Renewal, AnySettlement, AnyRequest)
Change = Callable[[Record | None, Request, int], tuple[Record | None, Verdict]]
Found = dict[bytes, Record]
NOTHING_CACHED: Mapping[bytes, Record | None] = {}
_SIZES = (1, 4, 16, 64, 256, 500)
"""Numbers of ids per lookup, padded by repeating the last id: few distinct statements, each prepared once."""


class Selection:
    """`SELECT columns … WHERE id IN (…)`, one statement per size."""

    def __init__(self, columns: str) -> None:
        self._one = f"SELECT {columns} FROM onceward_records WHERE id = ?"  # noqa: S608 (names of fields)
        self._many = {
            size: f"SELECT {columns} FROM onceward_records WHERE id IN ({', '.join('?' * size)})"  # noqa: S608 (as above)
            for size in _SIZES
        }

    def fetch(self, cursor: Cursor, ids: Sequence[bytes], read: Callable[[Row], Record] = record_from_row) -> Found:
        if len(ids) == 1:
            return {row[0]: read(row) for row in cursor.execute(self._one, ids).fetchall()}
        found: Found = {}
        ordered = sorted(ids)  # neighbours in the index share a page
        for start in range(0, len(ordered), _SIZES[-1]):
            chunk = ordered[start : start + _SIZES[-1]]
            size = next(size for size in _SIZES if size >= len(chunk))
            chunk += chunk[-1:] * (size - len(chunk))
            for row in cursor.execute(self._many[size], chunk).fetchall():
                found[row[0]] = read(row)
        return found


SELECT_RECORDS = Selection(COLUMNS)
SELECT_ON_CALLER_CONNECTION = Selection(WITHOUT_DECLARED_TYPES)
SELECT_WITHOUT_RESULTS = Selection(COLUMNS_WITHOUT_RESULT)


def ids_of(requests: Sequence[Request]) -> list[bytes]:
    """Return the ids. Raise if one occurs twice: the second request would not see the change of the first."""
    ids = [request.id for request in requests]
    if len(ids) > 1 and len(set(ids)) < len(ids):
        raise ConfigurationError("a batch contains two requests for the same key", hint="send them one after the other")
    return ids


def compute_answers(
    found: Found, change: Change[Request], requests: Sequence[Request], now: int
) -> tuple[list[Answer], bool]:
    """Return the answers, and whether any record has to be written."""
    answers = []
    changes = False
    for request in requests:
        before = found.get(request.id)
        record, verdict = change(before, request, now)
        changes = changes or record is not before
        answers.append(Answer(verdict, record, now))
    return answers, changes


def write(
    cursor: Cursor, found: Found, answers: Sequence[Answer], cached: Mapping[bytes, Record | None] = NOTHING_CACHED
) -> None:
    """Write the fields that the answers changed: records in `found` are updated, others are inserted.

    Records that come from the cache (`cached`) are compared as they are written; if one changed, raises StaleCache.
    """
    records = [
        answer.record for answer in answers if answer.record and answer.record is not found.get(answer.record.id)
    ]
    if cached and not cached.keys() <= {record.id for record in records}:  # the others would not be compared
        raise StaleCache
    try:
        _write(cursor, found, records, cached)
    except (UnicodeEncodeError, OverflowError):  # one value that SQLite cannot store must not fail the other records
        if cached:
            raise StaleCache from None
        _write(cursor, found, [storable(record) for record in records], cached)


def sign(cursor: Cursor, signed: AuditSignature, found: Found, answers: Sequence[Answer]) -> None:
    """Add the audit entries of these changes, in the same transaction."""
    audit.write(cursor, audit_entries(signed, found.get, answers))


def forget(
    cursor: Cursor,
    ids: Sequence[bytes],
    now: int,
    *,
    force: bool,
    seen: Mapping[bytes, ExpectedRecord],
    signed: AuditSignature | None,
) -> list[Answer]:
    """Forget the records. `force` includes undecodable ones: what differs is unknown, so all columns are written."""
    found = SELECT_RECORDS.fetch(cursor, ids, record_or_stub if force else record_from_row)
    steps = [transitions.forget(found.get(id), now, force=force, seen=seen.get(id)) for id in ids]
    answers = [Answer(verdict, record, now) for record, verdict in steps]
    if force:
        forgotten = [record for record, _ in steps if record and record is not found[record.id]]
        _update(_ALL_COLUMNS).run(cursor, [(*row_from_record(record), record.id) for record in forgotten])
    else:
        write(cursor, found, answers)
    history.delete(cursor, [record.id for record, _ in steps if record and record is not found[record.id]])
    if signed is not None:
        sign(cursor, signed, found, answers)
    return answers


def write_if_unchanged(cursor: Cursor, before: Record | None, after: Record) -> bool:
    """Write one record by one statement, unless the stored one is no longer `before`. Return whether it was written."""
    try:
        if before is None:
            cursor.execute(_INSERT.one, row_from_record(after))
        else:
            statement, row = _changes(before, after, if_unchanged=True)
            if statement is None:
                return True
            cursor.execute(statement.one, row)
    except (UnicodeEncodeError, OverflowError):
        return False
    return cursor.rowcount == 1


def _write(cursor: Cursor, found: Found, records: Sequence[Record], cached: Mapping[bytes, Record | None]) -> None:
    batches: dict[BulkStatement, list[Row]] = {}
    for record in records:
        before, is_cached = found.get(record.id), record.id in cached
        statement: BulkStatement | None
        if before is None:
            statement, row = _INSERT, row_from_record(record)
        else:
            statement, row = _changes(before, record, if_unchanged=is_cached)
        if statement is not None:
            batches.setdefault(statement, []).append(row)
        elif is_cached:  # it would not be compared
            raise StaleCache
    for statement, rows in batches.items():
        if statement.run(cursor, rows) != len(rows) and cached:
            raise StaleCache


def _changes(before: Record, after: Record, *, if_unchanged: bool) -> tuple[BulkStatement | None, Row]:
    """Return the UPDATE of the columns that differ, and its parameters. None: no column differs.

    Writing only those columns spares indexes and keeps unknown columns.
    """
    old, new = row_from_record(before), row_from_record(after)
    columns: list[int] = []
    values: list[Any] = []
    for column, value in enumerate(new):
        if value != old[column]:
            columns.append(column)
            values.append(value)
    if not columns:
        return None, ()
    if if_unchanged:
        return _update_if_unchanged(tuple(columns)), (*values, *compared_values(old))
    return _update(tuple(columns)), (*values, before.id)


_ALL_COLUMNS = tuple(range(len(FIELDS)))


_INSERT_MANY = f"INSERT INTO onceward_records ({COLUMNS}) VALUES {{}} ON CONFLICT (id) DO NOTHING"  # noqa: S608 (names of fields)
_INSERT = BulkStatement(_INSERT_MANY.format(f"({', '.join('?' * len(FIELDS))})"), _INSERT_MANY, len(FIELDS))


@cache
def _update(columns: Columns) -> BulkStatement:
    """Return the UPDATE of these columns. Parameters: the new values and the id."""
    return _update_statement(columns, ("id = ",))


@cache
def _update_if_unchanged(columns: Columns) -> BulkStatement:
    """Return the UPDATE that applies only if the record still has the values of `compared_values`."""
    return _update_statement(columns, _UNCHANGED, f" AND coalesce(min_reader, 1) <= {READER}")


_UNCHANGED = tuple(f"{name} = " if name == "id" else f"{name} IS " for name in COMPARED)


def _update_statement(columns: Columns, conditions: Sequence[str], extra_condition: str = "") -> BulkStatement:
    names = [FIELDS[n] for n in columns]
    one = f"UPDATE onceward_records SET {', '.join(f'{name} = ?' for name in names)} WHERE "  # noqa: S608 (names of fields)
    many = ", ".join(f"{name} = new.column{n}" for n, name in enumerate(names, 1))
    compared = " AND ".join(f"{part}new.column{n}" for n, part in enumerate(conditions, len(names) + 1))
    return BulkStatement(
        one + " AND ".join(f"{part}?" for part in conditions) + extra_condition,
        f"UPDATE onceward_records SET {many} FROM (VALUES {{}}) AS new WHERE {compared}{extra_condition}",  # noqa: S608 (names of fields)
        len(names) + len(conditions),
    )
