"""The database of a storm, seen past Onceward: a trigger notes every write of a state, so that the audit can count."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import msgspec

from onceward.testing.storm import Setting, Trouble

State = tuple[str, str]
"""Of what it is the state: `ops_services`, and which one."""

BUSY = 30.0  # seconds to wait for SQLite's one writer
HEADER = 7  # bytes in front of a stored value: its codec, version, flags and checksum

NOTE = "INSERT INTO fleet_notes_{run} (scope, entity, value) VALUES (NEW.scope, NEW.entity, NEW.value)"
NOTE_STATE = """
INSERT INTO fleet_notes_{run} (scope, entity, value)
SELECT scope, entity, NEW.value FROM onceward_newest WHERE number = NEW.number
"""
SQLITE = (
    "CREATE TABLE fleet_notes_{run} (number INTEGER PRIMARY KEY, scope TEXT, entity TEXT, value BLOB)",
    "CREATE TABLE fleet_by_hand_{run} (scope TEXT, entity TEXT, value BLOB, PRIMARY KEY (scope, entity))",
    "CREATE TRIGGER fleet_insert_{run} AFTER INSERT ON {table} BEGIN {note}; END",
    "CREATE TRIGGER fleet_update_{run} AFTER UPDATE ON {table} BEGIN {note}; END",
)
POSTGRESQL = (
    "CREATE TABLE fleet_notes_{run} (number bigserial, scope text, entity text, value bytea)",
    "CREATE TABLE fleet_by_hand_{run} (scope text, entity text, value bytea, PRIMARY KEY (scope, entity))",
    f"CREATE FUNCTION fleet_note_{{run}}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN {NOTE}; RETURN NULL; END'",
    "CREATE TRIGGER fleet_{run} AFTER INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION fleet_note_{run}()",
)
REMOVE = ("DROP TABLE fleet_notes_{run}, fleet_by_hand_{run}", "DROP FUNCTION fleet_note_{run} CASCADE")
WRITE = (
    "INSERT INTO fleet_by_hand_{run} VALUES ({p}, {p}, {p})"
    " ON CONFLICT (scope, entity) DO UPDATE SET value = excluded.value"
)
WRITES = "SELECT scope, entity, value FROM fleet_notes_{run} WHERE scope LIKE {p} AND value IS NOT NULL ORDER BY number"
MESSAGES = "SELECT message FROM onceward_marks WHERE message LIKE {p}"


class Watched:
    """SQLite or PostgreSQL, over a connection of its own."""

    def __init__(self, setting: Setting) -> None:
        self.url = setting.store or f"sqlite:///{Path(setting.folder) / 'fleet.db'}"
        self.app = f"fleet-{setting.run}"
        self._on_a_server = not self.url.startswith("sqlite:")
        ours = "onceward_newest" if self._on_a_server else "onceward_states"
        table = ours if setting.guarded else f"fleet_by_hand_{setting.run}"
        note = NOTE_STATE if table == "onceward_states" else NOTE
        self._words = {"run": setting.run, "table": table, "p": "%s" if self._on_a_server else "?"}
        self._words["note"] = note.format_map(self._words)
        self._connection = self._connect()

    def _connect(self) -> Any:
        place = self.url.partition("?")[0]
        if not self._on_a_server:
            return sqlite3.connect(place.removeprefix("sqlite:///"), timeout=BUSY, isolation_level=None)
        if not place.startswith("postgres"):
            raise Trouble("the audit of the fleet reads tables: give sqlite:///… or postgresql://…")
        import psycopg

        return psycopg.connect(place, autocommit=True)

    def watch(self) -> None:
        for statement in POSTGRESQL if self._on_a_server else SQLITE:
            self._run(statement)

    def write(self, state: State, document: dict[str, Any]) -> None:
        """As the first version of such a consumer does: the last to arrive wins."""
        value = bytes(HEADER) + msgspec.msgpack.encode(document)
        self._run(WRITE, f"{self.app}/{state[0]}", state[1], value)

    def writes(self) -> list[tuple[State, dict[str, Any]]]:
        """Every write of a state in this run, in their order."""
        return [
            ((scope.partition("/")[2], entity), msgspec.msgpack.decode(bytes(value)[HEADER:]))
            for scope, entity, value in self._run(WRITES, f"{self.app}/%").fetchall()
        ]

    def messages(self, like: str) -> list[str]:
        """Which messages are claimed; those that brought a new event once more."""
        return [message for (message,) in self._run(MESSAGES, like).fetchall()]

    def close(self) -> None:
        self._connection.close()

    def unwatch(self) -> None:
        """On a server others come after us."""
        for statement in REMOVE if self._on_a_server else ():
            self._run(statement)

    def _run(self, statement: str, *values: Any) -> Any:
        return self._connection.execute(statement.format_map(self._words), values)
