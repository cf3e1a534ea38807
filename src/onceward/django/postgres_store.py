"""PostgresStore on Django's own connection: for tests.

In a transaction that Django has opened, each call is a savepoint in it. Otherwise each call commits.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from onceward.errors import StoreError, StoreUnavailable
from onceward.protocol.ports import Clock
from onceward.protocol.runtime import Runtime
from onceward.stores.postgres import PostgresStore
from onceward.stores.postgres.connection import Call, PostgresConnection, Rows
from onceward.stores.postgres.errors import RETRYABLE, PostgresRefused, explain
from onceward.stores.postgres.maintenance import CallContext
from onceward.stores.postgres.statements import Statement
from onceward.stores.postgres.store import OPEN_TIMEOUT, RETRY_DELAY

from .connection_access import django_connection
from .database_store import postgres_settings

T = TypeVar("T")

CALL, BLOCK = "onceward_call", "onceward_block"
"""The savepoints of a call, and of a transaction that the call opens."""

AS_SAVEPOINT = {
    "BEGIN": f"SAVEPOINT {BLOCK}",
    "COMMIT": f"RELEASE SAVEPOINT {BLOCK}",
    "ROLLBACK": f"ROLLBACK TO SAVEPOINT {BLOCK}",
}


class SavepointConnection(PostgresConnection):
    """Django's connection inside a transaction: BEGIN, COMMIT and ROLLBACK become savepoints."""

    async def command(self, text: str, deadline: float) -> None:
        await super().command(_as_savepoint(text), deadline)

    async def run(self, deadline: float, *calls: Call) -> list[Rows]:
        changed = [(Statement(_as_savepoint(one.text)) if _is_control(one.text) else one, two) for one, two in calls]
        return await super().run(deadline, *changed)


class DjangoPostgresStore(PostgresStore):
    """Keeps the records on Django's connection, so that a rollback by Django takes them along."""

    def __init__(self, connection: Any, clock: Clock | None) -> None:
        super().__init__(postgres_settings(connection), clock=clock)
        self._alias = connection.alias

    async def open(self, runtime: Runtime) -> None:
        """Open without a batcher: a request must not travel on the connection of another thread."""
        self._runtime = runtime
        await self._run_until(time.monotonic() + OPEN_TIMEOUT, self._prepare)

    async def close(self) -> None:
        """Do nothing: Django closes its connections."""

    async def _run_until(self, deadline: float, work: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        runtime = self._runtime
        if runtime is None:
            raise StoreUnavailable(f"{self.name} is not open", hint="open the store before you use it")
        with django_connection(self._alias) as connection:
            kind = SavepointConnection if connection.in_atomic_block else PostgresConnection
            channel = kind(connection.connection.pgconn, runtime, self.name)
            channel.prepares = False
            context = CallContext(channel, self._table, self._now(), deadline)
            while True:
                try:
                    if connection.in_atomic_block:
                        return await _in_savepoint(channel, deadline, work(context, *arguments))
                    return await work(context, *arguments)
                except PostgresRefused as error:
                    retries = error.code in RETRYABLE and not connection.in_atomic_block
                    if not retries or time.monotonic() + RETRY_DELAY >= deadline:
                        raise explain(error, self.name) from error
                await runtime.sleep(RETRY_DELAY)

    async def _run_separately(self, runtime: Runtime, deadline: float, work: Callable[..., Awaitable[T]]) -> T:
        """Run on Django's connection as well: another one would not see tables that are not committed."""
        self._runtime = runtime

        async def on_connection(context: CallContext) -> T:
            return await work(context.connection, self._table.statements, deadline)

        return await self._run_until(deadline, on_connection)


async def _in_savepoint(channel: PostgresConnection, deadline: float, work: Awaitable[T]) -> T:
    await channel.command(f"SAVEPOINT {CALL}", deadline)
    try:
        result = await work
    except BaseException:
        with suppress(StoreError, PostgresRefused):
            await channel.command(f"ROLLBACK TO SAVEPOINT {CALL}; RELEASE SAVEPOINT {CALL}", deadline)
        raise
    await channel.command(f"RELEASE SAVEPOINT {CALL}", deadline)
    return result


def _is_control(text: str) -> bool:
    return text.split(maxsplit=1)[0] in AS_SAVEPOINT


def _as_savepoint(text: str) -> str:
    return AS_SAVEPOINT.get(text.split(maxsplit=1)[0], text)
