"""Send statements on the caller's connection, inside the caller's transaction: psycopg (sync or async) or asyncpg."""

from __future__ import annotations

import time
from typing import Any, Protocol

import psycopg
from psycopg import pq

from onceward.errors import ConfigurationError, StoreUnavailable
from onceward.protocol.runtime import Runtime

from .connection import PostgresConnection, Rows
from .errors import PostgresRefused
from .statements import Statement
from .values import escape, unescape

IDLE, UNKNOWN = pq.TransactionStatus.IDLE, pq.TransactionStatus.UNKNOWN
AUTOCOMMIT = "this connection is in autocommit mode, so there is no transaction to join"
YOUR_TRANSACTION = "your transaction"


class CallerChannel(Protocol):
    """Sends statements on the caller's connection."""

    async def begin(self) -> None:
        """Make sure that a transaction is open, as the caller's next statement would."""

    async def rows(self, deadline: float, statement: Statement, *values: Any) -> Rows: ...
    async def command(self, text: str, deadline: float) -> None: ...
    def is_open(self) -> bool: ...


class PsycopgChannel:
    """Uses the caller's connection with our deadlines and types. If a deadline passes, the connection is closed."""

    def __init__(self, connection: Any, runtime: Runtime) -> None:
        if isinstance(connection, psycopg.AsyncConnection) and not runtime.supports_cancellation:
            raise ConfigurationError("an AsyncConnection cannot be used without an event loop", hint="use AsyncOnce")
        if connection.closed:
            raise ConfigurationError("this connection is closed", hint="join it while it is open")
        self._caller_connection = connection
        self._connection = PostgresConnection(connection.pgconn, runtime, YOUR_TRANSACTION)
        self._connection.prepares = False
        if connection.pgconn.pipeline_status != pq.PipelineStatus.OFF:
            raise ConfigurationError("this connection is in pipeline mode", hint="leave the pipeline first")

    async def begin(self) -> None:
        if self._caller_connection.pgconn.transaction_status != IDLE:
            return
        if self._caller_connection.autocommit:
            raise ConfigurationError(AUTOCOMMIT, hint="open one first: with connection.transaction():")
        result = self._caller_connection.execute("SELECT 1")
        if isinstance(self._caller_connection, psycopg.AsyncConnection):
            await result

    async def rows(self, deadline: float, statement: Statement, *values: Any) -> Rows:
        return await self._connection.rows(deadline, statement, *values)

    async def command(self, text: str, deadline: float) -> None:
        await self._connection.command(text, deadline)

    def is_open(self) -> bool:
        return self._caller_connection.pgconn.transaction_status not in (IDLE, UNKNOWN)


class AsyncpgChannel:
    """Uses asyncpg, which encodes the values. We only escape characters that PostgreSQL's text cannot contain."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def begin(self) -> None:
        if not self._connection.is_in_transaction():
            raise ConfigurationError(AUTOCOMMIT, hint="open one first: async with connection.transaction():")

    async def rows(self, deadline: float, statement: Statement, *values: Any) -> Rows:
        try:
            found = await self._connection.fetch(
                statement.text, *[_escape_value(value) for value in values], timeout=_remaining(deadline)
            )
        except Exception as error:
            raise _translate_error(error) from error
        return [tuple([_unescape_value(value) for value in row.values()]) for row in found]

    async def command(self, text: str, deadline: float) -> None:
        try:
            await self._connection.execute(text, timeout=_remaining(deadline))
        except Exception as error:
            raise _translate_error(error) from error

    def is_open(self) -> bool:
        return not self._connection.is_closed() and self._connection.is_in_transaction()


def _remaining(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)


def _escape_value(value: Any) -> Any:
    if isinstance(value, str):
        return escape(value)
    return [_escape_value(one) for one in value] if isinstance(value, list) else value


def _unescape_value(value: Any) -> Any:
    return unescape(value) if isinstance(value, str) else value


def _translate_error(error: Exception) -> Exception:
    """Return our error for an error of asyncpg. It is recognised by its SQLSTATE, without importing asyncpg."""
    code = getattr(error, "sqlstate", None)
    if isinstance(code, str):
        return PostgresRefused(code, str(error))
    if isinstance(error, TimeoutError | OSError) or type(error).__module__.startswith("asyncpg."):
        return StoreUnavailable(
            f"{YOUR_TRANSACTION}: no answer, or the connection broke ({error!r})", hint="roll it back"
        )
    return error


def channel_for(connection: Any, runtime: Runtime) -> CallerChannel:
    """Return the channel for a driver's connection."""
    if isinstance(connection, psycopg.Connection | psycopg.AsyncConnection):
        return PsycopgChannel(connection, runtime)
    if type(connection).__module__.startswith("asyncpg."):
        return AsyncpgChannel(connection)
    raise ConfigurationError(
        f"cannot join a {type(connection).__module__}.{type(connection).__qualname__}",
        hint="pass a connection of psycopg 3 or asyncpg, or a SQLAlchemy or Django connection that uses one of them",
    )
