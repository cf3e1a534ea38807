"""What there is to look at: the system's own tables, the records, and what the outside has kept. By plain SQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from .outside import kept

Row = tuple[Any, ...]
Run = Callable[..., list[Row]]


class Data:
    """All that there is to look at."""

    def __init__(self, database: str, outside: Path) -> None:
        self.outside = outside
        self._database = database

    def rows(self, statement: str, *values: Any) -> list[Row]:
        with self.trial() as run:
            return run(statement, *values)

    @contextmanager
    def trial(self) -> Iterator[Run]:
        """Statements of which nothing stays."""
        with closing(connect(self._database)) as connection:
            is_sqlite = isinstance(connection, sqlite3.Connection)

            def run(statement: str, *values: Any) -> list[Row]:
                theirs = statement if is_sqlite else statement.replace("%", "%%").replace("?", "%s")
                cursor = connection.execute(theirs, values)
                return cursor.fetchall() if cursor.description else []

            try:
                yield run
            finally:
                connection.rollback()

    def refuses(self, first: tuple[str, Row], second: tuple[str, Row]) -> bool:
        """Whether the second row is refused once the first one is there."""
        with self.trial() as run:
            insert(run, *first)
            try:
                insert(run, *second)
            except Exception as error:  # whichever driver it is
                if type(error).__name__ in ("IntegrityError", "UniqueViolation"):
                    return True
                raise
        return False

    def mails(self) -> list[Mail]:
        rows = kept(self.outside, "SELECT at, message_id, prospect, token FROM mails ORDER BY at")
        return [Mail(*row) for row in rows]

    def records(self, operation: str) -> dict[str, Record]:
        """By key. The names of some operations go on."""
        rows = self.rows("SELECT key, state, token FROM onceward_records WHERE scope LIKE ?", f"outreach/{operation}%")
        return {key: Record(state, token) for key, state, token in rows}


class Mail(NamedTuple):
    """One that the server has taken; `token` is the claim's under which it was sent."""

    at: int
    message_id: str | None
    prospect: str
    token: int


class Record(NamedTuple):
    """What the store says about a key."""

    state: str
    token: int


def insert(run: Run, table: str, row: Row) -> None:
    run(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", *row)


def connect(database: str) -> Any:
    """The driver's own connection: both have what is needed here."""
    if database.startswith("sqlite:"):
        return sqlite3.connect(database.removeprefix("sqlite:///").partition("?")[0], timeout=30)
    import psycopg

    from onceward.stores.postgres.url import parse

    return psycopg.connect(parse(database).conninfo)
