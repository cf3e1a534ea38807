"""A DuckDB transaction: claim a load, stage rows, merge and compare them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from .batch import RowBatch, Tuple, json_lists
from .table import ColumnType, Table, quoted
from .transaction import STAGING, Transaction

TYPES: Final[dict[ColumnType, tuple[str, str]]] = {
    "text": ("VARCHAR", "VARCHAR"),
    "integer": ("BIGINT", "BIGINT"),
    "number": ("DOUBLE", "DOUBLE"),
    "boolean": ("BOOLEAN", "BOOLEAN"),
    "time": ("TIMESTAMPTZ", "BIGINT"),
    "json": ("JSON", "VARCHAR"),
}
"""The type in the table, and the type in the staged JSON."""

ROW_ID: Final = "rowid"
"""The pseudo-column with the position of a row. A column of this name hides it."""

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


class DuckTransaction(Transaction):
    """Uses DuckDB's MERGE, which returns what it did with each row."""

    def __init__(self, connection: Any, *, keyed: bool) -> None:
        self._connection = connection
        self._keyed = keyed

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        return self._connection.execute(statement, list(values))

    def count_turn(self, table: Table) -> None:
        """Update the turn counter of the table. Of two concurrent transactions, the later one fails and is repeated."""
        name = canonical_name(table)
        updated_rows = self.execute(f"UPDATE {TURNS} SET turn = turn + 1 WHERE table_name = ?", [name])
        if not updated_rows.fetchone()[0]:
            self.execute(f"INSERT INTO {TURNS} VALUES (?, 1)", [name])

    def stage(self, batch: RowBatch) -> None:
        """Stage the rows, many per parameter: one statement per row would take longer than everything else."""
        columns = batch.table.columns
        shape = msgspec.json.encode([{name: TYPES[kind][1] for name, kind in columns.items()}]).decode()
        expressions = ", ".join(_staged_expression(name, kind) for name, kind in columns.items())
        into = f"CREATE OR REPLACE TEMP TABLE {STAGING} AS"
        rows = (msgspec.json.encode(dict(zip(columns, row, strict=True))) for row in batch.rows)
        for chunk in json_lists(rows, CHUNK_BYTES):
            self.execute(
                f"{into} SELECT {expressions} FROM (SELECT unnest(from_json(?::JSON, '{shape}')) AS r)", [chunk]
            )
            into = f"INSERT INTO {STAGING}"

    def merge(self, table: Table) -> tuple[int, int]:
        """Count rows of the batch, not of the table: without an index, one row may have replaced several."""
        names = tuple(table.columns)
        when_matched = ""
        if table.on_match == "replace" and table.others:
            differs = " OR ".join(f't."{name}" IS DISTINCT FROM s."{name}"' for name in table.others)
            newest = f'"{table.newest_by}"'  # a row without a value is older than any row with one
            newer = "" if table.newest_by is None else f" AND (t.{newest} IS NULL OR s.{newest} >= t.{newest})"
            assigned = ", ".join(f'"{name}" = s."{name}"' for name in table.others)
            when_matched = f"WHEN MATCHED AND ({differs}){newer} THEN UPDATE SET {assigned}"
        found = self.execute(
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
        self.execute(f"CREATE OR REPLACE TEMP TABLE {MATCHED} AS {self._matching(table, selected, table.same_by)}")
        found = self.execute(
            f"INSERT INTO {table.quoted} ({quoted(names)}) SELECT {quoted(names)} FROM {STAGING} t"
            f" WHERE NOT EXISTS (SELECT 1 FROM {MATCHED} s WHERE {_same_key(table)})"
            f" RETURNING {_key_expressions(table)}"
        ).fetchall()
        return set(found)

    def differing(self, table: Table) -> set[Tuple]:
        """Return the differing keys that `insert` found."""
        return set(self.execute(f"SELECT {_key_expressions(table)} FROM {MATCHED} WHERE {DIFFERS}").fetchall())

    def found(self, table: Table, columns: Sequence[str]) -> list[Tuple]:
        names = (*table.key, *columns)
        selected = tuple(select_expression(f't."{name}"', table.columns[name]) for name in names)
        found: list[Tuple] = self.execute(self._matching(table, selected)).fetchall()
        return found

    def _matching(self, table: Table, selected: tuple[str, ...], staged: tuple[str, ...] = ()) -> str:
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


def _key_expressions(table: Table) -> str:
    """Return the select expressions of the key."""
    return ", ".join(select_expression(f'"{name}"', table.columns[name]) for name in table.key)


def _same_key(table: Table) -> str:
    return " AND ".join(f't."{name}" = s."{name}"' for name in table.key)


def _staged_expression(name: str, kind: ColumnType) -> str:
    if kind == "time":
        return f'make_timestamptz(r."{name}") AS "{name}"'
    return f'r."{name}"::{TYPES[kind][0]} AS "{name}"'


def is_keyed(connection: Any, table: Table) -> bool:
    """Return whether a unique index or constraint over the key prevents duplicates."""
    schema, _, name = table.name.rpartition(".")
    where = "lower(schema_name) = lower(?) AND lower(table_name) = lower(?)"
    parameters = [schema or "main", name]
    found = connection.execute(
        f"SELECT constraint_column_names FROM duckdb_constraints() WHERE {where}"
        " AND constraint_type IN ('PRIMARY KEY', 'UNIQUE')"
        f" UNION ALL SELECT expressions::VARCHAR[] FROM duckdb_indexes() WHERE {where} AND is_unique",
        parameters * 2,
    ).fetchall()
    key = {column.lower() for column in table.key}
    # The column of an index expression may be quoted. Other expressions are in parentheses.
    return any({column.strip('"').lower() for column in columns} == key for (columns,) in found)


def hides_row_ids(connection: Any, table: Table) -> bool:
    """Return whether the table has a column named `rowid`. Queried in each transaction: a column may be added."""
    columns = connection.execute(f"SELECT * FROM {table.quoted} LIMIT 0").description
    return any(name.lower() == ROW_ID for name, *_ in columns)


def canonical_name(table: Table) -> str:
    """Return the same name for all spellings of one table."""
    return table.name.lower().removeprefix("main.")


def select_expression(expression: str, kind: ColumnType) -> str:
    return f"epoch_us({expression})" if kind == "time" else expression
