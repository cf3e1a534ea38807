"""The state table applied to rows: read, let `model.transitions` decide, write what changed. The caller locks."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TypeVar

from onceward.errors import ConfigurationError
from onceward.model import transitions
from onceward.model.audit import Signature, entries_of
from onceward.model.record import Answer, ClaimRequest, Record, Renewal, Seen, Verdict
from onceward.ports import AnySettlement

from . import audit
from .rows import (
    COLUMNS,
    LIGHT,
    UNWRITTEN,
    WITHOUT_DECLARED_TYPES,
    WRITTEN,
    Row,
    record_of,
    salvaged,
    storable,
    values_of,
)

Cursor = sqlite3.Cursor
Request = TypeVar("Request", ClaimRequest, Renewal, AnySettlement)
Change = Callable[[Record | None, Request, int], tuple[Record | None, Verdict]]
Found = dict[bytes, Record]
Columns = tuple[int, ...]
Statement = Callable[[Columns], str]

_POSITIONS = range(len(WRITTEN) - 1)

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

    def fetch(self, cursor: Cursor, ids: Sequence[bytes], read: Callable[[Row], Record] = record_of) -> Found:
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


def write(cursor: Cursor, found: Found, answers: Sequence[Answer]) -> None:
    """Write the fields that the answers changed: records of `found` are updated, others are new."""
    records = [
        answer.record for answer in answers if answer.record and answer.record is not found.get(answer.record.id)
    ]
    try:
        _write(cursor, found, records, _insert)
    except (UnicodeEncodeError, OverflowError):  # one that SQLite cannot hold must not spoil the others
        _write(cursor, found, [storable(record) for record in records], _insert_missing)


def sign(cursor: Cursor, signed: Signature, found: Found, answers: Sequence[Answer]) -> None:
    """Note who made those changes, in the transaction that makes them."""
    audit.write(cursor, entries_of(signed, found.get, answers))


def free(
    cursor: Cursor, ids: Sequence[bytes], now: int, *, force: bool, seen: Mapping[bytes, Seen], signed: Signature | None
) -> list[Answer]:
    """Forget them. By force even what cannot be read: nobody knows what differs there, so all columns are written."""
    found = OURS.fetch(cursor, ids, salvaged if force else record_of)
    steps = [transitions.forget(found.get(id), now, force=force, seen=seen.get(id)) for id in ids]
    answers = [Answer(verdict, record, now) for record, verdict in steps]
    if force:
        changed = [record for record, _ in steps if record and record is not found[record.id]]
        cursor.executemany(_update(tuple(_POSITIONS)), [values_of(record) for record in changed])
    else:
        write(cursor, found, answers)
    if signed is not None:
        sign(cursor, signed, found, answers)
    return answers


def create(cursor: Cursor, answers: Sequence[Answer]) -> bool:
    """Write the one record that the answers hold, unless its key has got one by now; tells whether it was written."""
    records = [answer.record for answer in answers if answer.record]
    try:
        _write(cursor, {}, records, _insert_missing)
    except (UnicodeEncodeError, OverflowError):
        _write(cursor, {}, [storable(record) for record in records], _insert_missing)
    return cursor.rowcount == 1


def _write(cursor: Cursor, found: Found, records: Sequence[Record], insert: Statement) -> None:
    """Only fields that differ are named: fewer to bind, no index touched in vain, and unknown columns survive."""
    batches: dict[tuple[Statement, Columns], list[Row]] = {}
    for record in records:
        before = found.get(record.id)
        was, values = UNWRITTEN if before is None else values_of(before), values_of(record)
        columns = tuple([n for n in _POSITIONS if was[n] != values[n]])
        if not columns:
            continue
        row = (*[values[n] for n in columns], record.id)
        batches.setdefault((_update if before else insert, columns), []).append(row)
    for (statement, columns), rows in batches.items():
        cursor.executemany(statement(columns), rows)


@cache
def _update(columns: Columns) -> str:
    changes = ", ".join(f"{WRITTEN[n]} = ?" for n in columns)
    return f"UPDATE onceward_records SET {changes} WHERE id = ?"  # noqa: S608 (names of fields)


@cache
def _insert(columns: Columns) -> str:
    names = ", ".join([*(WRITTEN[n] for n in columns), "id"])
    return f"INSERT INTO onceward_records ({names}) VALUES ({', '.join('?' * (len(columns) + 1))})"  # noqa: S608 (as above)


@cache
def _insert_missing(columns: Columns) -> str:
    return f"{_insert(columns)} ON CONFLICT (id) DO NOTHING"
