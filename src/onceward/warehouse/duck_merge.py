"""A DuckDB transaction: claim a load, stage rows, merge and compare them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from .batch import RowBatch, Tuple
from .duck_table import ROW_ID, TYPES, canonical_name, hides_row_ids, select_expression
from .load_records import LoadRecords
from .table import ColumnType, Table, quoted

STAGING: Final = "onceward_staging"
MATCHED: Final = "onceward_matched"
DIFFERS: Final = '"differs from it"'
MATCHED_ROW_ID: Final = '"place of it"'
"""Names of extra columns. No column of a `Table` can have such a name."""

TURNS: Final = "onceward_turns"

CHUNK_BYTES: Final = 2 * 1024 * 1024
"""Bytes of JSON per statement: DuckDB needs several times as much memory while it parses them."""

CREATE_TURN_COUNTERS: Final = (
    f"CREATE TABLE IF NOT EXISTS {TURNS} (table_name VARCHAR PRIMARY KEY, turn BIGINT NOT NULL)"
)
"""For tables without a primary key: each merge updates a counter, so that of two concurrent merges one is repeated."""


class DuckTransaction(LoadRecords):
    """Uses DuckDB's MERGE, which returns what it did with each row."""

    def __init__(self, connection: Any, *, keyed: bool) -> None:
        super().__init__(connection)
        self._keyed = keyed

    def count_turn(self, table: Table) -> None:
        """Update the turn counter of the table. Of two concurrent transactions, the later one fails and is repeated."""
        name = canonical_name(table)
        updated_rows = self._connection.execute(f"UPDATE {TURNS} SET turn = turn + 1 WHERE table_name = ?", [name])
        if not updated_rows.fetchone()[0]:
            self._connection.execute(f"INSERT INTO {TURNS} VALUES (?, 1)", [name])

    def stage(self, batch: RowBatch) -> None:
        """Stage the rows, many per parameter: one statement per row would take longer than everything else."""
        columns = batch.table.columns
        shape = msgspec.json.encode([{name: TYPES[kind][1] for name, kind in columns.items()}]).decode()
        expressions = ", ".join(_staged_expression(name, kind) for name, kind in columns.items())
        into = f"CREATE OR REPLACE TEMP TABLE {STAGING} AS"
        for chunk in _chunks(batch):
            self._connection.execute(
                f"{into} SELECT {expressions} FROM (SELECT unnest(from_json(?::JSON, '{shape}')) AS r)", [chunk]
            )
            into = f"INSERT INTO {STAGING}"

    def merge(self, table: Table) -> tuple[int, int]:
        """Count rows of the batch, not of the table: without an index, one row may have replaced several."""
        names = tuple(table.columns)
        when_matched = ""
        if table.on_match == "replace" and table.others:
            differs = " OR ".join(f't."{name}" IS DISTINCT FROM s."{name}"' for name in table.others)
            newer = _not_older(table)
            assigned = ", ".join(f'"{name}" = s."{name}"' for name in table.others)
            when_matched = f"WHEN MATCHED AND ({differs}){newer} THEN UPDATE SET {assigned}"
        found = self._connection.execute(
            f"MERGE INTO {table.quoted} AS t USING {STAGING} AS s ON {_same_key(table)} {when_matched}"
            f" WHEN NOT MATCHED THEN INSERT ({quoted(names)}) VALUES ({quoted(names, 's.')})"
            f" RETURNING merge_action{'' if self._keyed else ', ' + _key_expressions(table)}"
        ).fetchall()
        inserted = sum(action == "INSERT" for action, *_ in found)
        if self._keyed:
            return inserted, len(found) - inserted
        return inserted, len({tuple(key) for action, *key in found if action != "INSERT"})

    def insert(self, table: Table) -> set[Tuple]:
        """Insert the rows with new keys. Existing keys are looked up once: without an index this reads all keys."""
        names = tuple(table.columns)
        differs = " OR ".join(f't."{name}" <> s."{name}"' for name in table.same_by)
        selected = (quoted(table.key, "t."), f"coalesce({differs}, false) AS {DIFFERS}")
        self._connection.execute(
            f"CREATE OR REPLACE TEMP TABLE {MATCHED} AS {self.matching(table, selected, table.same_by)}"
        )
        found = self._connection.execute(
            f"INSERT INTO {table.quoted} ({quoted(names)}) SELECT {quoted(names)} FROM {STAGING} t"
            f" WHERE NOT EXISTS (SELECT 1 FROM {MATCHED} s WHERE {_same_key(table)})"
            f" RETURNING {_key_expressions(table)}"
        ).fetchall()
        return set(found)

    def differing(self, table: Table) -> set[Tuple]:
        """Return the differing keys that `insert` found."""
        return set(
            self._connection.execute(f"SELECT {_key_expressions(table)} FROM {MATCHED} WHERE {DIFFERS}").fetchall()
        )

    def matching(self, table: Table, selected: tuple[str, ...], staged: tuple[str, ...] = ()) -> str:
        """Return a SELECT of existing rows `t`, each with these columns of the staged row `s` of the same key.

        The row ids are found first, by the key alone: then the other columns are read only for those rows.
        """
        matched = f"{table.quoted} t JOIN {STAGING} s ON {_same_key(table)}"
        if hides_row_ids(self._connection, table):
            return f"SELECT {', '.join(selected)} FROM {matched}"
        staged_columns = "".join(f', s."{name}"' for name in staged)
        return (
            f"WITH places AS MATERIALIZED (SELECT t.{ROW_ID} AS {MATCHED_ROW_ID}{staged_columns} FROM {matched})"
            f" SELECT {', '.join(selected)} FROM {table.quoted} t JOIN places s ON t.{ROW_ID} = s.{MATCHED_ROW_ID}"
        )


def _chunks(batch: RowBatch) -> Iterator[str]:
    """Yield the rows as JSON lists. An empty batch yields an empty list, so that the staging table is created."""
    rows: list[bytes] = []
    size = 0
    for row in batch.rows:
        one = msgspec.json.encode(dict(zip(batch.table.columns, row, strict=True)))
        if rows and size + len(one) > CHUNK_BYTES:
            yield _json_list(rows)
            rows, size = [], 0
        rows.append(one)
        size += len(one)
    yield _json_list(rows)


def _json_list(rows: list[bytes]) -> str:
    return (b"[" + b",".join(rows) + b"]").decode()


def _key_expressions(table: Table) -> str:
    """Return the select expressions of the key."""
    return ", ".join(select_expression(f'"{name}"', table.columns[name]) for name in table.key)


def _same_key(table: Table) -> str:
    return " AND ".join(f't."{name}" = s."{name}"' for name in table.key)


def _not_older(table: Table) -> str:
    """Return the `newest_by` condition. A row without a value is older than any row with one."""
    if table.newest_by is None:
        return ""
    column = f'"{table.newest_by}"'
    return f" AND (t.{column} IS NULL OR s.{column} >= t.{column})"


def _staged_expression(name: str, kind: ColumnType) -> str:
    if kind == "time":
        return f'make_timestamptz(r."{name}") AS "{name}"'
    return f'r."{name}"::{TYPES[kind][0]} AS "{name}"'
