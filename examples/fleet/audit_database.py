"""The database of a storm, accessed without Onceward: a trigger logs every write of a state for the audit."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import msgspec

from onceward.testing.storm import StormSetting, Trouble

State = tuple[str, str]
"""The kind of a state (`ops_services`), and its entity."""

BUSY_TIMEOUT = 30.0  # seconds to wait for SQLite's single writer
HEADER = 7  # bytes before a stored value: codec, version, flags and checksum

LOG_WRITE = "INSERT INTO fleet_notes_{run} (scope, entity, value) VALUES (NEW.scope, NEW.entity, NEW.value)"
SQLITE = (
    "CREATE TABLE fleet_notes_{run} (number INTEGER PRIMARY KEY, scope TEXT, entity TEXT, value BLOB)",
    "CREATE TABLE fleet_by_hand_{run} (scope TEXT, entity TEXT, value BLOB, PRIMARY KEY (scope, entity))",
    f"CREATE TRIGGER fleet_insert_{{run}} AFTER INSERT ON {{table}} BEGIN {LOG_WRITE}; END",
    f"CREATE TRIGGER fleet_update_{{run}} AFTER UPDATE ON {{table}} BEGIN {LOG_WRITE}; END",
)
POSTGRESQL = (
    "CREATE TABLE fleet_notes_{run} (number bigserial, scope text, entity text, value bytea)",
    "CREATE TABLE fleet_by_hand_{run} (scope text, entity text, value bytea, PRIMARY KEY (scope, entity))",
    f"CREATE FUNCTION fleet_note_{{run}}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN {LOG_WRITE}; RETURN NULL; END'",
    "CREATE TRIGGER fleet_{run} AFTER INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION fleet_note_{run}()",
)
DROP_STATEMENTS = ("DROP TABLE fleet_notes_{run}, fleet_by_hand_{run}", "DROP FUNCTION fleet_note_{run} CASCADE")
WRITE = (
    "INSERT INTO fleet_by_hand_{run} VALUES ({p}, {p}, {p})"
    " ON CONFLICT (scope, entity) DO UPDATE SET value = excluded.value"
)
WRITES = "SELECT scope, entity, value FROM fleet_notes_{run} WHERE scope LIKE {p} AND value IS NOT NULL ORDER BY number"
MESSAGES = "SELECT message FROM onceward_marks WHERE message LIKE {p}"


class AuditDatabase:
    """SQLite or PostgreSQL, through its own connection."""

    def __init__(self, setting: StormSetting) -> None:
        self.url = setting.store or f"sqlite:///{Path(setting.folder) / 'fleet.db'}"
        self.app = f"fleet-{setting.run}"
        self._is_postgres = not self.url.startswith("sqlite:")
        table = "onceward_latest" if setting.guarded else f"fleet_by_hand_{setting.run}"
        self._placeholders = {"run": setting.run, "table": table, "p": "%s" if self._is_postgres else "?"}
        self._connection = self._connect()

    def _connect(self) -> Any:
        place = self.url.partition("?")[0]
        if not self._is_postgres:
            return sqlite3.connect(place.removeprefix("sqlite:///"), timeout=BUSY_TIMEOUT, isolation_level=None)
        if not place.startswith("postgres"):
            raise Trouble("the audit reads tables directly: use sqlite:///…, postgresql://… or firestore://…")
        import psycopg

        return psycopg.connect(place, autocommit=True)

    def create_triggers(self) -> None:
        for statement in POSTGRESQL if self._is_postgres else SQLITE:
            self._run(statement)

    def write(self, state: State, document: dict[str, Any]) -> None:
        """Write a state as a first version of such a consumer often does: the last arrival wins."""
        value = bytes(HEADER) + msgspec.msgpack.encode(document)
        self._run(WRITE, f"{self.app}/{state[0]}", state[1], value)

    def writes(self) -> list[tuple[State, dict[str, Any]]]:
        """Return every write of a state in this run, in order."""
        return [
            ((scope.partition("/")[2], entity), msgspec.msgpack.decode(bytes(value)[HEADER:]))
            for scope, entity, value in self._run(WRITES, f"{self.app}/%").fetchall()
        ]

    def messages(self, like: str) -> list[str]:
        """Return the message ids of all marks. A message with a new event has two marks."""
        return [message for (message,) in self._run(MESSAGES, like).fetchall()]

    def close(self) -> None:
        self._connection.close()

    def drop_triggers(self) -> None:
        """Remove tables and triggers from a shared server."""
        for statement in DROP_STATEMENTS if self._is_postgres else ():
            self._run(statement)

    def _run(self, statement: str, *values: Any) -> Any:
        return self._connection.execute(statement.format_map(self._placeholders), values)
