"""The tables in the database, and how older ones become newer ones.

A migration only adds (tables, columns with a default, indexes), so that an older Onceward can go on working beside a
newer one on the same tables. Where that is impossible, the migration raises `min_reader`, and older ones refuse.
Nothing is made or changed unless somebody asks for it: `onceward migrate`, or `?migrate=1`.
"""

from __future__ import annotations

import time
from typing import Final

from onceward.errors import StoreNotSetUp, VersionSkew
from onceward.protocol.capabilities import Schema

from .connection import PostgresConnection
from .errors import PostgresRefused
from .statements import Statements, migration

LATEST: Final = 3
"""How many migrations there are. Number n is `migrations/000n.sql`. Never edit one that was released."""

LOCK_NOT_AVAILABLE: Final = "55P03"
SOON: Final = 500  # ms
PAUSE: Final = 0.2  # seconds
_LOCK: Final = 0x6F6E6365776172  # "onceward", so that two who migrate at once do it one after the other


def migrations() -> tuple[str, ...]:
    return tuple(migration(number) for number in range(1, LATEST + 1))


async def examine(wire: PostgresConnection, statements: Statements, deadline: float) -> Schema:
    """What the database holds and what it lacks."""
    version = await _meta(wire, statements, "schema_version", deadline)
    min_reader = await _meta(wire, statements, "min_reader", deadline) if version else 0
    latest = len(migrations())
    return Schema(version, latest, min_reader, tuple(changes(statements, version)) if version < latest else ())


async def prepare(wire: PostgresConnection, statements: Statements, deadline: float, *, migrate: bool) -> None:
    """Check the version, and bring older tables up to date if that was asked for."""
    found = await examine(wire, statements, deadline)
    if found.statements and migrate:
        await apply(wire, statements, deadline)
        found = await examine(wire, statements, deadline)
    if found.version < found.latest:
        what = f"schema version {found.version}" if found.version else "no tables of Onceward"
        raise StoreNotSetUp(
            f"{wire.name} has {what}, and this Onceward needs version {found.latest}",
            hint="run `onceward migrate`, call once.migrate(), or add ?migrate=1 to the URL",
        )
    if found.min_reader > found.latest:
        raise VersionSkew(
            f"{wire.name} has schema version {found.version}; this Onceward supports {found.latest} and must not use it",
            hint="upgrade Onceward in this process",
        )


async def apply(wire: PostgresConnection, statements: Statements, deadline: float) -> None:
    """All of it in one transaction; whoever comes second finds it done.

    A change of a table waits for whoever uses it, and whoever comes meanwhile waits behind: so it is given up soon,
    and tried again.
    """
    while True:
        try:
            await _apply(wire, statements, deadline)
        except PostgresRefused as error:
            await wire.command("ROLLBACK", deadline)
            if error.code != LOCK_NOT_AVAILABLE or time.monotonic() + PAUSE >= deadline:
                raise
        else:
            return
        await wire.runtime.sleep(PAUSE)


async def _apply(wire: PostgresConnection, statements: Statements, deadline: float) -> None:
    await wire.command(f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout = {SOON}", deadline)
    await wire.ask(f"SELECT pg_advisory_xact_lock({_LOCK}) IS NULL", deadline)
    for statement in changes(statements, await _meta(wire, statements, "schema_version", deadline)):
        await wire.command(statement, deadline)
    await wire.command("COMMIT", deadline)


def changes(statements: Statements, version: int) -> list[str]:
    """What leads from this version to the latest, to be executed in one transaction."""
    numbered = migrations()
    if version >= len(numbered):
        return []
    texts = [one.strip() for text in numbered[version:] for one in statements.filled(text).split("\n;\n")]
    if statements.prefix and not version:
        texts.insert(0, f"CREATE SCHEMA IF NOT EXISTS {statements.prefix.removesuffix('.')}")
    noted = [
        f"INSERT INTO {statements.prefix}onceward_meta AS mine (name, value) VALUES ('{name}', {value})"  # noqa: S608 (all ours)
        " ON CONFLICT (name) DO UPDATE SET value = greatest(mine.value, excluded.value)"
        for name, value in (("schema_version", len(numbered)), ("min_reader", 1))
    ]
    return texts + noted


async def _meta(wire: PostgresConnection, statements: Statements, name: str, deadline: float) -> int:
    table = f"{statements.prefix}onceward_meta"
    # To read a catalogue makes the server look at what others have made meanwhile. To_regclass alone may go by what it
    # remembers from the begin of the transaction, before it waited for whoever migrates.
    if await wire.ask("SELECT to_regclass($1::text) IS NULL FROM pg_catalog.pg_class LIMIT 1", deadline, table) == [
        (True,)
    ]:
        return 0
    rows = await wire.ask(f"SELECT value FROM {table} WHERE name = $1::text", deadline, name)  # noqa: S608 (our own)
    return int(rows[0][0]) if rows else 0
