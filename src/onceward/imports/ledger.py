"""The progress of imports, in the database of the people: it commits together with them, or not at all.

`onceward_imports` has one row per file name. An import claims the content of the file there: PENDING with the progress
so far, then COMPLETED. Each batch first advances the progress from the value that it read. So if two processes import
the same file, one of them fails before it has changed anything. `onceward_import_rows` stores the fingerprints of rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import astuple

from onceward.people.tables import Tables

from .known_rows import SEPARATOR, KeyRows
from .summary import Counts

PENDING: Final = "PENDING"
COMPLETED: Final = "COMPLETED"

LEDGER_TABLE: Final = "onceward_import_rows"
CREATE_TABLES: Final = (
    """
CREATE TABLE IF NOT EXISTS {t}onceward_imports (
    name TEXT NOT NULL PRIMARY KEY, content TEXT NOT NULL, columns TEXT NOT NULL, state TEXT NOT NULL,
    cycle {big} NOT NULL, done {big} NOT NULL, created {big} NOT NULL, updated {big} NOT NULL, skipped {big} NOT NULL,
    rejected {big} NOT NULL, to_review {big} NOT NULL, rejects TEXT NOT NULL, rejects_size {big} NOT NULL,
    begun_at {big} NOT NULL, changed_at {big} NOT NULL
)""",
    """
