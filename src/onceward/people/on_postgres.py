"""The tables of people in PostgreSQL.

Writers lock what they decide about. Each key and blocking key belongs to one of 256 stripes, and a transaction holds
the advisory locks of its stripes, acquired in order, until it ends. So two transactions that could create the same
person run one after the other, and the second sees what the first has written. The primary keys of the tables are a
second safeguard.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final
from zlib import crc32

import psycopg
from psycopg.pq import TransactionStatus

from onceward.errors import ConfigurationError, RetryTransaction, StoreBroken, StoreUnavailable
from onceward.runtime.threads import ThreadRuntime
from onceward.stores.caller_connection import driver_connection
from onceward.stores.postgres.errors import RETRYABLE, PostgresRefused, explain
from onceward.stores.postgres.url import parse

from . import schema
from .base_database import BaseDatabase
from .tables import Row, Tables

Connection = psycopg.Connection[Any]

STRIPES: Final = 256
"""Few enough for the server's lock table, whatever the batch; enough that single records rarely block each other."""

TEXTS: Final = "unnest(%s::text[]) AS wanted(value)"
CANDIDATES: Final = """
SELECT wanted.block, near.number FROM unnest(%s::bigint[]) AS wanted(block) CROSS JOIN LATERAL (
SELECT number FROM {t}onceward_blocking WHERE block = wanted.block ORDER BY number DESC LIMIT %s) AS near
"""
NUMBERS: Final = """
SELECT nextval(pg_get_serial_sequence('{t}onceward_contributions', 'number')) FROM generate_series(1, %s)
"""
LOCK_STRIPES: Final = """
SELECT pg_advisory_xact_lock(%s, stripe) IS NULL
FROM (SELECT stripe FROM unnest(%s::int[]) AS stripe ORDER BY stripe) AS sorted
"""
LOCK_PEOPLE: Final = """
SELECT id, merged_into IS NOT NULL FROM {t}onceward_people WHERE id = ANY(%s::text[]) ORDER BY id FOR UPDATE
"""
"""Waits for a transaction that is changing one of these rows, and then reads what that transaction committed."""

UNIQUE_VIOLATION: Final = "23505"  # SQLSTATE: a writer without the locks was faster


@cache
def _complete_sql(statement: str, prefix: str) -> str:
    return statement.replace("?", "%s").format(**schema.POSTGRES, t=prefix, texts=TEXTS)


class PostgresTables:
    """One open transaction."""

    def __init__(self, connection: Connection, prefix: str) -> None:
        self._cursor: psycopg.Cursor[Any] = psycopg.Cursor(connection)
        self._prefix = prefix

    def run(self, statement: str, *values: Any) -> list[Row]:
        return self._rows(_complete_sql(statement, self._prefix), values)

    def _rows(self, statement: str, values: Sequence[Any]) -> list[Row]:
        self._cursor.execute(statement.encode(), values)
        return self._cursor.fetchall() if self._cursor.description else []

    def run_many(self, statement: str, rows: Sequence[Row]) -> None:
        if rows:
            self._cursor.executemany(_complete_sql(statement, self._prefix).encode(), rows)

    def execute(self, statement: str, values: Sequence[Any]) -> list[Row]:
        return self._rows(statement.replace("%", "%%").replace("?", "%s"), values)

    def has_table(self, name: str) -> bool:
        """Return whether the table exists. Reading from `pg_class` shows tables that other sessions created."""
        [(exists,)] = self.execute("SELECT to_regclass(?) IS NOT NULL FROM pg_class LIMIT 1", (self._prefix + name,))
        return bool(exists)

    def candidates(self, blocks: Sequence[int], most: int) -> Iterable[tuple[int, int]]:
        rows: list[Any] = self._rows(CANDIDATES.format(t=self._prefix), (list(blocks), most))
        return rows

    def allocate_numbers(self, count: int) -> Sequence[int]:
        return [number for (number,) in self._rows(NUMBERS.format(t=self._prefix), (count,))]

    def lock_keys(self, keys: Iterable[int]) -> bool:
        stripes = sorted({key % STRIPES for key in keys})
        if stripes:
            self._rows(LOCK_STRIPES, (_lock_namespace(self._prefix), stripes))
        return bool(stripes)

    def lock_all(self) -> None:
        self.lock_keys(range(STRIPES))

    def lock_people(self, people: Sequence[str]) -> None:
        rows = self._rows(LOCK_PEOPLE.format(t=self._prefix), (sorted(people),))
        merged = [person for person, is_merged in rows if is_merged]
        if merged:
            raise RetryTransaction(
                f"another transaction merged {', '.join(merged)} into other people", hint="roll back and retry"
            )


