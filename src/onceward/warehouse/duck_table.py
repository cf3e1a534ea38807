"""A table of DuckDB: the types of its columns, and what of its shape matters to a merge."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from .table import ColumnType, Table

TYPES: Final[dict[ColumnType, tuple[str, str]]] = {
    "text": ("VARCHAR", "VARCHAR"),
    "integer": ("BIGINT", "BIGINT"),
    "number": ("DOUBLE", "DOUBLE"),
    "boolean": ("BOOLEAN", "BOOLEAN"),
    "time": ("TIMESTAMPTZ", "BIGINT"),
    "json": ("JSON", "VARCHAR"),
}
"""In the table, and on the way there."""

ROW_ID: Final = "rowid"
"""Where a row is. A column of this name hides it."""


class Shape(Struct, frozen=True):
    """Of the table as it is there: its owner may have made it, and may have added columns."""

    keyed: bool
    """An index over the key keeps two rows of one key apart, whoever writes."""

    hides_row_ids: bool


def shape_of(connection: Any, table: Table) -> Shape:
    schema, _, name = table.name.rpartition(".")
    where = "lower(schema_name) = lower(?) AND lower(table_name) = lower(?)"
    place = [schema or "main", name]
    keys = connection.execute(
        f"SELECT constraint_column_names FROM duckdb_constraints() WHERE {where}"
        " AND constraint_type IN ('PRIMARY KEY', 'UNIQUE')",
        place,
    ).fetchall()
    hiding = connection.execute(
        f"SELECT count(*) FROM duckdb_columns() WHERE {where} AND lower(column_name) = '{ROW_ID}'", place
    ).fetchone()
    return Shape(any(set(columns) == set(table.key) for (columns,) in keys), bool(hiding[0]))


def plain_name(table: Table) -> str:
    """The same for all spellings that mean one table."""
    return table.name.lower().removeprefix("main.")


def shown_as(expression: str, kind: ColumnType) -> str:
    return f"epoch_us({expression})" if kind == "time" else expression
