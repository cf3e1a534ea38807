"""The migration operation that creates and updates Onceward's tables, with the statements of the stores."""

from __future__ import annotations

from typing import Any

from django.db.migrations.operations.base import Operation

from .configuration import configuration
from .database_store import require_supported

DROP = (
    "DROP VIEW IF EXISTS onceward_keys",
    *(
        f"DROP TABLE IF EXISTS onceward_{name}"
        for name in ("records", "audit", "latest", "marks", "counters", "history", "meta")
    ),
)


class OncewardTables(Operation):
    """Bring the tables up to date in the database of the setting `ONCEWARD`. Do nothing in other databases.

    Tables that `onceward migrate` has created are kept as they are. `sqlite` and `postgresql` are the versions of the
    tables that this migration leads to at least: a new version needs a new migration.
    """

    reduces_to_sql = True
    reversible = True

    def __init__(self, *, sqlite: int, postgresql: int) -> None:
        self.versions = {"sqlite": sqlite, "postgresql": postgresql}

    def deconstruct(self) -> tuple[str, list[Any], dict[str, int]]:
        return type(self).__name__, [], self.versions

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Change nothing: the models are created by operations of their own."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:  # noqa: ARG002 (Django's interface)
        for statement in missing_statements(schema_editor.connection):
            schema_editor.execute(statement, params=None)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:  # noqa: ARG002 (Django's interface)
        if schema_editor.connection.alias == configuration().database:
            for statement in DROP:
                schema_editor.execute(statement, params=None)

    def describe(self) -> str:
        return "Create or update the tables of Onceward"


def missing_statements(connection: Any) -> list[str]:
    """Return the statements that bring the tables of this database up to date."""
    if connection.alias != configuration().database:
        return []
    require_supported(connection)
    version = _version(connection)
    if connection.vendor == "sqlite":
        from onceward.stores.sqlite import schema

        return schema.statements(version) if version < schema.LATEST else []
    from onceward.stores.postgres import schema as postgres_schema
    from onceward.stores.postgres.statements import statements

    return postgres_schema.changes(statements(""), version)


def _version(connection: Any) -> int:
    with connection.cursor() as cursor:
        if "onceward_meta" not in connection.introspection.table_names(cursor):
            return 0
        cursor.execute("SELECT value FROM onceward_meta WHERE name = 'schema_version'")
        row = cursor.fetchone()
    return int(row[0]) if row else 0