def _lock_namespace(prefix: str) -> int:
    """Return the first half of the advisory lock keys for the tables in this schema."""
    plain = prefix.replace('"', "")  # the number that earlier builds use, which did not quote the schema
    return crc32(f"onceward people {plain}".encode()) - (1 << 31)


class PostgresDatabase(BaseDatabase[Connection]):
    """The tables in a schema. Connects again after a lost connection."""

    begin = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
    begin_reading = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    driver_error = psycopg.Error

    def __init__(self, url: str) -> None:
        super().__init__()
        settings = parse(url)
        self._conninfo = settings.conninfo
        self._migrate = settings.migrate
        self._prepare = settings.prepare
        self._prefix = f'"{settings.schema}".' if settings.schema else ""
        self.name = settings.name
        self._owner = 0
        self._inherited: list[Connection] = []

    @property
    def connection(self) -> Connection:
        """The driver's connection."""
        if self._owner != os.getpid() and self._connection is not None:
            self._inherited.append(self._connection)  # closing it would end the parent's session
            self._connection = None
        if self._connection is None or self._connection.closed:
            self._connection = self._connect()
            self._owner = os.getpid()
        return self._connection

    def _tables(self, connection: Connection) -> PostgresTables:
        return PostgresTables(connection, self._prefix)

    def _is_open(self, connection: Connection) -> bool:
        return not connection.closed and connection.info.transaction_status != TransactionStatus.IDLE

    @contextmanager
    def joined(self, connection: Any) -> Iterator[PostgresTables]:
        """Join the caller's transaction. If the block fails, its changes are undone; nothing is committed here."""
        with self._lock, self._explained():
            _ = self.connection  # creates or checks the tables, outside of the caller's transaction
        theirs = driver_connection(connection, ThreadRuntime())
        if not isinstance(theirs, psycopg.Connection):
            raise ConfigurationError(
                f"cannot join a {type(theirs).__module__}.{type(theirs).__qualname__}",
                hint="pass a psycopg.Connection to the same database",
            )
        if theirs.autocommit and theirs.info.transaction_status == TransactionStatus.IDLE:
            raise ConfigurationError(
                "this connection is in autocommit mode, so there is no transaction to join",
                hint="open one first: with connection.transaction():",
            )
        with self._explained():
            tables = PostgresTables(theirs, self._prefix)
            [(isolation,)] = tables.execute("SELECT current_setting('transaction_isolation')", ())
            if isolation != "read committed":
                raise ConfigurationError(
                    f"this transaction is {isolation}: it does not see people created since it began",
                    hint="use a READ COMMITTED transaction",
                )
            tables.execute("SAVEPOINT onceward_people", ())
            try:
                yield tables
            except BaseException:
                if not theirs.closed:
                    tables.execute("ROLLBACK TO onceward_people", ())
                raise
            tables.execute("RELEASE onceward_people", ())

    def close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None and self._owner == os.getpid():
                connection.close()

    def _translate(self, error: psycopg.Error) -> Exception:
        code = error.sqlstate
        if code in RETRYABLE or code == UNIQUE_VIOLATION:
            return RetryTransaction(
                f"{self.name}: another transaction changed the same people ({code})", hint="roll back and retry"
            )
        if code is None:
            return StoreUnavailable(
                f"{self.name}: {str(error).strip()}", hint="is the server running, and is the URL right?"
            )
        return explain(PostgresRefused(code, str(error).strip()), self.name)

    def _connect(self) -> Connection:
        connection = psycopg.connect(
            self._conninfo, autocommit=True, prepare_threshold=5 if self._prepare in (None, True) else None
        )
        try:
            self._create_tables(connection, schema.POSTGRES | {"t": self._prefix})
        except BaseException:
            connection.close()
            raise
        return connection

    def _lock_creation(self, tables: Tables, reason: str) -> None:
        if not self._migrate:
            raise StoreBroken(f"{self.name} {reason}", hint="add ?migrate=1 to the URL once")
        tables.execute("BEGIN", ())
        tables.execute("SELECT pg_advisory_xact_lock(?, 0)", (_lock_namespace(self._prefix) ^ 1,))

    def _create_schema(self, tables: Tables) -> None:
        if self._prefix:
            tables.execute(f"CREATE SCHEMA IF NOT EXISTS {self._prefix.removesuffix('.')}", ())
