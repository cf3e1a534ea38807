"""What is known about imports, in the database where the people are: it commits with them, or not at all.

There is one row a file name in `onceward_imports`. Its content is claimed there: PENDING with the progress so far, then
COMPLETED. Each batch first moves the progress on from where it was seen, so of two that import one file at once, one is
told that it is not alone, before it has changed anything. `onceward_import_rows` knows the rows by their fingerprints.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from msgspec import Struct

from .known_rows import SEPARATOR, Places
from .summary import Counts

PENDING: Final = "PENDING"
COMPLETED: Final = "COMPLETED"

MAKE: Final = (
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
FIND: Final = f"SELECT {_COLUMNS} FROM {{t}}onceward_imports WHERE name = ?"  # noqa: S608 (our own columns)
SAME: Final = f"""
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
MOVE_ON: Final = """
UPDATE {t}onceward_imports SET done = ?, changed_at = ?
WHERE name = ? AND cycle = ? AND done = ? AND state = 'PENDING' RETURNING name
"""
COUNT: Final = """
UPDATE {t}onceward_imports SET created = ?, updated = ?, skipped = ?, rejected = ?, to_review = ?,
rejects = ?, rejects_size = ? WHERE name = ?
"""
COMPLETE: Final = """
UPDATE {t}onceward_imports SET state = 'COMPLETED', changed_at = ?
WHERE name = ? AND cycle = ? AND done = ? AND state = 'PENDING' RETURNING name
"""
KNOWN: Final = """
SELECT r.key, r.fingerprints, r.cycle, r.confirmed
FROM {texts} CROSS JOIN {t}onceward_import_rows AS r WHERE r.name = ? AND r.key = wanted.value
"""
KEEP: Final = """
INSERT INTO {t}onceward_import_rows (name, key, fingerprints, cycle, confirmed) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (name, key) DO UPDATE
SET fingerprints = excluded.fingerprints, cycle = excluded.cycle, confirmed = excluded.confirmed
"""

CONFIRM: Final = """
UPDATE {t}onceward_import_rows SET cycle = ?, confirmed = '1'
WHERE name = ? AND key IN (SELECT wanted.value FROM {texts})
"""


class ImportTransaction(Protocol):
    """An open transaction on the database of people: the part of it that is used here."""

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]: ...
    def many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None: ...


class ImportClaim(Struct, frozen=True):
    """This content, read with these choices of columns, under this name."""

    name: str
    content: str
    columns: str

    def holds(self, entry: LedgerEntry) -> bool:
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


def find(tx: ImportTransaction, name: str) -> LedgerEntry | None:
    return _entry(tx.rows(FIND, name))


def same_content(tx: ImportTransaction, wanted: ImportClaim) -> LedgerEntry | None:
    """An import of this very content under another name: a renamed file is the same file."""
    return _entry(tx.rows(SAME, wanted.content, wanted.columns))


def claim(tx: ImportTransaction, before: LedgerEntry | None, wanted: ImportClaim, rejects: str) -> LedgerEntry | None:
    """This content under this name, from its first row on. None: it is not as it was seen `before` any more."""
    cycle = 1 if before is None else before.cycle + 1
    now = _now()
    if not tx.rows(CLAIM, wanted.name, wanted.content, wanted.columns, cycle, rejects, now, now):
        return None
    return LedgerEntry(wanted.name, wanted.content, wanted.columns, PENDING, cycle, 0, Counts(), rejects, 0)


def move_on(tx: ImportTransaction, entry: LedgerEntry, done: int) -> bool:
    """To be the first statement of a batch. False: somebody else has moved it on."""
    return bool(tx.rows(MOVE_ON, done, _now(), entry.name, entry.cycle, entry.done))


def count(tx: ImportTransaction, entry: LedgerEntry) -> None:
    told = entry.counts
    numbers = (told.created, told.updated, told.skipped, told.rejected, told.to_review)
    tx.rows(COUNT, *numbers, entry.rejects, entry.rejects_size, entry.name)


def complete(tx: ImportTransaction, entry: LedgerEntry) -> bool:
    return bool(tx.rows(COMPLETE, _now(), entry.name, entry.cycle, entry.done))


def known_rows(tx: ImportTransaction, entry: LedgerEntry, keys: Iterable[str]) -> dict[str, Places]:
    """The places of these keys; what another import has confirmed is not confirmed yet."""
    found = {}
    for key, fingerprints, cycle, confirmed in tx.rows(KNOWN, sorted(set(keys)), entry.name):
        found[key] = Places(fingerprints.split(SEPARATOR), int(confirmed, 16) if cycle == entry.cycle else 0)
    return found


def keep_rows(tx: ImportTransaction, entry: LedgerEntry, places: Mapping[str, Places]) -> None:
    """Those that have one row, as it was, are most of them: one statement for all."""
    unchanged = sorted(key for key, one in places.items() if one.is_unchanged)
    if unchanged:
        tx.rows(CONFIRM, entry.cycle, entry.name, unchanged)
    tx.many(
        KEEP,
        [
            (entry.name, key, SEPARATOR.join(one.fingerprints), entry.cycle, f"{one.confirmed:x}")
            for key, one in sorted(places.items())
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
