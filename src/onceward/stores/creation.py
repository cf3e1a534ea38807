"""The SQL that creates a store's tables, without a connection to a database."""

from __future__ import annotations

from onceward.errors import ConfigurationError
from onceward.protocol.capabilities import Schema

DIALECTS = ("postgresql", "sqlite")
SCHEMES = {"postgresql": "postgresql", "postgres": "postgresql", "sqlite": "sqlite"}
"""The dialect for each URL scheme."""


def creation_schema(dialect: str, schema: str = "") -> Schema:
    """Return the schema of an empty database: its statements create everything. `schema` is that of PostgreSQL."""
    if dialect == "postgresql":
        from .postgres import schema as postgres
        from .postgres.statements import Statements
        from .postgres.url import checked_schema

        return Schema(0, postgres.LATEST, 0, tuple(postgres.changes(Statements(checked_schema(schema)), 0)))
    if dialect != "sqlite":
        raise ConfigurationError(f"there is no dialect {dialect!r}", hint=f"choose one of: {', '.join(DIALECTS)}")
    if schema:
        raise ConfigurationError("SQLite has no schemas", hint="leave schema out")
    from .sqlite import schema as sqlite

    return Schema(0, sqlite.LATEST, 0, tuple(sqlite.statements(0)))
