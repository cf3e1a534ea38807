"""Apply the state table to rows: read, let `protocol.transitions` decide, write. The caller holds the lock."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import compress
from operator import ne
from typing import Any, TypeVar

from onceward.errors import ConfigurationError
from onceward.protocol import transitions
from onceward.protocol.audit import AuditSignature, audit_entries
from onceward.protocol.record import READER, Record
from onceward.protocol.requests import Answer, AnyRequest, AnySettlement, ClaimRequest, ExpectedRecord, Renewal, Verdict
from onceward.stores.sql import COLUMNS, FIELDS, Row, record_from_row, record_or_stub, row_from_record

from . import audit, history
from .bulk_statement import BulkStatement
from .rows import COLUMNS_WITHOUT_RESULT, COMPARED, WITHOUT_DECLARED_TYPES, storable

Cursor = sqlite3.Cursor
Columns = tuple[int, ...]
Request = TypeVar("Request", ClaimRequest, Renewal, AnySettlement, AnyRequest)
Change = Callable[[Record | None, Request, int], tuple[Record | None, Verdict]]
Found = dict[bytes, Record]
NOTHING_CACHED: Mapping[bytes, Record | None] = {}
MAX_CACHED = 1024
"""The maximum number of missing keys, and of granted records, in the cache."""
_NOT_CACHED = object()
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 500)
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
            rows = cursor.execute(self._one, (bytearray(ids[0]),)).fetchall()
            return {ids[0]: read(rows[0])} if rows else {}
        found: Found = {}
        ordered = list(map(bytearray, sorted(ids)))  # neighbours in the index share a page
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


class StaleCache(Exception):
    """A cached record is no longer the stored one. Nothing was written."""


class RecordCache:
    """The records that this store read or wrote last, so that it need not read them again.

    The store never trusts it: a statement based on it compares, and writes nothing if the stored record has changed.

    Hold the connection's lock to use it, except for `add_missing`, which is atomic.
    """

    __slots__ = ("_granted", "_missing")

    def __init__(self) -> None:
        self._missing: dict[bytes, None] = {}
        self._granted: dict[bytes, Record] = {}

    def add_missing(self, id: bytes) -> None:
        """Note that a lookup found no record of this key."""
        if len(self._missing) >= MAX_CACHED:  # lookups that no claim followed
            self._missing.clear()
        self._missing[id] = None

    def add(self, record: Record) -> None:
        """Cache a PENDING record: its owner will renew or settle it."""
        if len(self._granted) >= MAX_CACHED:
            del self._granted[next(iter(self._granted))]
        self._granted[record.id] = record

    def take(self, requests: Sequence[AnyRequest]) -> dict[bytes, Record | None]:
        """Remove and return the cached records of these requests. None: the key has no record."""
        taken: dict[bytes, Record | None] = {}
        for request in requests:
            id = request.id
            if type(request) is not ClaimRequest:
                record = self._granted.pop(id, None)
                if record is not None:
                    taken[id] = record
            elif self._missing.pop(id, _NOT_CACHED) is not _NOT_CACHED:
                taken[id] = None
        return taken


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
        _update(_ALL_COLUMNS, (), _ONLY_ID, _ONLY_ID).run(
            cursor, [(*row_from_record(record), record.id) for record in forgotten]
        )
    else:
        write(cursor, found, answers)
    history.delete(cursor, [record.id for record, _ in steps if record and record is not found[record.id]])
    if signed is not None:
        sign(cursor, signed, found, answers)
    return answers


def write_if_unchanged(cursor: Cursor, before: Record | None, after: Record) -> bool:
    """Write one record by one statement, unless the stored one is no longer `before`. Return whether it was written."""
    new = row_from_record(after)
    statement: BulkStatement | None
    if before is None:
        statement, values = _insertion(new)
    else:
        statement, values = _changes(row_from_record(before), new, _COMPARED)
        if statement is None:
            return True
    try:
        cursor.execute(statement.one, values)
    except (UnicodeEncodeError, OverflowError):
        return False
    return cursor.rowcount == 1


def _write(cursor: Cursor, found: Found, records: Sequence[Record], cached: Mapping[bytes, Record | None]) -> None:
    batches: dict[BulkStatement, list[list[Any]]] = {}
    for record in records:
        before, is_cached = found.get(record.id), record.id in cached
        new = row_from_record(record)
        statement: BulkStatement | None
        if before is None:
            statement, values = _insertion(new)
        else:
            statement, values = _changes(row_from_record(before), new, _COMPARED if is_cached else _ONLY_ID)
        if statement is not None:
            batches.setdefault(statement, []).append(values)
        elif is_cached:  # it would not be compared
            raise StaleCache
    for statement, rows in batches.items():
        if statement.run(cursor, rows) != len(rows) and cached:
            raise StaleCache


# ── statements ──────────────────────────────────────────────────────────────────────────────────────────────────
#
# Statements contain NULL as text, and bytes are bound as bytearray. For None and bytes, Python would search for an
# adapter each time, which takes longer than binding all other values of the row.


def _insertion(new: Row) -> tuple[BulkStatement, list[Any]]:
    """Return the INSERT of the columns that are not NULL, and its parameters."""
    columns: list[int] = []
    values: list[Any] = []
    for column, value in enumerate(new):
        if value is not None:
            columns.append(column)
            values.append(bytearray(value) if type(value) is bytes else value)
    return _insert(tuple(columns)), values


def _changes(old: Row, new: Row, compared: Columns) -> tuple[BulkStatement | None, list[Any]]:
    """Return the UPDATE of the columns that differ, and its parameters. None: no column differs.

    It applies only if the columns `compared` still have their old values. Writing only the columns that differ avoids
    index updates, and keeps the values of unknown columns.
    """
    changed: list[int] = []
    cleared: list[int] = []
    equal: list[int] = []
    values: list[Any] = []
    for column in compress(_ALL_COLUMNS, map(ne, old, new)):
        value = new[column]
        if value is None:
            cleared.append(column)
        else:
            changed.append(column)
            values.append(bytearray(value) if type(value) is bytes else value)
    if not changed and not cleared:
        return None, values
    for column in compared:
        value = old[column]
        if value is not None:
            equal.append(column)
            values.append(bytearray(value) if type(value) is bytes else value)
    return _update(tuple(changed), tuple(cleared), tuple(equal), compared), values


_ALL_COLUMNS = tuple(range(len(FIELDS)))
_COMPARED = tuple(map(FIELDS.index, COMPARED))
_ONLY_ID = (FIELDS.index("id"),)
_MAX_STATEMENTS = 256


@lru_cache(_MAX_STATEMENTS)
def _insert(columns: Columns) -> BulkStatement:
    """Return the INSERT of these columns, which writes nothing if the record exists."""
    names = ", ".join(FIELDS[column] for column in columns)
    many = f"INSERT INTO onceward_records ({names}) VALUES {{}} ON CONFLICT (id) DO NOTHING"  # noqa: S608 (names of fields)
    return BulkStatement(many.format(f"({', '.join('?' * len(columns))})"), many, len(columns))


@lru_cache(_MAX_STATEMENTS)
def _update(changed: Columns, cleared: Columns, equal: Columns, compared: Columns) -> BulkStatement:
    """Return the UPDATE that sets `changed`, sets `cleared` to NULL, and applies only if `compared` are unchanged.

    `equal` are those of `compared` that are not NULL. Parameters: the values of `changed` and of `equal`.
    """
    settings = [f"{FIELDS[column]} = {{}}" for column in changed]
    settings += [f"{FIELDS[column]} = NULL" for column in cleared]
    conditions = [f"{FIELDS[column]} = {{}}" for column in equal]
    conditions += [f"{FIELDS[column]} IS NULL" for column in compared if column not in equal]
    if compared is not _ONLY_ID:
        conditions.append(f"coalesce(min_reader, 1) <= {READER}")
    width = len(changed) + len(equal)
    parts = f"UPDATE onceward_records SET {', '.join(settings)}", f"WHERE {' AND '.join(conditions)}"  # noqa: S608 (names of fields)
    one = " ".join(parts).format(*"?" * width)
    many = " FROM (VALUES {{}}) AS new ".join(parts).format(*(f"new.column{n}" for n in range(1, width + 1)))
    return BulkStatement(one, many, width)
