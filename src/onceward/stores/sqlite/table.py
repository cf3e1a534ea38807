"""The state table applied to rows: read, let `protocol.transitions` decide, write what changed. The caller locks."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TypeVar

from onceward.errors import ConfigurationError
from onceward.protocol import transitions
from onceward.protocol.audit import Signature, entries_of
from onceward.protocol.record import READER, Record
from onceward.protocol.requests import Answer, AnyRequest, AnySettlement, ClaimRequest, Renewal, Seen, Verdict
from onceward.stores.sql import COLUMNS, FIELDS, Row, record_from_row, record_or_stub

from . import audit
from .bulk_statement import Statement
from .cache import StaleCache
from .rows import CLAIMED, LIGHT, WITHOUT_DECLARED_TYPES, Columns, bound, claimed, difference, note_text, storable

Cursor = sqlite3.Cursor
Request = TypeVar("Request", ClaimRequest, Renewal, AnySettlement, AnyRequest)
Change = Callable[[Record | None, Request, int], tuple[Record | None, Verdict]]
Found = dict[bytes, Record]
NOTHING: Mapping[bytes, Record | None] = {}
_SIZES = (1, 4, 16, 64, 256, 500)
"""Ids are looked up in statements of these sizes, filled up by repetition: few statements, each prepared once."""


class Selection:
    """`SELECT columns … WHERE id IN (…)` in each size."""

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


OURS = Selection(COLUMNS)
THEIRS = Selection(WITHOUT_DECLARED_TYPES)
WITHOUT_RESULTS = Selection(LIGHT)


def ids_of(requests: Sequence[Request]) -> list[bytes]:
    """The ids, each once: the second of two requests for a key would be judged by what the first one found."""
    ids = [request.id for request in requests]
    if len(ids) > 1 and len(set(ids)) < len(ids):
        raise ConfigurationError("a batch holds two requests for the same key", hint="send them one after the other")
    return ids


def judge(found: Found, change: Change[Request], requests: Sequence[Request], now: int) -> tuple[list[Answer], bool]:
    """The answers, and whether any record would have to be written."""
    answers = []
    changes = False
    for request in requests:
        before = found.get(request.id)
        record, verdict = change(before, request, now)
        changes = changes or record is not before
        answers.append(Answer(verdict, record, now))
    return answers, changes


def write(
    cursor: Cursor, found: Found, answers: Sequence[Answer], recalled: Mapping[bytes, Record | None] = NOTHING
) -> None:
    """Write the fields that the answers changed: records of `found` are updated, others are new.

    Those that were `recalled` instead of read just now are compared as they are written; raises Mistaken.
    """
    records = [
        answer.record for answer in answers if answer.record and answer.record is not found.get(answer.record.id)
    ]
    if recalled and not recalled.keys() <= {record.id for record in records}:  # nothing would compare the others
        raise StaleCache
    try:
        _write(cursor, found, records, recalled)
    except (UnicodeEncodeError, OverflowError):  # one that SQLite cannot hold must not spoil the others
        if recalled:
            raise StaleCache from None
        _write(cursor, found, [storable(record) for record in records], recalled)


def sign(cursor: Cursor, signed: Signature, found: Found, answers: Sequence[Answer]) -> None:
    """Note who made those changes, in the transaction that makes them."""
    audit.write(cursor, entries_of(signed, found.get, answers))


def free(
    cursor: Cursor, ids: Sequence[bytes], now: int, *, force: bool, seen: Mapping[bytes, Seen], signed: Signature | None
) -> list[Answer]:
    """Forget them. By force even what cannot be read: nobody knows what differs there, so all columns are written."""
    found = OURS.fetch(cursor, ids, record_or_stub if force else record_from_row)
    steps = [transitions.forget(found.get(id), now, force=force, seen=seen.get(id)) for id in ids]
    answers = [Answer(verdict, record, now) for record, verdict in steps]
    if force:
        changed = [record for record, _ in steps if record and record is not found[record.id]]
        _update(_EVERY).run(cursor, [(*bound(record), record.id) for record in changed])
    else:
        write(cursor, found, answers)
    if signed is not None:
        sign(cursor, signed, found, answers)
    return answers


def create(cursor: Cursor, record: Record) -> bool:
    """Write a new claim, unless its key has got a record by now; tells whether it was written."""
    try:
        row = claimed(record)
        if row is None:
            return False
        cursor.execute(_CREATE.one, row)
    except (UnicodeEncodeError, OverflowError):
        return False
    return cursor.rowcount == 1


def swap(cursor: Cursor, before: Record, after: Record) -> bool:
    """Write what changed in one record, unless it is another one by now; tells whether it was written."""
    try:
        columns, values = difference(before, after)
        if not columns:
            return True
        cursor.execute(_swap(columns).one, (*values, *_seen(before)))
    except (UnicodeEncodeError, OverflowError):
        return False
    return cursor.rowcount == 1


def _seen(before: Record) -> Row:
    """What `_swap` compares: its owner may have written twice in one microsecond, through two stores."""
    return (
        before.id,
        before.token,
        before.nonce,
        before.state._value_,
        before.updated_at,
        before.lease_until,
        int(before.released),
        note_text(before.note),
    )


def _write(cursor: Cursor, found: Found, records: Sequence[Record], recalled: Mapping[bytes, Record | None]) -> None:
    batches: dict[Statement, list[Row]] = {}
    for record in records:
        before = found.get(record.id)
        if before is None:
            row = claimed(record)
            statement, row = (_INSERT, bound(record)) if row is None else (_CREATE, row)
        else:
            columns, values = difference(before, record)
            if not columns:
                if record.id in recalled:  # nothing would compare it
                    raise StaleCache
                continue
            if record.id in recalled:
                statement, row = _swap(columns), (*values, *_seen(before))
            else:
                statement, row = _update(columns), (*values, record.id)
        batches.setdefault(statement, []).append(row)
    for statement, rows in batches.items():
        if statement.run(cursor, rows) != len(rows) and recalled:
            raise StaleCache


def _insert(columns: Sequence[str]) -> Statement:
    text = f"INSERT INTO onceward_records ({', '.join(columns)}) VALUES {{}} ON CONFLICT (id) DO NOTHING"  # noqa: S608 (names of fields)
    return Statement(text.format(f"({', '.join('?' * len(columns))})"), text, len(columns))


_CREATE = _insert(FIELDS[:CLAIMED])
_INSERT = _insert(FIELDS)
_EVERY = tuple(range(len(FIELDS)))


@cache
def _update(columns: Columns) -> Statement:
    """Bound are the new values and the id."""
    return _changing(columns, ("id = ",))


@cache
def _swap(columns: Columns) -> Statement:
    """The same for those that are still as `_seen`."""
    return _changing(columns, _SEEN, f" AND min_reader <= {READER}")


_SEEN = (
    "id = ", "token = ", "nonce = ", "state = ", "updated_at = ", "lease_until IS ", "released = ", "note IS "
)  # fmt: skip


def _changing(columns: Columns, seen: Sequence[str], more: str = "") -> Statement:
    names = [FIELDS[n] for n in columns]
    one = f"UPDATE onceward_records SET {', '.join(f'{name} = ?' for name in names)} WHERE "  # noqa: S608 (names of fields)
    many = ", ".join(f"{name} = new.column{n}" for n, name in enumerate(names, 1))
    compared = " AND ".join(f"{part}new.column{n}" for n, part in enumerate(seen, len(names) + 1))
    return Statement(
        one + " AND ".join(f"{part}?" for part in seen) + more,
        f"UPDATE onceward_records SET {many} FROM (VALUES {{}}) AS new WHERE {compared}{more}",  # noqa: S608 (names of fields)
        len(names) + len(seen),
    )
