"""A psycopg connection with a deadline for each exchange.

psycopg sends statements and reads rows. It waits for the socket in `Connection.wait`, which has no deadline; here the
runtime waits, until the deadline of the call. A deadline, a cancellation or a signal may interrupt an exchange. The
connection then has an unread reply, and is closed. The server notices that within a second and cancels the statement.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from typing import Any, ClassVar, Protocol, TypeVar

import psycopg
from psycopg import pq
from psycopg.abc import PQGen
from psycopg.adapt import AdaptersMap
from psycopg.pq.abc import PGconn
from psycopg.waiting import Ready, Wait

from onceward.errors import StoreUnavailable
from onceward.protocol.runtime import Runtime
from onceward.stores.sql import Row

from .errors import PostgresRefused
from .latest_cache import PostgresLatestCache
from .statements import Statement
from .values import register

T = TypeVar("T")
Rows = list[Row]
Call = tuple[Statement, Sequence[Any]]

OK, IDLE = pq.ConnStatus.OK, pq.TransactionStatus.IDLE
SETTINGS: dict[str, Any] = {"autocommit": True, "prepare_threshold": None, "context": register(AdaptersMap())}
"""Settings of our own connections: a statement is a transaction, and each call decides whether to prepare it."""


async def resolved(result: T | Awaitable[T]) -> T:
    """Return the result of a psycopg call, sync or async."""
    return await result if inspect.isawaitable(result) else result


class ConnectionSetup(Protocol):
    """What the pool does with a new connection."""

    runtime: Runtime

    async def set_up(self, connection: PostgresConnection) -> None: ...
    def connect_failed(self, error: BaseException) -> None: ...


class PostgresConnection:
    """Executes our statements. Used by one call at a time; `runtime` and `deadline` are those of that call."""

    pgconn: PGconn
    runtime: Runtime
    deadline = 0.0
    name = ""
    prepares = True
    """False behind a pooler that hands each transaction to another server connection."""

    pool: Any = None
    """The psycopg pool that it belongs to."""

    cursor_type: ClassVar[Any]

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.latest_cache = PostgresLatestCache()

    @classmethod
    def over(cls, pgconn: PGconn, runtime: Runtime, name: str) -> PostgresConnection:
        """Return a connection that sends our statements on the caller's connection, next to its owner's."""
        handlers = pgconn.notice_handler, pgconn.notify_handler
        connection = cls(pgconn)
        pgconn.notice_handler, pgconn.notify_handler = handlers  # the caller's, which psycopg has just replaced
        register(connection.adapters)  # type: ignore[attr-defined]  # of psycopg's connections
        connection.runtime, connection.name, connection.prepares = runtime, name, False
        return connection

    def __del__(self, *_: Any) -> None:
        """Do not warn if it is still open, as psycopg does: its pool or the caller closes it."""

    # ── state ───────────────────────────────────────────────────────────────────────────────────────────────────

    def abort(self) -> None:
        """Close the connection without waiting for anything."""
        with suppress(psycopg.Error):
            self.pgconn.finish()

    def is_closed(self) -> bool:
        return self.pgconn.status != OK

    def is_idle(self) -> bool:
        """Return whether no statement is running and no transaction is open."""
        return self.pgconn.status == OK and self.pgconn.transaction_status == IDLE

    def is_alive(self) -> bool:
        """Return whether an idle connection is still usable. A server that has gone left a message or closed it."""
        try:
            self.pgconn.consume_input()
        except psycopg.Error:
            return False
        return self.pgconn.status == OK

    # ── exchanges ───────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self, deadline: float, *calls: Call) -> list[Rows]:
        """Send the calls in one round trip. They are one transaction, unless one is open already."""
        with self._exchange(deadline):
            if len(calls) == 1:
                return [await _rows_of(await self._execute(*calls[0]))]
            async with self._pipelined():
                cursors = [await self._execute(*call) for call in calls]
            return [await _rows_of(cursor) for cursor in cursors]

    async def rows(self, deadline: float, statement: Statement, *values: Any) -> Rows:
        """Execute one statement and return its rows."""
        return (await self.run(deadline, (statement, values)))[0]

    async def query(self, text: str, deadline: float, *values: Any) -> Rows:
        """Execute a statement that is used once or rarely, without preparing it."""
        prepares, self.prepares = self.prepares, False
        try:
            return await self.rows(deadline, Statement(text), *values)
        finally:
            self.prepares = prepares

    async def command(self, text: str, deadline: float) -> None:
        """Execute a command without parameters and rows, such as BEGIN."""
        with self._exchange(deadline):
            await resolved(self.cursor_type(self).execute(text.encode(), prepare=False))

    async def _execute(self, statement: Statement, values: Sequence[Any]) -> Any:
        cursor = self.cursor_type(self)
        parameters = statement.encode(values)
        await resolved(cursor.execute(statement.raw, parameters, prepare=self.prepares, binary=True))
        return cursor

    def _pipelined(self) -> AbstractAsyncContextManager[None]:
        raise NotImplementedError

    async def _wait_for(self, exchange: PQGen[T]) -> T:
        """Run psycopg's side of an exchange, which yields whenever it has to wait for the socket."""
        socket = self.pgconn.socket
        try:
            wanted = next(exchange)
            while True:
                writing = bool(wanted & Wait.W)
                remaining = self.deadline - time.monotonic()
                if remaining <= 0 or not await self.runtime.wait_for_socket(socket, writing=writing, seconds=remaining):
                    raise StoreUnavailable(  # noqa: TRY301 (the handler below closes the connection)
                        f"{self.name}: no answer within the timeout of this call", hint="the same call may be repeated"
                    )
                wanted = exchange.send(Ready.RW if writing else Ready.R)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        except psycopg.Error:  # an error of the server, or psycopg has noticed that the connection broke
            raise
        except BaseException as error:
            self.abort()
            with suppress(psycopg.Error, type(error)):
                exchange.throw(error)  # let psycopg clean up, on the closed connection
            raise

    @contextmanager
    def _exchange(self, deadline: float) -> Iterator[None]:
        """Set the deadline of the exchange in this block, and translate its errors."""
        self.deadline = deadline
        try:
            yield
        except psycopg.Error as error:
            if error.sqlstate is not None:
                raise PostgresRefused(error.sqlstate, error.diag.message_primary or str(error)) from error
            if not (self.is_closed() or isinstance(error, psycopg.OperationalError)):
                raise  # a mistake of ours
            raise StoreUnavailable(
                f"{self.name}: the connection broke: {str(error).strip()}", hint="the same call may be repeated"
            ) from error


