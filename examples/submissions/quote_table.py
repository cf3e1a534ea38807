"""The table of quotes. If possible it is in the database of the records, so that both commit in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from examples.submissions.rules import Quote, Submission
from onceward import current_async_claim, current_claim
from onceward.operations.claim import BaseClaim
from onceward.stores.postgres.url import parse

COLUMNS = "risk TEXT, decision TEXT, premium TEXT, charge TEXT"
WRITER_TIMEOUT = 10.0  # seconds to wait for the single writer of SQLite


class QuoteTable:
    """`joined`: rows and records share a database. Otherwise, all attempts insert a row with the same primary key."""

    def __init__(self, store: str, folder: str | Path, *, name: str = "quotes", joined: bool | None = None) -> None:
        kind, _, location = store.partition("://")
        settings = parse(store) if kind.startswith("postgres") else None
        self._postgres = settings.conninfo if settings else ""
        on_sqlite = kind == "sqlite"
        self._path = location.partition("?")[0].removeprefix("/") if on_sqlite else str(Path(folder) / "quotes.db")
        self.joined = bool(self._postgres or on_sqlite) if joined is None else joined
        self._keyed = not self.joined and joined is None
        self._name = name = f'"{settings.schema}".{name}' if settings and settings.schema else name
        placeholder = "%s" if self._postgres else "?"
        self._select = f"SELECT 1 FROM {name} WHERE risk = {placeholder}"
        values = ", ".join([placeholder] * (5 if self._keyed else 4))
        self._insert = f"INSERT INTO {name} VALUES ({values}){' ON CONFLICT DO NOTHING' * self._keyed}"

    def create(self) -> None:
        unique = ", attempted TEXT PRIMARY KEY" if self._keyed else ""
        with self._transaction() as connection:
            if self._postgres and connection.execute("SELECT to_regclass(%s)", (self._name,)).fetchone() != (None,):
                return  # IF NOT EXISTS would need the privilege to create tables
            connection.execute(f"CREATE TABLE IF NOT EXISTS {self._name} ({COLUMNS}{unique})")

    def drop(self) -> None:
        with self._transaction() as connection:
            connection.execute(f"DROP TABLE {self._name}")

    def rows(self) -> list[tuple[str, str, str, str]]:
        with self._transaction() as connection:
            return list(connection.execute(f"SELECT risk, decision, premium, charge FROM {self._name}"))

    def knows(self, submission: Submission) -> bool:
        """Return whether there is a row: the check that a program without Onceward would make."""
        with self._transaction() as connection:
            return bool(connection.execute(self._select, (submission.risk,)).fetchall())

    def write(self, submission: Submission, quote: Quote) -> None:
        """Insert the row, from a thread."""
        with self._transaction() as connection:
            connection.execute(self._insert, self._row(submission, quote, current_claim))
            if self.joined:
                current_claim().complete_in(connection, quote)

    async def write_async(self, submission: Submission, quote: Quote) -> None:
        """Insert the row, from a task. SQLite has one writer and blocks the loop: use PostgreSQL for many tasks."""
        if not self._postgres:
            with self._transaction() as connection:
                connection.execute(self._insert, self._row(submission, quote, current_async_claim))
                if self.joined:
                    await current_async_claim().complete_in(connection, quote)
            return
        import psycopg

        async with await psycopg.AsyncConnection.connect(self._postgres) as connection:
            await connection.execute(self._insert.encode(), self._row(submission, quote, current_async_claim))
            if self.joined:
                await current_async_claim().complete_in(connection, quote)

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        if self._postgres:
            import psycopg

            with psycopg.connect(self._postgres) as connection:
                yield connection
        else:
            with closing(sqlite3.connect(self._path, timeout=WRITER_TIMEOUT, isolation_level=None)) as file, file:
                file.execute("BEGIN IMMEDIATE")
                yield file

    def _row(self, submission: Submission, quote: Quote, claim: Callable[[], BaseClaim]) -> tuple[str, ...]:
        row = submission.risk, quote.decision, str(quote.premium), quote.charge
        return (*row, claim().derived_key("row")) if self._keyed else row