CREATE TABLE IF NOT EXISTS {t}onceward_import_rows (
    name TEXT NOT NULL, key TEXT NOT NULL, fingerprints TEXT NOT NULL, cycle {big} NOT NULL, confirmed TEXT NOT NULL,
    PRIMARY KEY (name, key)
){narrow}""",
)
_COLUMNS: Final = (
    "name, content, columns, state, cycle, done, created, updated, skipped, rejected, to_review, rejects, rejects_size"
)
SELECT_ENTRY: Final = f"SELECT {_COLUMNS} FROM {{t}}onceward_imports WHERE name = ?"  # noqa: S608 (our own columns)
SELECT_SAME_CONTENT: Final = f"""
SELECT {_COLUMNS} FROM {{t}}onceward_imports
WHERE content = ? AND columns = ? AND state = 'COMPLETED' ORDER BY changed_at LIMIT 1
"""  # noqa: S608 (as above)
CLAIM: Final = f"""
INSERT INTO {{t}}onceward_imports AS known ({_COLUMNS}, begun_at, changed_at)
VALUES (?, ?, ?, 'PENDING', ?, 0, 0, 0, 0, 0, 0, ?, 0, ?, ?)
ON CONFLICT (name) DO UPDATE SET content = excluded.content, columns = excluded.columns, state = 'PENDING',
cycle = excluded.cycle, done = 0, created = 0, updated = 0, skipped = 0, rejected = 0, to_review = 0,
rejects = excluded.rejects, rejects_size = 0, begun_at = excluded.begun_at, changed_at = excluded.changed_at
WHERE known.cycle = excluded.cycle - 1 RETURNING name
"""  # noqa: S608 (as above)
ADVANCE: Final = """
UPDATE {t}onceward_imports SET done = ?, changed_at = ?
WHERE name = ? AND cycle = ? AND done = ? AND state = 'PENDING' RETURNING name
"""
UPDATE_COUNTS: Final = """
UPDATE {t}onceward_imports SET created = ?, updated = ?, skipped = ?, rejected = ?, to_review = ?,
rejects = ?, rejects_size = ? WHERE name = ?
"""
COMPLETE: Final = """
UPDATE {t}onceward_imports SET state = 'COMPLETED', changed_at = ?
WHERE name = ? AND cycle = ? AND done = ? AND state = 'PENDING' RETURNING name
"""
SELECT_ROWS: Final = """
SELECT r.key, r.fingerprints, r.cycle, r.confirmed
FROM {texts} CROSS JOIN {t}onceward_import_rows AS r WHERE r.name = ? AND r.key = wanted.value
"""
UPSERT_ROWS: Final = """
INSERT INTO {t}onceward_import_rows (name, key, fingerprints, cycle, confirmed) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (name, key) DO UPDATE
SET fingerprints = excluded.fingerprints, cycle = excluded.cycle, confirmed = excluded.confirmed
"""

CONFIRM_ROWS: Final = """
UPDATE {t}onceward_import_rows SET cycle = ?, confirmed = '1'
WHERE name = ? AND key IN (SELECT wanted.value FROM {texts})
"""


class ImportClaim(Struct, frozen=True):
    """The claim of an import: a content, read with these choices of columns, under a file name."""

    name: str
    content: str
    columns: str

    def matches(self, entry: LedgerEntry) -> bool:
        return (self.content, self.columns) == (entry.content, entry.columns)


class LedgerEntry(Struct, frozen=True):
    """How far the import of a file has come."""

    name: str
    content: str
    columns: str
    state: str
    cycle: int
    done: int
    counts: Counts
    rejects: str
    rejects_size: int


def find(tables: Tables, name: str) -> LedgerEntry | None:
    return _entry(tables.run(SELECT_ENTRY, name))


def names(tables: Tables) -> list[str]:
    """Return the names of all imports."""
    return [name for (name,) in tables.run("SELECT name FROM {t}onceward_imports ORDER BY name")]


def same_content(tables: Tables, wanted: ImportClaim) -> LedgerEntry | None:
    """Return a completed import of the same content under another name: the file was renamed."""
    return _entry(tables.run(SELECT_SAME_CONTENT, wanted.content, wanted.columns))


def claim(tables: Tables, before: LedgerEntry | None, wanted: ImportClaim, rejects: str) -> LedgerEntry | None:
    """Claim this content under this name, from its first row. Return None if the entry is no longer `before`."""
    cycle = 1 if before is None else before.cycle + 1
    now = _now()
    if not tables.run(CLAIM, wanted.name, wanted.content, wanted.columns, cycle, rejects, now, now):
        return None
    return LedgerEntry(wanted.name, wanted.content, wanted.columns, PENDING, cycle, 0, Counts(), rejects, 0)


def advance(tables: Tables, entry: LedgerEntry, done: int) -> bool:
    """Advance the progress; the first statement of each batch. Return False if another process has advanced it."""
    return bool(tables.run(ADVANCE, done, _now(), entry.name, entry.cycle, entry.done))


def save_counts(tables: Tables, entry: LedgerEntry) -> None:
    tables.run(UPDATE_COUNTS, *astuple(entry.counts), entry.rejects, entry.rejects_size, entry.name)


def complete(tables: Tables, entry: LedgerEntry) -> bool:
    return bool(tables.run(COMPLETE, _now(), entry.name, entry.cycle, entry.done))


def known_rows(tables: Tables, entry: LedgerEntry, keys: Iterable[str]) -> dict[str, KeyRows]:
    """Return the known rows of these keys. Confirmations by earlier imports do not count."""
    found = {}
    for key, fingerprints, cycle, confirmed in tables.run(SELECT_ROWS, sorted(set(keys)), entry.name):
        found[key] = KeyRows(fingerprints.split(SEPARATOR), int(confirmed, 16) if cycle == entry.cycle else 0)
    return found


def save_rows(tables: Tables, entry: LedgerEntry, rows: Mapping[str, KeyRows]) -> None:
    """Store the rows. Most keys have one unchanged row: one statement confirms them all."""
    unchanged = sorted(key for key, one in rows.items() if one.is_unchanged)
    if unchanged:
        tables.run(CONFIRM_ROWS, entry.cycle, entry.name, unchanged)
    tables.run_many(
        UPSERT_ROWS,
        [
            (entry.name, key, SEPARATOR.join(one.fingerprints), entry.cycle, f"{one.confirmed:x}")
            for key, one in sorted(rows.items())
            if not one.is_unchanged
        ],
    )


def _entry(rows: Sequence[tuple[Any, ...]]) -> LedgerEntry | None:
    if not rows:
        return None
    name, content, columns, state, cycle, done, *counts, rejects, rejects_size = rows[0]
    return LedgerEntry(name, content, columns, state, cycle, done, Counts(*counts), rejects, rejects_size)


def _now() -> int:
    return time.time_ns() // 1000
