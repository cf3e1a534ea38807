"""BigQuery's SQL statements. `Table` checks the names; values are parameters, or hexadecimal digits. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from .table import ColumnType, Table

TYPES: Final[dict[ColumnType, str]] = {
    "text": "STRING",
    "integer": "INT64",
    "number": "FLOAT64",
    "boolean": "BOOL",
    "time": "TIMESTAMP",
    "json": "JSON",
}
LOADS: Final = {
    "load_id": "STRING",
    "table_name": "STRING",
    "digest": "STRING",
    "given": "INT64",
    "kept": "INT64",
    "inserted": "INT64",
    "updated": "INT64",
    "nonce": "STRING",
    "loaded_at": "TIMESTAMP",
}
TURN: Final = {"turn": "INT64"}


def find_load(loads: str) -> str:
    return f"SELECT table_name, digest, given, kept, inserted, updated, nonce FROM {loads} WHERE load_id = @load_id"


def first_turn(turns: str) -> str:
    """Insert the row that all loads into a table update, so that no two commit together. Two rows do no harm."""
    return f"INSERT INTO {turns} (turn) VALUES (0)"


def stage(staging: str, table: Table) -> str:
    """Insert the rows into the staging table. `@rows` is an array of JSON objects, as text."""
    names = ", ".join(f"`{name}`" for name in table.columns)
    return f"INSERT INTO {staging} ({names}) {rows_of(table)}"


def rows_of(table: Table) -> str:
    columns = ", ".join(f"{_column(name, kind)} AS `{name}`" for name, kind in table.columns.items())
    return f"SELECT {columns} FROM UNNEST(JSON_QUERY_ARRAY(@rows)) AS r"


def _column(name: str, kind: ColumnType) -> str:
    text = f"JSON_VALUE(r, '$.{name}')"
    if kind == "text":
        return text
    if kind == "time":
        return f"TIMESTAMP_MICROS(CAST({text} AS INT64))"
    return f"PARSE_JSON({text})" if kind == "json" else f"CAST({text} AS {TYPES[kind]})"


def find_known(target: str, table: Table, columns: Sequence[str] = ()) -> str:
    """Select rows by their keys. `table` has only the key columns; `columns` are the other columns to return."""
    selected = ", ".join([_keys(table), *(f"t.`{name}`" for name in columns)])
    return f"SELECT {selected} FROM {target} t JOIN ({rows_of(table)}) s ON {_matches(table)}"


def find_staged(target: str, staging: str, table: Table) -> str:
    """Select the keys of staged rows that exist in the target."""
    return f"SELECT {_keys(table)} FROM {target} t JOIN {staging} s ON {_matches(table)}"


def find_differing(target: str, staging: str, table: Table) -> str:
    """Select the keys of staged rows that differ from the existing row."""
    return f"{find_staged(target, staging, table)} WHERE {_differs(table)}"


def _keys(table: Table) -> str:
    kinds = ((name, table.columns[name]) for name in table.key)
    return ", ".join(f"UNIX_MICROS(t.`{name}`)" if kind == "time" else f"t.`{name}`" for name, kind in kinds)


def _differs(table: Table) -> str:
    """Return the condition that a row differs. A missing value equals any value."""
    return "(" + " OR ".join(f"t.`{name}` != s.`{name}`" for name in table.same_by) + ")"


def merge(target: str, staging: str, table: Table) -> str:
    names = ", ".join(f"`{name}`" for name in table.columns)
    values = ", ".join(f"s.`{name}`" for name in table.columns)
    replaces = ""
    if _replaces(table):
        assigned = ", ".join(f"`{name}` = s.`{name}`" for name in table.others)
        replaces = f"WHEN MATCHED AND {_replaces(table)} THEN UPDATE SET {assigned}"
    return (
        f"MERGE INTO {target} t USING {staging} s ON {_matches(table)} {replaces}"
        f" WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})"
    )


class LoadTables(NamedTuple):
    """The quoted names of the tables of a load."""

    target: str
    staging: str
    loads: str
    turns: str


def load(tables: LoadTables, table: Table, record: dict[str, str], *, whole: bool = False) -> str:
    """Return the script of one transaction: the turn counter, the merge and the record, unless the record exists.

    With `whole`, nothing is merged if a staged row differs from the existing row.

    On BigQuery, MERGE statements that only insert do not conflict, so two of them may insert the same key twice. Two
    transactions that update the same table do conflict, and one of them is aborted: this is what the counter is for.
    """
    target, staging, loads, turns = tables
    unmatched = f"SELECT COUNT(*) FROM {staging} s WHERE NOT EXISTS (SELECT 1 FROM {target} t WHERE {_matches(table)})"
    changed = "0"
    if _replaces(table):
        changed = f"(SELECT COUNT(*) FROM {target} t JOIN {staging} s ON {_matches(table)} WHERE {_replaces(table)})"
    against = "0"
    if whole:
        against = f"(SELECT COUNT(*) FROM {target} t JOIN {staging} s ON {_matches(table)} WHERE {_differs(table)})"
    return f"""
DECLARE found, added, changed, against INT64;
BEGIN TRANSACTION;
UPDATE {turns} SET turn = turn + 1 WHERE TRUE;
SET found = (SELECT COUNT(*) FROM {loads} WHERE load_id = {record["load_id"]});
IF found = 0 THEN
    SET added = ({unmatched});
    SET changed = {changed};
    SET against = {against};
    IF against = 0 THEN
        {merge(target, staging, table)};
    END IF;
    INSERT INTO {loads} ({", ".join(LOADS)}) VALUES ({", ".join(record[name] for name in LOADS)});
END IF;
COMMIT TRANSACTION;
"""


def text(value: str) -> str:
    """Return the text as a literal of hexadecimal digits: parameters are not allowed everywhere in a script."""
    return f"SAFE_CONVERT_BYTES_TO_STRING(FROM_HEX('{value.encode().hex()}'))"


def _matches(table: Table) -> str:
    return " AND ".join(f"t.`{name}` = s.`{name}`" for name in table.key)


def _replaces(table: Table) -> str:
    """Return the condition that the staged row replaces the existing row. Empty: never."""
    if table.on_match != "replace" or not table.others:
        return ""
    differs = " OR ".join(
        f"{_comparable('t', name, table)} IS DISTINCT FROM {_comparable('s', name, table)}" for name in table.others
    )
    if table.newest_by is None:
        return f"({differs})"
    newest = f"`{table.newest_by}`"  # a row without a value is older than any row with one
    return f"({differs}) AND (t.{newest} IS NULL OR s.{newest} >= t.{newest})"


def _comparable(side: str, name: str, table: Table) -> str:
    column = f"{side}.`{name}`"
    return f"TO_JSON_STRING({column})" if table.columns[name] == "json" else column
