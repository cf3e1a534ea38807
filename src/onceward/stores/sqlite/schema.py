"""The tables in the file, and their migrations.

A migration only adds (tables, columns with a default, indexes), so that an older Onceward can keep using the same file
as a newer one. Where that is impossible, the migration raises `min_reader`, and older versions refuse the file.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from onceward.errors import StoreBroken, VersionSkew
from onceward.protocol.capabilities import Schema
from onceward.protocol.hints import migrate_hint

TABLES = """
CREATE TABLE onceward_meta (
    name  TEXT NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT
;
CREATE TABLE onceward_records (
    id           BLOB    NOT NULL UNIQUE,
    scope        TEXT    NOT NULL,
    key          TEXT    NOT NULL,
    state        TEXT,
    token        INTEGER NOT NULL,
    nonce        BLOB,
    cycle        INTEGER,
    attempt      INTEGER,
    created_at   INTEGER,
    claimed_at   INTEGER,
    updated_at   INTEGER NOT NULL,
    renewed_at   INTEGER,
    lease_until  INTEGER,
    after_crash  INTEGER,
    max_attempts INTEGER,
    fingerprint  BLOB,
    arguments    TEXT,
    owner        TEXT,
    note         TEXT,
    ask_first    INTEGER,
    released     INTEGER,
    result       BLOB,
    digest       BLOB,
    stored       INTEGER,
    error_type   TEXT,
    error        TEXT,
    final        INTEGER,
    retry_at     INTEGER,
    valid_until  INTEGER,
    slide        INTEGER,
    min_reader   INTEGER
) STRICT
;
CREATE INDEX onceward_purgeable ON onceward_records (max(valid_until, token + 3600000001)) WHERE valid_until IS NOT NULL
;
CREATE INDEX onceward_unfinished ON onceward_records (state, token) WHERE state IS NOT NULL
;
CREATE VIEW onceward_keys AS SELECT
    scope, key, coalesce(state, 'COMPLETED') AS state, coalesce(attempt, 1) AS attempt,
    strftime('%Y-%m-%d %H:%M:%f', coalesce(created_at, token) / 1000000.0, 'unixepoch') AS created_at,
    strftime('%Y-%m-%d %H:%M:%f', coalesce(claimed_at, token) / 1000000.0, 'unixepoch') AS claimed_at,
    strftime('%Y-%m-%d %H:%M:%f', updated_at / 1000000.0, 'unixepoch') AS updated_at,
    strftime('%Y-%m-%d %H:%M:%f', lease_until / 1000000.0, 'unixepoch') AS lease_until,
    strftime('%Y-%m-%d %H:%M:%f', retry_at / 1000000.0, 'unixepoch') AS retry_at,
    strftime('%Y-%m-%d %H:%M:%f', valid_until / 1000000.0, 'unixepoch') AS valid_until,
    coalesce(owner, '') AS owner, coalesce(error_type, '') AS error_type, coalesce(error, '') AS error, note, token, id
FROM onceward_records
"""
"""NULL stands for the usual value, for example for the state COMPLETED: `stores/sql.py` says for which in each column.

`onceward_purgeable` holds the time from which a record may be purged: its end, but not before its token is an hour old.
`onceward_unfinished` stays small, because work completes; it serves listings, by the last claim, and finds abandoned
records.
`onceward_keys` is for people: the usual values written out, and times as text in UTC.
"""

AUDIT = """
CREATE TABLE onceward_audit (
    number       INTEGER PRIMARY KEY,
    at           INTEGER NOT NULL,
    verb         TEXT    NOT NULL,
    who          TEXT    NOT NULL,
    why          TEXT    NOT NULL DEFAULT '',
    detail       TEXT    NOT NULL DEFAULT '',
    id           BLOB    NOT NULL DEFAULT x'',
    scope        TEXT    NOT NULL DEFAULT '',
    key          TEXT    NOT NULL DEFAULT '',
    state_before TEXT    NOT NULL DEFAULT '',
    state_after  TEXT    NOT NULL DEFAULT '',
    token_before INTEGER NOT NULL DEFAULT 0,
    token_after  INTEGER NOT NULL DEFAULT 0,
    count        INTEGER NOT NULL DEFAULT 1
) STRICT
;
CREATE INDEX onceward_audit_at ON onceward_audit (at)
;
CREATE INDEX onceward_audit_id ON onceward_audit (id)
"""

LATEST_STATE = """
CREATE TABLE onceward_latest (
    number       INTEGER PRIMARY KEY,
    id           BLOB    NOT NULL UNIQUE,
    scope        TEXT    NOT NULL,
    entity       TEXT    NOT NULL,
    ordering     BLOB    NOT NULL,
    value        BLOB,
    updated_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    min_reader   INTEGER NOT NULL DEFAULT 1
) STRICT
;
CREATE INDEX onceward_latest_expiring ON onceward_latest (expires_at) WHERE expires_at IS NOT NULL
;
CREATE TABLE onceward_marks (
    id           BLOB    NOT NULL PRIMARY KEY,
    content      BLOB    NOT NULL,
    message      TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID
;
CREATE INDEX onceward_marks_expiring ON onceward_marks (expires_at)
"""
"""The latest state of entities, and the marks of known messages and events.

An entity without a value was deleted; its order is kept until it expires, so that older events do not restore it.
`number` is the row id: a state is updated by it without a search in the index of ids. Marks are narrow, and most arrive
roughly in the order of their ids, so the table is its own index.
"""

COUNTERS = """
CREATE TABLE onceward_counters (
    hour         INTEGER NOT NULL,
    process      BLOB    NOT NULL,
    number       INTEGER NOT NULL,
    counts       TEXT    NOT NULL,
    PRIMARY KEY (hour, process)
) STRICT, WITHOUT ROWID
"""
"""Counters: one row per process and hour, overwritten as the process keeps counting.

`hour` counts from 1970; `counts` is JSON, by scope and name.
"""

HISTORY = """
CREATE TABLE onceward_history (
    id           BLOB    NOT NULL,
    token        INTEGER NOT NULL,
    name         TEXT    NOT NULL,
    at           INTEGER NOT NULL,
    last_at      INTEGER NOT NULL,
    count        INTEGER NOT NULL DEFAULT 1,
    attempt      INTEGER NOT NULL DEFAULT 0,
    owner        TEXT    NOT NULL DEFAULT '',
    error_type   TEXT    NOT NULL DEFAULT '',
    error        TEXT    NOT NULL DEFAULT '',
    retry_at     INTEGER NOT NULL DEFAULT 0,
    detail       TEXT    NOT NULL DEFAULT '',
    PRIMARY KEY (id, token, name)
) STRICT, WITHOUT ROWID
"""
"""The history of keys, at most 50 events each. `last_at` is the time of the last of `count` equal events."""

MIGRATIONS: tuple[str, ...] = ("\n;\n".join(text.strip() for text in (TABLES, AUDIT, LATEST_STATE, COUNTERS, HISTORY)),)
"""Migration n leads from version n to n + 1. Never edit a released one."""

LATEST = len(MIGRATIONS)
STRICT_SINCE = (3, 37, 0)

Cursor = sqlite3.Cursor


def prepare(cursor: Cursor, name: str, *, migrate: bool) -> None:
    """Check the schema of the file, and migrate an older one in a single transaction. Safe if processes race."""
    version = _version(cursor)
    if version < LATEST:
        if not migrate:
            raise StoreBroken(
                f"{name} has schema version {version}, and this Onceward needs {LATEST}",
                hint=f"{migrate_hint(name)}, or open it once with migrate=True",
            )
        _migrate(cursor)
        version = _version(cursor)
    if version > LATEST and _meta(cursor, "min_reader") > LATEST:
        raise VersionSkew(
            f"{name} has schema version {version}; this Onceward supports {LATEST} and must not use it",
            hint="upgrade Onceward in this process",
        )


def examine(path: str, timeout: float) -> Schema:
    """Return the file's schema version and the missing migrations, without creating or changing the file."""
    file = Path(path)
    if not file.exists():
        return _schema(0, 0)
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=timeout)) as connection:
        return examine_open(connection.cursor())


