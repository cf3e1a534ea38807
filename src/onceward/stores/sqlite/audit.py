"""The audit trail: a separate table, written in the same transaction as the change."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from onceward.protocol.audit import AUDIT_RETENTION, AuditEntry, AuditFilter

Cursor = sqlite3.Cursor

FIELDS = AuditEntry.__struct_fields__
COLUMNS = ", ".join(FIELDS)

_INSERT = f"INSERT INTO onceward_audit ({COLUMNS}) VALUES ({', '.join('?' * len(FIELDS))})"  # noqa: S608 (names of fields)
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
    conditions: list[str] = []
    values: list[Any] = []
    for name in ("id", "scope", "key"):
        value = getattr(wanted, name)
        if value is not None:
            conditions.append(f"{name} = ?")
            values.append(value)
    if wanted.ids:
        conditions.append(f"id IN ({', '.join('?' * len(wanted.ids))})")
        values += wanted.ids
    if wanted.within is not None:
        conditions.append("at > ?")
        values.append(now - wanted.within)
    statement = " ".join(
        (
            "SELECT",
            COLUMNS,
            "FROM onceward_audit WHERE",
            " AND ".join(conditions) or "TRUE",
            "ORDER BY number DESC LIMIT ?",
        )
    )
    return [AuditEntry(*row) for row in cursor.execute(statement, [*values, limit]).fetchall()]


def has_old(cursor: Cursor, now: int) -> bool:
    return bool(cursor.execute(_OLD, (now - AUDIT_RETENTION,)).fetchall())


def purge(cursor: Cursor, now: int, limit: int) -> None:
    cursor.execute(_PURGE, (now - AUDIT_RETENTION, limit))
