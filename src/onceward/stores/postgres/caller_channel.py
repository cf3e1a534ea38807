"""The caller's connection in the middle of their transaction: psycopg's (either colour) or asyncpg's."""

from __future__ import annotations

import time
from typing import Any, Protocol

import psycopg
from psycopg import pq

from onceward.errors import ConfigurationError, StoreUnavailable
from onceward.protocol.runtime import Runtime

from .connection import PostgresConnection
from .errors import PostgresRefused
from .row_reader import Rows
from .statements import Statement
from .values import escaped, unescaped

IDLE, UNKNOWN = pq.TransactionStatus.IDLE, pq.TransactionStatus.UNKNOWN
AUTOCOMMIT = "this connection is in autocommit mode, so there is no transaction to join"
YOURS = "your transaction"


class CallerChannel(Protocol):
    """How statements reach the caller's connection."""

    async def begin(self) -> None:
        """See to it that a transaction is open, as the caller's own next statement would."""

    async def rows(self, deadline: float, statement: Statement, *values: Any) -> Rows: ...
    async def command(self, text: str, deadline: float) -> None: ...
    def is_open(self) -> bool: ...


class PsycopgChannel:
    """Past psycopg's cursors, which the caller may have taught other types: straight to libpq, with our deadlines."""

    def __init__(self, connection: Any, runtime: Runtime) -> None:
        if isinstance(connection, psycopg.AsyncConnection) and not runtime.supports_cancellation:
            raise ConfigurationError("an AsyncConnection cannot be used without an event loop", hint="use AsyncOnce")
        if connection.closed:
            raise ConfigurationError("this connection is closed", hint="join it while it is open")
        self._connection = connection
        self._wire = PostgresConnection(connection.pgconn, runtime, YOURS)
        self._wire.prepares = False
        if connection.pgconn.pipeline_status != pq.PipelineStatus.OFF:
            raise ConfigurationError("this connection is in pipeline mode", hint="leave the pipeline first")

    async def begin(self) -> None:
        if self._connection.pgconn.transaction_status != IDLE:
            return
        if self._connection.autocommit:
            raise ConfigurationError(AUTOCOMMIT, hint="open one first: with connection.transaction():")
        begun = self._connection.execute("SELECT 1")
        if isinstance(self._connection, psycopg.AsyncConnection):
            await begun

    async def rows(self, deadline: float, statement: Statement, *values: Any) -> Rows:
        try:
            return await self._wire.rows(deadline, statement, *values)
        except PostgresRefused:
            raise
        except BaseException:
            self._wire.close()  # in the middle of an exchange: nobody can go on from there
            raise

    async def command(self, text: str, deadline: float) -> None:
        try:
            await self._wire.command(text, deadline)
        except PostgresRefused:
            raise
        except BaseException:
            self._wire.close()
            raise

    def is_open(self) -> bool:
        return self._connection.pgconn.transaction_status not in (IDLE, UNKNOWN)


class AsyncpgChannel:
    """asyncpg encodes by itself; only what no text of PostgreSQL holds is ours to see to."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def begin(self) -> None:
        if not self._connection.is_in_transaction():
            raise ConfigurationError(AUTOCOMMIT, hint="open one first: async with connection.transaction():")

    async def rows(self, deadline: float, statement: Statement, *values: Any) -> Rows:
        try:
            found = await self._connection.fetch(
                statement.text, *[_outgoing(value) for value in values], timeout=_left(deadline)
            )
        except Exception as error:
            raise _explained(error) from error
        return [tuple([_incoming(value) for value in row.values()]) for row in found]

    async def command(self, text: str, deadline: float) -> None:
        try:
            await self._connection.execute(text, timeout=_left(deadline))
        except Exception as error:
            raise _explained(error) from error

    def is_open(self) -> bool:
        return not self._connection.is_closed() and self._connection.is_in_transaction()


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)


def _outgoing(value: Any) -> Any:
    if isinstance(value, str):
        return escaped(value)
    return [_outgoing(one) for one in value] if isinstance(value, list) else value


def _incoming(value: Any) -> Any:
    return unescaped(value) if isinstance(value, str) else value


def _explained(error: Exception) -> Exception:
    """Errors of asyncpg are known by their SQLSTATE; its class is not imported for that."""
    code = getattr(error, "sqlstate", None)
    if isinstance(code, str):
        return PostgresRefused(code, str(error))
    if isinstance(error, TimeoutError | OSError) or type(error).__module__.startswith("asyncpg."):
        return StoreUnavailable(f"{YOURS}: no answer, or the connection broke ({error!r})", hint="roll it back")
    return error


def line_of(connection: Any, runtime: Runtime) -> CallerChannel:
    """For the driver's own connection."""
    if isinstance(connection, psycopg.Connection | psycopg.AsyncConnection):
        return PsycopgChannel(connection, runtime)
    if type(connection).__module__.startswith("asyncpg."):
        return AsyncpgChannel(connection)
    raise ConfigurationError(
        f"cannot join a {type(connection).__module__}.{type(connection).__qualname__}",
        hint="hand over a connection of psycopg 3 or asyncpg, or what SQLAlchemy or Django make of one",
    )