def examine_open(cursor: Cursor) -> Schema:
    """Return the schema version and the missing migrations of an open database."""
    version = _version(cursor)
    return _schema(version, _meta(cursor, "min_reader") if version else 0)


def _schema(version: int, min_reader: int) -> Schema:
    return Schema(version, LATEST, min_reader, tuple(statements(version)) if version < LATEST else ())


def _version(cursor: Cursor) -> int:
    if not cursor.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'onceward_meta'").fetchall():
        return 0
    return _meta(cursor, "schema_version")


def _meta(cursor: Cursor, name: str) -> int:
    rows = cursor.execute("SELECT value FROM onceward_meta WHERE name = ?", (name,)).fetchall()
    return int(rows[0][0]) if rows else 0


def _migrate(cursor: Cursor) -> None:
    cursor.execute("BEGIN IMMEDIATE")
    for statement in statements(_version(cursor)):  # read the version again: another process may have migrated
        cursor.execute(statement)
    cursor.execute("COMMIT")


def statements(version: int) -> list[str]:
    """Return the statements from this version to the latest, to be executed in one transaction."""
    changes = [one.strip() for migration in MIGRATIONS[version:] for one in migration.split("\n;\n")]
    version_rows = [
        f"INSERT INTO onceward_meta (name, value) VALUES ('{name}', {value})"  # noqa: S608 (both are ours)
        " ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)"
        for name, value in (("schema_version", LATEST), ("min_reader", 1))
    ]
    return [_without_strict(one) for one in changes] + version_rows


def _without_strict(statement: str) -> str:
    """Return the statement without STRICT for SQLite before 3.37, with a CHECK on the columns id and token."""
    if sqlite3.sqlite_version_info >= STRICT_SINCE:
        return statement
    plain = statement.replace(") STRICT, WITHOUT ROWID", ") WITHOUT ROWID").removesuffix(" STRICT")
    return plain.replace("BLOB    NOT NULL UNIQUE", "BLOB    NOT NULL UNIQUE CHECK (typeof(id) = 'blob')").replace(
        "token        INTEGER NOT NULL", "token        INTEGER NOT NULL CHECK (typeof(token) = 'integer')"
    )
