"""One open transaction of a warehouse: what DuckDB, SQLite and PostgreSQL share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final

from .batch import RowBatch, Tuple
from .load import LOADS, replay_result
from .port import Loaded
from .table import ColumnType, Table, quoted

STAGING: Final = "onceward_staging"

CLAIM: Final = f"""
INSERT INTO {LOADS} (load_id, table_name, digest, given, kept) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (load_id) DO NOTHING RETURNING load_id
"""
"""Waits for another transaction with this load id, or conflicts with it. So its result is definite."""

FIND_LOAD: Final = f"SELECT table_name, digest, given, kept, inserted, updated FROM {LOADS} WHERE load_id = ?"
RECORD: Final = f"UPDATE {LOADS} SET inserted = ?, updated = ? WHERE load_id = ?"


class Transaction(ABC):
    """Loads and compares rows inside an open transaction, without committing."""

    @abstractmethod
    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Execute a statement with `?` for each value. Return the driver's cursor."""

    @abstractmethod
    def stage(self, batch: RowBatch) -> None:
        """Fill the staging table of this transaction."""

    @abstractmethod
    def merge(self, table: Table) -> tuple[int, int]:
        """Merge the staged rows into the table. Return how many rows were inserted and updated."""

    @abstractmethod
    def insert(self, table: Table) -> set[Tuple]:
        """Insert the staged rows whose key is not in the table. Return their keys."""

    @abstractmethod
    def differing(self, table: Table) -> set[Tuple]:
        """Return the keys of staged rows that differ from the existing row. A missing value equals any value."""

    @abstractmethod
    def found(self, table: Table, columns: Sequence[str]) -> list[Tuple]:
        """Return the key and these columns of the existing rows with a staged key."""

    def load(self, load_id: str, batch: RowBatch) -> Loaded:
        """Claim the load id, merge the rows and record the result. If the id is already recorded, replay it."""
        claim = (load_id, batch.table.name, batch.digest, batch.given, len(batch.rows))
        if not self.execute(CLAIM, claim).fetchall():
            name, digest, *counts = self.execute(FIND_LOAD, (load_id,)).fetchone()
            return replay_result(load_id, batch, name, digest, tuple(counts))
        self.stage(batch)
        inserted, updated = self.merge(batch.table)
        self.record(load_id, inserted, updated)
        rows = len(batch.rows)
        return Loaded(load_id, batch.given, batch.given - rows, inserted, updated, rows - inserted - updated)

    def record(self, load_id: str, inserted: int, updated: int) -> None:
        self.execute(RECORD, (inserted, updated, load_id))


class UpsertTransaction(Transaction):
    """Merges by INSERT … ON CONFLICT, for SQLite and PostgreSQL."""

    types: ClassVar[dict[ColumnType, str]]
    temporary: ClassVar[str]
    """The schema of temporary tables."""

    distinct: ClassVar[str]
    """The operator that compares two values, and does not treat NULL as unknown."""

    @abstractmethod
    def passed_keys(self, rows: Iterable[Tuple]) -> list[Tuple]:
        """Convert keys that the database returned to the form in which they were passed. A time is then an integer."""

    def create_staging(self, columns: dict[str, ColumnType], options: str = "") -> None:
        declared = ", ".join(f'"{name}" {self.types[kind]}' for name, kind in columns.items())
        self.execute(f"DROP TABLE IF EXISTS {self.temporary}.{STAGING}")  # of an earlier pass or transaction
        self.execute(f"CREATE TEMPORARY TABLE {STAGING} ({declared}){options}")

    def upsert(self, table: Table, action: str, returning: str = "") -> str:
        """Return the statement that inserts the staged rows. `action` says what it does with rows whose key exists."""
        names, keys = quoted(tuple(table.columns)), quoted(table.key)
        return (
            f"INSERT INTO {table.quoted} AS t ({names}) SELECT {names} FROM {STAGING} WHERE true ORDER BY {keys}"
            f" ON CONFLICT ({keys}) {action} {returning}"
        )

    def replace_action(self, table: Table) -> str:
        """Return the action for existing rows. A row without a `newest_by` value is older than any row with one."""
        if table.on_match != "replace" or not table.others:
            return "DO NOTHING"
        assigned = ", ".join(f'"{name}" = excluded."{name}"' for name in table.others)
        differs = " OR ".join(f't."{name}" {self.distinct} excluded."{name}"' for name in table.others)
        newest = f'"{table.newest_by}"'
        newer = "" if table.newest_by is None else f" AND (t.{newest} IS NULL OR excluded.{newest} >= t.{newest})"
        return f"DO UPDATE SET {assigned} WHERE ({differs}){newer}"

    def insert(self, table: Table) -> set[Tuple]:
        statement = self.upsert(table, "DO NOTHING", f"RETURNING {quoted(table.key)}")
        return set(self.passed_keys(self.execute(statement).fetchall()))

    def differing(self, table: Table) -> set[Tuple]:
        """Return the differing keys. Under READ COMMITTED this sees the row for which the insert waited."""
        differs = " OR ".join(f't."{name}" <> s."{name}"' for name in table.same_by)
        return set(self.passed_keys(self.execute(f"{_matching(table, table.key)} WHERE {differs}").fetchall()))

    def found(self, table: Table, columns: Sequence[str]) -> list[Tuple]:
        size = len(table.key)
        rows = self.execute(_matching(table, (*table.key, *columns))).fetchall()
        keys = self.passed_keys(row[:size] for row in rows)
        return [key + row[size:] for key, row in zip(keys, rows, strict=True)]


def _matching(table: Table, columns: tuple[str, ...]) -> str:
    """Return a SELECT of these columns of the existing rows with a staged key."""
    selected = quoted(columns, "t.")
    return f"SELECT {selected} FROM {table.quoted} t JOIN {STAGING} s USING ({quoted(table.key)})"
