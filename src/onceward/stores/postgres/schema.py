"""The tables in the database, and their migrations.

A migration only adds (tables, columns with a default, indexes), so that an older Onceward can keep using the same
tables as a newer one. Where that is impossible, the migration raises `min_reader`, and older versions refuse them.
Onceward never creates or changes tables implicitly: run `onceward migrate`, or add `?migrate=1` to the URL.
"""

from __future__ import annotations

import time
from typing import Final

from onceward.errors import StoreNotSetUp, VersionSkew
from onceward.protocol.capabilities import Schema
from onceward.protocol.hints import migrate_hint

from .connection import PostgresConnection
from .errors import PostgresRefused
from .statements import Statements, migration

LATEST: Final = 1
"""The number of migrations. Migration n is `migrations/000n.sql`. Never edit a released one."""

MIGRATION_TIMEOUT: Final = 30.0  # seconds; a migration may have to wait for other transactions
LOCK_NOT_AVAILABLE: Final = "55P03"
LOCK_TIMEOUT: Final = 500  # ms
RETRY_DELAY: Final = 0.2  # seconds
_LOCK: Final = 0x6F6E6365776172  # "onceward": the advisory lock that serializes concurrent migrations


def migrations() -> tuple[str, ...]:
    return tuple(migration(number) for number in range(1, LATEST + 1))


async def examine(connection: PostgresConnection, statements: Statements, deadline: float) -> Schema:
    """Return the schema version of the database and the missing migrations."""
    version = await _meta(connection, statements, "schema_version", deadline)
    min_reader = await _meta(connection, statements, "min_reader", deadline) if version else 0
    latest = len(migrations())
    return Schema(version, latest, min_reader, tuple(changes(statements, version)) if version < latest else ())


async def prepare(connection: PostgresConnection, statements: Statements, deadline: float, *, migrate: bool) -> None:
    """Check the schema version, and migrate older tables if `migrate` is set. A migration has its own deadline."""
    found = await examine(connection, statements, deadline)
    if found.statements and migrate:
        deadline = time.monotonic() + MIGRATION_TIMEOUT
        await apply(connection, statements, deadline)
        found = await examine(connection, statements, deadline)
    if found.version < found.latest:
        state = f"schema version {found.version}" if found.version else "no Onceward tables"
        raise StoreNotSetUp(
            f"{connection.name} has {state}, and this Onceward needs version {found.latest}",
            hint=f"{migrate_hint(connection.name)}, call once.migrate(), or add ?migrate=1 to the URL",
        )
    if found.min_reader > found.latest:
        raise VersionSkew(
            f"{connection.name} has schema version {found.version}; "
            f"this Onceward supports {found.latest} and must not use it",
            hint="upgrade Onceward in this process",
        )


async def apply(connection: PostgresConnection, statements: Statements, deadline: float) -> None:
    """Run the migrations in one transaction. A second process that runs them finds nothing to do.

    An ALTER TABLE waits for the transactions that use the table, and blocks all later ones. So it times out soon,
    and is retried.
    """
    while True:
        try:
            await _apply(connection, statements, deadline)
        except PostgresRefused as error:
            await connection.command("ROLLBACK", deadline)
            if error.code != LOCK_NOT_AVAILABLE or time.monotonic() + RETRY_DELAY >= deadline:
                raise
        else:
            return
        await connection.runtime.sleep(RETRY_DELAY)


async def _apply(connection: PostgresConnection, statements: Statements, deadline: float) -> None:
    await connection.command(
        f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout = {LOCK_TIMEOUT}", deadline
    )
    await connection.query(f"SELECT pg_advisory_xact_lock({_LOCK}) IS NULL", deadline)
    for statement in changes(statements, await _meta(connection, statements, "schema_version", deadline)):
        await connection.command(statement, deadline)
    await connection.command("COMMIT", deadline)


def changes(statements: Statements, version: int) -> list[str]:
    """Return the statements from this version to the latest, to be executed in one transaction."""
    numbered = migrations()
    if version >= len(numbered):
        return []
    texts = [one.strip() for text in numbered[version:] for one in statements.fill(text).split("\n;\n")]
    if statements.prefix and not version:
        texts.insert(0, f"CREATE SCHEMA IF NOT EXISTS {statements.prefix.removesuffix('.')}")
    version_rows = [
        f"INSERT INTO {statements.prefix}onceward_meta AS mine (name, value) VALUES ('{name}', {value})"  # noqa: S608 (all ours)
        " ON CONFLICT (name) DO UPDATE SET value = greatest(mine.value, excluded.value)"
        for name, value in (("schema_version", len(numbered)), ("min_reader", 1))
    ]
    return texts + version_rows


async def _meta(connection: PostgresConnection, statements: Statements, name: str, deadline: float) -> int:
    table = f"{statements.prefix}onceward_meta"
    # Reading a catalogue makes the server notice tables that others have created. `to_regclass` alone may use what it
    # cached at the start of the transaction, before it waited for another migration.
    if await connection.query(
        "SELECT to_regclass($1::text) IS NULL FROM pg_catalog.pg_class LIMIT 1", deadline, table
    ) == [(True,)]:
        return 0
    rows = await connection.query(f"SELECT value FROM {table} WHERE name = $1::text", deadline, name)  # noqa: S608 (our own)
    return int(rows[0][0]) if rows else 0
