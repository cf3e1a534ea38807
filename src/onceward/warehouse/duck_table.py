"""DuckDB tables: column types, and the properties that a merge depends on."""

from __future__ import annotations

from typing import Any, Final

from .table import ColumnType, Table

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
    return any({_unquoted(column).lower() for column in columns} == key for (columns,) in found)


def _unquoted(expression: str) -> str:
    """Return the column of an index expression, which may be quoted. Other expressions are in parentheses."""
    return expression[1:-1] if expression.startswith('"') else expression


def hides_row_ids(connection: Any, table: Table) -> bool:
    """Return whether the table has a column named `rowid`. Queried in each transaction: a column may be added."""
    columns = connection.execute(f"SELECT * FROM {table.quoted} LIMIT 0").description
    return any(name.lower() == ROW_ID for name, *_ in columns)


def canonical_name(table: Table) -> str:
    """Return the same name for all spellings of one table."""
    return table.name.lower().removeprefix("main.")


def select_expression(expression: str, kind: ColumnType) -> str:
    return f"epoch_us({expression})" if kind == "time" else expression
