"""SQLiteStore on Django's own connection: for tests, and for databases in memory.

In a transaction that Django has opened, each call is a savepoint in it. Otherwise each call commits.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from django.db import connections

from onceward.errors import ConfigurationError
from onceward.protocol.capabilities import Schema, Transactions
from onceward.protocol.ports import Clock
from onceward.protocol.runtime import Runtime
from onceward.stores.caller_connection import driver_connection, transaction_block
from onceward.stores.sqlite import SQLiteStore
from onceward.stores.sqlite import errors as sqlite_errors
from onceward.stores.sqlite.connection import MEMORY, SQLiteConnection
from onceward.stores.sqlite.joined import SQLiteJoined
from onceward.stores.sqlite.schema import examine_open, prepare

from .connection_access import django_connection

T = TypeVar("T")
Cursor = sqlite3.Cursor

_savepoint_numbers = itertools.count(1)


class DjangoSQLiteConnection(SQLiteConnection):
    """Runs each call on Django's connection of the calling thread."""

    def __init__(self, alias: str, name: str) -> None:
        super().__init__(MEMORY, name, "FULL", migrate=False)
        self._alias = alias

    def open(self) -> None:
        with django_connection(self._alias) as connection:
            prepare(sqlite3.Cursor(connection.connection), self.name, migrate=False)

    def close(self) -> None:
        """Do nothing: Django closes its connections."""

    def run(self, deadline: float, work: Callable[..., T], *arguments: Any) -> T:  # noqa: ARG002 (Django's own timeout)
        with django_connection(self._alias) as connection:
            cursor = Cursor(connection.connection)
            try:
                return work(cursor, *arguments)
            except sqlite3.Error as error:
                raise sqlite_errors.explain(error, self.name) from error
            finally:
                cursor.close()

    def try_fetch(self, statement: str, id: bytes) -> tuple[Any, ...] | None:  # noqa: ARG002 (never without a check)
        return None

    def write(self, cursor: Cursor, work: Callable[..., T], *arguments: Any) -> T:
        if not connections[self._alias].in_atomic_block:
            with cursor.connection:
                cursor.execute("BEGIN IMMEDIATE")
                return work(cursor, *arguments)
        savepoint = f"onceward_call_{next(_savepoint_numbers)}"
        cursor.execute(f"SAVEPOINT {savepoint}")
        try:
            result = work(cursor, *arguments)
        except BaseException:
            cursor.execute(f"ROLLBACK TO {savepoint}")
            cursor.execute(f"RELEASE {savepoint}")
            raise
        cursor.execute(f"RELEASE {savepoint}")
        return result


class DjangoSQLiteStore(SQLiteStore):
    """Keeps the records on Django's connection, so that a rollback by Django takes them along."""

    def __init__(self, alias: str, clock: Clock | None) -> None:
        super().__init__(MEMORY, clock=clock, migrate=False)
        self.inline = False
        self.name = f"the database {alias!r} of Django"
        self._alias = alias
        self._connection = DjangoSQLiteConnection(alias, self.name)

    async def open(self, runtime: Runtime) -> None:
        """Open without a batcher: a request must not travel on the connection of another thread."""
        self._connection.open()
        self._runtime = runtime

    @property
    def transactions(self) -> Transactions:
        return self

    def join(self, connection: Any, runtime: Runtime) -> SQLiteJoined:
        driver = driver_connection(connection, runtime)
        if connection is not connections[self._alias]:
            raise ConfigurationError(
                f"this connection is not the one on {self.name}: the two cannot commit together",
                hint=f"pass django.db.connections[{self._alias!r}]",
            )
        block = transaction_block(connection)
        return SQLiteJoined(driver, runtime, self._clock, self.name, block=block, wrapper=connection)

    async def schema(self, runtime: Runtime, *, timeout: float) -> Schema:  # noqa: ARG002 (Django's own timeout)
        with django_connection(self._alias) as connection:
            return examine_open(Cursor(connection.connection))
