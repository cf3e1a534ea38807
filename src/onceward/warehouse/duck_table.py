"""A table of DuckDB: the types of its columns, and what about it matters to a merge."""

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
"""In the table, and on the way there."""

ROW_ID: Final = "rowid"
"""Where a row is. A column of this name hides it."""


def is_keyed(connection: Any, table: Table) -> bool:
    """Whether an index over the key keeps two rows of one key apart, whoever writes: a constraint has one, too."""
    schema, _, name = table.name.rpartition(".")
    where = "lower(schema_name) = lower(?) AND lower(table_name) = lower(?)"
    place = [schema or "main", name]
    found = connection.execute(
        f"SELECT constraint_column_names FROM duckdb_constraints() WHERE {where}"
        " AND constraint_type IN ('PRIMARY KEY', 'UNIQUE')"
        f" UNION ALL SELECT expressions::VARCHAR[] FROM duckdb_indexes() WHERE {where} AND is_unique",
        place * 2,
    ).fetchall()
    key = {column.lower() for column in table.key}
    return any({_unquoted(column).lower() for column in columns} == key for (columns,) in found)


def _unquoted(expression: str) -> str:
    """An index tells its columns as SQL would have them; what is no column has parentheses around it."""
    return expression[1:-1] if expression.startswith('"') else expression


def hides_row_ids(connection: Any, table: Table) -> bool:
    """Asked in each transaction: whoever has the file open may add a column."""
    columns = connection.execute(f"SELECT * FROM {table.quoted} LIMIT 0").description
    return any(name.lower() == ROW_ID for name, *_ in columns)


def plain_name(table: Table) -> str:
    """The same for all spellings that mean one table."""
    return table.name.lower().removeprefix("main.")


def shown_as(expression: str, kind: ColumnType) -> str:
    return f"epoch_us({expression})" if kind == "time" else expression
