"""The audit trail: a separate table, written in the same transaction as the change."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from onceward.protocol.audit import AUDIT_RETENTION, AuditEntry, AuditFilter
from onceward.stores import sql_reading
from onceward.stores.sql_reading import AUDIT_FIELDS as FIELDS
from onceward.stores.sql_reading import without_waiting

from .reader import SQLiteReader

Cursor = sqlite3.Cursor

_INSERT = f"INSERT INTO onceward_audit ({', '.join(FIELDS)}) VALUES ({', '.join('?' * len(FIELDS))})"  # noqa: S608 (names of fields)
_RAISE_COUNT = "UPDATE onceward_audit SET count = count + ?, at = ? WHERE number = ?"
_OLD = "SELECT 1 FROM onceward_audit WHERE at <= ? LIMIT 1"
_PURGE = "DELETE FROM onceward_audit WHERE number IN (SELECT number FROM onceward_audit WHERE at <= ? LIMIT ?)"


def write(cursor: Cursor, entries: Sequence[AuditEntry]) -> int:
    """Insert the entries in the caller's transaction. Return the number of the last one."""
    for entry in entries:
        cursor.execute(_INSERT, [getattr(entry, name) for name in FIELDS])
    return cursor.lastrowid or 0


def raise_count(cursor: Cursor, number: int, count: int, now: int) -> None:
    """Raise the count of an entry: a purge that continues in a second transaction is still one operation."""
    cursor.execute(_RAISE_COUNT, (count, now, number))


def find(cursor: Cursor, wanted: AuditFilter, limit: int, now: int) -> list[AuditEntry]:
    return without_waiting(sql_reading.audit(SQLiteReader(cursor, now), wanted, limit))


def has_old(cursor: Cursor, now: int) -> bool:
    return bool(cursor.execute(_OLD, (now - AUDIT_RETENTION,)).fetchall())


def purge(cursor: Cursor, now: int, limit: int) -> None:
    cursor.execute(_PURGE, (now - AUDIT_RETENTION, limit))
