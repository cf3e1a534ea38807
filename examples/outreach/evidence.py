"""The data for the audit, read with plain SQL: the system's tables, the records, and what other systems received."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from .outside import query_outside

Row = tuple[Any, ...]
Run = Callable[..., list[Row]]


class AuditData:
    """The data of one run."""

    def __init__(self, database: str, outside: Path) -> None:
        self.outside = outside
        self._database = database

    def rows(self, statement: str, *values: Any) -> list[Row]:
        with self.rolled_back() as run:
            return run(statement, *values)

    @contextmanager
    def rolled_back(self) -> Iterator[Run]:
        """Run statements in a transaction that is rolled back."""
        with closing(connect(self._database)) as connection:
            is_sqlite = isinstance(connection, sqlite3.Connection)

            def run(statement: str, *values: Any) -> list[Row]:
                translated = statement if is_sqlite else statement.replace("%", "%%").replace("?", "%s")
                cursor = connection.execute(translated, values)
                return cursor.fetchall() if cursor.description else []

            try:
                yield run
            finally:
                connection.rollback()

    def rejects(self, first: tuple[str, Row], second: tuple[str, Row]) -> bool:
        """Whether the database rejects the second row after the first one was inserted."""
        with self.rolled_back() as run:
            insert(run, *first)
            try:
                insert(run, *second)
            except Exception as error:  # its class depends on the driver
                if type(error).__name__ in ("IntegrityError", "UniqueViolation"):
                    return True
                raise
        return False

    def mails(self) -> list[Mail]:
        rows = query_outside(self.outside, "SELECT at, message_id, prospect, token FROM mails ORDER BY at")
        return [Mail(*row) for row in rows]

    def records(self, operation: str) -> dict[str, Record]:
        """Return the records by key, for all operations whose names begin like this."""
        rows = self.rows(
            "SELECT key, coalesce(state, 'COMPLETED'), token FROM onceward_records WHERE scope LIKE ?",
            f"outreach/{operation}%",
        )
        return {key: Record(state, token) for key, state, token in rows}


class Mail(NamedTuple):
    """A mail that the server accepted. `token` is that of the claim under which it was sent."""

    at: int
    message_id: str | None
    prospect: str
    token: int


class Record(NamedTuple):
    """The state and the token of a key."""

    state: str
    token: int


def insert(run: Run, table: str, row: Row) -> None:
    run(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", *row)


def connect(database: str) -> Any:
    """Open a connection of the driver: sqlite3 or psycopg."""
    if database.startswith("sqlite:"):
        return sqlite3.connect(database.removeprefix("sqlite:///").partition("?")[0], timeout=30)
    import psycopg

    from onceward.stores.postgres.url import parse

    return psycopg.connect(parse(database).conninfo)