async def _rows_of(cursor: Any) -> Rows:
    """Return the rows. For a command that returns none: one row with the number of rows that it wrote."""
    if cursor.description is None:
        return [(cursor.rowcount,)]
    rows: Rows = await resolved(cursor.fetchall())
    return rows


class SyncPostgresConnection(PostgresConnection, psycopg.Connection[Row]):
    """A connection for threads. Its coroutines never suspend."""

    cursor_type = psycopg.RawCursor

    @classmethod
    def connect(cls, conninfo: str = "", *, setup: ConnectionSetup, **settings: Any) -> SyncPostgresConnection:  # type: ignore[override]
        connection = None
        try:
            connection = super().connect(conninfo, **settings)
            _run_blocking(setup.set_up(connection))
        except BaseException as error:
            _discard(connection, error, setup)
            raise
        return connection

    def wait(self, gen: PQGen[T], *_: Any, **__: Any) -> T:
        return _run_blocking(self._wait_for(gen))

    @asynccontextmanager
    async def _pipelined(self) -> AsyncIterator[None]:
        with self.pipeline():
            yield


class AsyncPostgresConnection(PostgresConnection, psycopg.AsyncConnection[Row]):
    """A connection for one event loop."""

    cursor_type = psycopg.AsyncRawCursor

    @classmethod
    async def connect(cls, conninfo: str = "", *, setup: ConnectionSetup, **settings: Any) -> AsyncPostgresConnection:  # type: ignore[override]
        connection = None
        try:
            connection = await super().connect(conninfo, **settings)
            await setup.set_up(connection)
        except BaseException as error:
            _discard(connection, error, setup)
            raise
        return connection

    async def wait(self, gen: PQGen[T], *_: Any, **__: Any) -> T:
        return await self._wait_for(gen)

    @asynccontextmanager
    async def _pipelined(self) -> AsyncIterator[None]:
        async with self.pipeline():
            yield


def _discard(connection: PostgresConnection | None, error: BaseException, setup: ConnectionSetup) -> None:
    if connection is not None:
        connection.abort()
    setup.connect_failed(error)


def _run_blocking(call: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends."""
    try:
        call.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise AssertionError("a sync exchange suspended")
