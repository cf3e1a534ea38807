"""What a transaction of DuckDB does with the rows of a load or a merge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from .batch import RowBatch, Tuple
from .duck_table import ROW_ID, TYPES, hides_row_ids, plain_name, shown_as
from .load import LOADS
from .table import ColumnType, Table, quoted

STAGING: Final = "onceward_staging"
MATCHED: Final = "onceward_matched"
DIFFERS: Final = '"differs from it"'
PLACE: Final = '"place of it"'
"""Beside the columns of a `Table`, none of which can have such a name."""

TURNS: Final = "onceward_turns"

PIECE: Final = 2 * 1024 * 1024
"""Bytes of JSON that are handed over at once: DuckDB needs several times as much while it reads them."""

MAKE_TURNS: Final = f"CREATE TABLE IF NOT EXISTS {TURNS} (table_name VARCHAR PRIMARY KEY, turn BIGINT NOT NULL)"
"""For tables without a primary key: whoever merges into one counts here, so that of two at once one has to repeat."""


class DuckMerging:
    """DuckDB has MERGE, which tells what it did with each row."""

    def __init__(self, connection: Any, *, keyed: bool) -> None:
        self._connection = connection
        self._keyed = keyed

    def claimed(self, load_id: str, batch: RowBatch) -> tuple[str, str, tuple[int, int, int, int]] | None:
        before = self._connection.execute(
            f"SELECT table_name, digest, given, kept, inserted, updated FROM {LOADS} WHERE load_id = ?",
            [load_id],
        ).fetchone()
        if before is not None:
            return before[0], before[1], before[2:]
        self._connection.execute(
            f"INSERT INTO {LOADS} (load_id, table_name, digest, given, kept) VALUES (?, ?, ?, ?, ?)",
            [load_id, batch.table.name, batch.digest, batch.given, len(batch.rows)],
        )
        return None

    def take_turn(self, table: Table) -> None:
        """First of all: who has begun before another one was through is refused, and begins again."""
        name = plain_name(table)
        counted = self._connection.execute(f"UPDATE {TURNS} SET turn = turn + 1 WHERE table_name = ?", [name])
        if not counted.fetchone()[0]:
            self._connection.execute(f"INSERT INTO {TURNS} VALUES (?, 1)", [name])

    def stage(self, batch: RowBatch) -> None:
        """Many rows as one parameter: a statement a row would take longer than all the rest."""
        columns = batch.table.columns
        shape = msgspec.json.encode([{name: TYPES[kind][1] for name, kind in columns.items()}]).decode()
        taken = ", ".join(_taken(name, kind) for name, kind in columns.items())
        into = f"CREATE OR REPLACE TEMP TABLE {STAGING} AS"
        for piece in _pieces(batch):
            self._connection.execute(
                f"{into} SELECT {taken} FROM (SELECT unnest(from_json(?::JSON, '{shape}')) AS r)", [piece]
            )
            into = f"INSERT INTO {STAGING}"

    def merge(self, table: Table) -> tuple[int, int]:
        """Rows of the batch are counted: without an index, one may have replaced several that had its key."""
        names = tuple(table.columns)
        replaces = ""
        if table.on_match == "replace" and table.others:
            differs = " OR ".join(f't."{name}" IS DISTINCT FROM s."{name}"' for name in table.others)
            newer = _not_older(table)
            assigned = ", ".join(f'"{name}" = s."{name}"' for name in table.others)
            replaces = f"WHEN MATCHED AND ({differs}){newer} THEN UPDATE SET {assigned}"
        found = self._connection.execute(
            f"MERGE INTO {table.quoted} AS t USING {STAGING} AS s ON {_same_key(table)} {replaces}"
            f" WHEN NOT MATCHED THEN INSERT ({quoted(names)}) VALUES ({quoted(names, 's.')})"
            f" RETURNING merge_action{'' if self._keyed else ', ' + _shown(table)}"
        ).fetchall()
        inserted = sum(action == "INSERT" for action, *_ in found)
        if self._keyed:
            return inserted, len(found) - inserted
        return inserted, len({tuple(key) for action, *key in found if action != "INSERT"})

    def insert(self, table: Table) -> set[Tuple]:
        """Which are there is asked once: without an index, and for MERGE in any case, it means to read all keys."""
        names = tuple(table.columns)
        differs = " OR ".join(f't."{name}" <> s."{name}"' for name in table.same_by)
        told = (quoted(table.key, "t."), f"coalesce({differs}, false) AS {DIFFERS}")
        self._connection.execute(
            f"CREATE OR REPLACE TEMP TABLE {MATCHED} AS {self.matching(table, told, table.same_by)}"
        )
        found = self._connection.execute(
            f"INSERT INTO {table.quoted} ({quoted(names)}) SELECT {quoted(names)} FROM {STAGING} t"
            f" WHERE NOT EXISTS (SELECT 1 FROM {MATCHED} s WHERE {_same_key(table)}) RETURNING {_shown(table)}"
        ).fetchall()
        return set(found)

    def differing(self, table: Table) -> set[Tuple]:
        """Those that `insert` has met."""
        return set(self._connection.execute(f"SELECT {_shown(table)} FROM {MATCHED} WHERE {DIFFERS}").fetchall())

    def matching(self, table: Table, shown: tuple[str, ...], staged: tuple[str, ...] = ()) -> str:
        """A SELECT of rows `t` that are there, each with these columns of the staged row `s` of its key.

        First where they are, by the key alone: then the other columns are read only there, not in all of the table.
        """
        there = f"{table.quoted} t JOIN {STAGING} s ON {_same_key(table)}"
        if hides_row_ids(self._connection, table):
            return f"SELECT {', '.join(shown)} FROM {there}"
        carried = "".join(f', s."{name}"' for name in staged)
        return (
            f"WITH places AS MATERIALIZED (SELECT t.{ROW_ID} AS {PLACE}{carried} FROM {there})"
            f" SELECT {', '.join(shown)} FROM {table.quoted} t JOIN places s ON t.{ROW_ID} = s.{PLACE}"
        )

    def record(self, load_id: str, inserted: int, updated: int) -> None:
        self._connection.execute(
            f"UPDATE {LOADS} SET inserted = ?, updated = ? WHERE load_id = ?",
            [inserted, updated, load_id],
        )


def _pieces(batch: RowBatch) -> Iterator[str]:
    """Its rows as lists of JSON. An empty batch is an empty list: the staging table is made in any case."""
    rows: list[bytes] = []
    size = 0
    for row in batch.rows:
        one = msgspec.json.encode(dict(zip(batch.table.columns, row, strict=True)))
        if rows and size + len(one) > PIECE:
            yield _listed(rows)
            rows, size = [], 0
        rows.append(one)
        size += len(one)
    yield _listed(rows)


def _listed(rows: list[bytes]) -> str:
    return (b"[" + b",".join(rows) + b"]").decode()


def _shown(table: Table) -> str:
    """The key of a row."""
    return ", ".join(shown_as(f'"{name}"', table.columns[name]) for name in table.key)


def _same_key(table: Table) -> str:
    return " AND ".join(f't."{name}" = s."{name}"' for name in table.key)


def _not_older(table: Table) -> str:
    """A row without a time is older than any that has one."""
    if table.newest_by is None:
        return ""
    column = f'"{table.newest_by}"'
    return f" AND (t.{column} IS NULL OR s.{column} >= t.{column})"


def _taken(name: str, kind: ColumnType) -> str:
    if kind == "time":
        return f'make_timestamptz(r."{name}") AS "{name}"'
    return f'r."{name}"::{TYPES[kind][0]} AS "{name}"'
