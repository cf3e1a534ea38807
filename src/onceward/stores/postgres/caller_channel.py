"""Send statements on the caller's connection, inside the caller's transaction: psycopg (sync or async) or asyncpg.

Every call has a deadline. If it passes, the connection is closed: a late reply must not be read as the reply to the
caller's next statement. The server then rolls the transaction back.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

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
TIMED_OUT = "the server did not answer in time, so Onceward closed the connection, which rolls the transaction back"
REPEAT_HINT = "repeat the transaction on a new connection"


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

    async def begin(self, deadline: float) -> None:
        """Open a transaction if none is open, as the caller's next statement would."""
        if self._caller_connection.pgconn.transaction_status != IDLE:
            return
        if self._caller_connection.autocommit:
            raise ConfigurationError(AUTOCOMMIT, hint="open one first: with connection.transaction():")
        await self.command(_begin_statement(self._caller_connection), deadline)

    async def rows(self, deadline: float, statement: Statement, *values: Any) -> Rows:
        with self._loss_explained():
            return await self._connection.rows(deadline, statement, *values)

    async def command(self, text: str, deadline: float) -> None:
        with self._loss_explained():
            await self._connection.command(text, deadline)

    @contextmanager
    def _loss_explained(self) -> Iterator[None]:
        try:
            yield
        except StoreUnavailable as error:
            reason = f"the connection broke: {self._connection.lost}" if self._connection.lost else TIMED_OUT
            raise _lost_error(reason) from error

    def is_open(self) -> bool:
        return self._caller_connection.pgconn.transaction_status not in (IDLE, UNKNOWN)

    def is_lost(self) -> bool:
        """Return whether the connection broke, or was closed at a deadline."""
        return bool(self._caller_connection.broken)

    @asynccontextmanager
    async def closed_at(self, deadline: float) -> AsyncIterator[None]:
        """Close the connection at the deadline if calls of the caller's own library in this block are still waiting.

        psycopg has no deadline, and keeps waiting if it is cancelled. So this method shuts its socket down.
        """
        cutter = SocketCutter(self._caller_connection.pgconn)
        timer = threading.Timer(_remaining(deadline), cutter.cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        except Exception as error:
            if cutter.has_cut:
                raise _lost_error(TIMED_OUT) from error
            raise
        finally:
            timer.cancel()
            cutter.stop()


class SocketCutter:
    """Shuts a connection's socket down, from another thread."""

    def __init__(self, pgconn: Any) -> None:
        self._pgconn = pgconn
        self._lock = threading.Lock()
        self._stopped = False
        self.has_cut = False

    def cut(self) -> None:
        with self._lock, suppress(OSError, psycopg.Error):  # closed meanwhile
            if not self._stopped:
                self.has_cut = True
                own = socket.socket(fileno=self._pgconn.socket)
                try:
                    own.shutdown(socket.SHUT_RDWR)
                finally:
                    own.detach()  # libpq closes it

    def stop(self) -> None:
        with self._lock:
            self._stopped = True


class AsyncpgChannel:
    """Uses asyncpg, which encodes the values. We only escape characters that PostgreSQL's text cannot contain."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def begin(self, deadline: float) -> None:  # noqa: ARG002 (nothing is sent)
        if not self._connection.is_in_transaction():
            raise ConfigurationError(AUTOCOMMIT, hint="open one first: async with connection.transaction():")

    async def rows(self, deadline: float, statement: Statement, *values: Any) -> Rows:
        try:
            found = await self._connection.fetch(
                statement.text, *[_escape_value(value) for value in values], timeout=_remaining(deadline)
            )
        except Exception as error:
            raise self._translated(error) from error
        return [tuple([_unescape_value(value) for value in row.values()]) for row in found]

    async def command(self, text: str, deadline: float) -> None:
        try:
            await self._connection.execute(text, timeout=_remaining(deadline))
        except Exception as error:
            raise self._translated(error) from error

    def is_open(self) -> bool:
        return not self._connection.is_closed() and self._connection.is_in_transaction()

    def is_lost(self) -> bool:
        return bool(self._connection.is_closed())

    @asynccontextmanager
    async def closed_at(self, deadline: float) -> AsyncIterator[None]:
        from onceward.stores.loop_timeout import loop_timeout

        try:
            async with loop_timeout(_remaining(deadline)):
                yield
        except TimeoutError as error:
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> Exception:
        """Convert an asyncpg error to one of ours. It is recognised by its SQLSTATE, without importing asyncpg."""
        code = getattr(error, "sqlstate", None)
        if isinstance(code, str):
            return PostgresRefused(code, str(error))
        if isinstance(error, TimeoutError):
            self._connection.terminate()
            return _lost_error(TIMED_OUT)
        if isinstance(error, OSError) or type(error).__module__.startswith("asyncpg."):
            return _lost_error(f"the connection broke: {error!r}")
        return error


CallerChannel = PsycopgChannel | AsyncpgChannel
"""Sends statements on the caller's connection."""


def _remaining(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)


def _escape_value(value: Any) -> Any:
    if isinstance(value, str):
        return escape(value)
    return [_escape_value(one) for one in value] if isinstance(value, list) else value


def _unescape_value(value: Any) -> Any:
    return unescape(value) if isinstance(value, str) else value


def _lost_error(reason: str) -> StoreUnavailable:
    return StoreUnavailable(f"{YOUR_TRANSACTION}: {reason}", hint=REPEAT_HINT)


def _begin_statement(connection: Any) -> str:
    """Return the statement with which psycopg begins a transaction on this connection."""
    parts = ["BEGIN"]
    if connection.isolation_level is not None:
        level = psycopg.IsolationLevel(connection.isolation_level)
        parts.append(f"ISOLATION LEVEL {level.name.replace('_', ' ')}")
    if connection.read_only is not None:
        parts.append("READ ONLY" if connection.read_only else "READ WRITE")
    if connection.deferrable is not None:
        parts.append("DEFERRABLE" if connection.deferrable else "NOT DEFERRABLE")
    return " ".join(parts)


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
