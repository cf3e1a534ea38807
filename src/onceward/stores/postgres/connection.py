"""Exchanges with the server on a psycopg connection, each with a deadline.

psycopg sends and reads; the runtime waits for the socket, so the same code serves sync and async callers.
A deadline, cancellation or signal may interrupt an exchange. The connection then has an unread reply, and is closed.
The server notices that within a second and cancels the statement.

Statements are sent through `pgconn`, psycopg's interface to libpq, and not through its cursors. Those have no deadline,
and cost more: with `RawCursor` and prepared binary statements, a lone replay took 1.34 × the client's CPU time (250 µs
instead of 186 µs) and 1.2 × as long; 64 tasks took up to 1.1 × as long.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg import generators, pq
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.pq.abc import PGconn, PGresult
from psycopg.waiting import Ready, Wait

from onceward.errors import StoreUnavailable
from onceward.protocol.runtime import Runtime
from onceward.stores.sql import Row

from .errors import PostgresRefused, connect_hint
from .latest_cache import PostgresLatestCache
from .statements import Statement
from .values import ADAPTERS

T = TypeVar("T")
Rows = list[Row]
Call = tuple[Statement, Sequence[Any]]

OK, BAD = pq.ConnStatus.OK, pq.ConnStatus.BAD
IDLE, BINARY = pq.TransactionStatus.IDLE, pq.Format.BINARY
TUPLES, COMMAND = pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK


class PostgresConnection:
    """Used by one call at a time. `runtime` is the runtime of that call."""

    prepares = True
    """False behind a pooler that hands each transaction to another server connection."""

    lost = ""
    """Why the connection broke, if it did. An exchange that was interrupted here did not lose it."""

    slot: object = None
    """The pool's slot of this connection: the pool counts the living slots."""

    def __init__(self, pgconn: PGconn, runtime: Runtime, name: str) -> None:
        self.pgconn = pgconn
        self.runtime = runtime
        self.name = name
        self.latest_cache = PostgresLatestCache()
        self._prepared: set[bytes] = set()
        self._readers: dict[bytes, Any] = {}  # of prepared statements

    @classmethod
    async def connect(cls, conninfo: bytes, runtime: Runtime, name: str, deadline: float) -> PostgresConnection:
        """Connect. Host names are resolved in a worker thread; the rest waits for the socket through the runtime."""
        pgconn = await runtime.offload(pq.PGconn.connect_start, conninfo)
        connection = cls(pgconn, runtime, name)
        try:
            while (status := pgconn.connect_poll()) != pq.PollingStatus.OK:
                if status == pq.PollingStatus.FAILED or pgconn.status == BAD:
                    message = _one_line(pgconn.get_error_message())
                    raise StoreUnavailable(  # noqa: TRY301 (the handler below closes the connection)
                        f"{name}: cannot connect: {message}", hint=connect_hint(message)
                    )
                await connection._wait(deadline, writing=status == pq.PollingStatus.WRITING)
        except psycopg.Error as error:
            connection.close()
            raise StoreUnavailable(f"{name}: cannot connect: {_one_line(error)}") from error
        except BaseException:
            connection.close()
            raise
        pgconn.nonblocking = 1
        return connection

    # ── state ───────────────────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
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
        except psycopg.Error as error:
            self.lost = _one_line(error)
        return not self.is_closed()

    # ── exchanges ───────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self, deadline: float, *calls: Call) -> list[Rows]:
        """Send the calls in one round trip. They are one transaction, unless one is open already."""
        with self._lost_connection_translated():
            for statement, _ in calls:
                if self.prepares and statement.name not in self._prepared:
                    await self._prepare(statement, deadline)
            if len(calls) == 1:
                self._send(*calls[0])
                results = [await self._wait_for(generators.execute(self.pgconn), deadline)]
            else:
                results = await self._run_pipeline(calls, deadline)
            checked = [_checked(one) for one in results]
            return [self._rows(statement, result) for (statement, _), result in zip(calls, checked, strict=True)]

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
        """Execute commands without parameters and rows, such as BEGIN."""
        with self._lost_connection_translated():
            self.pgconn.send_query(text.encode())
            _checked(await self._wait_for(generators.execute(self.pgconn), deadline))

    async def _prepare(self, statement: Statement, deadline: float) -> None:
        self.pgconn.send_prepare(statement.name, statement.raw)
        _checked(await self._wait_for(generators.execute(self.pgconn), deadline))
        self._prepared.add(statement.name)

    def _send(self, statement: Statement, values: Sequence[Any]) -> None:
        parameters, formats = statement.encode(values), [BINARY] * len(values)
        if self.prepares:
            self.pgconn.send_query_prepared(statement.name, parameters, formats, BINARY)
        else:
            self.pgconn.send_query_params(statement.raw, parameters, None, formats, BINARY)

    async def _run_pipeline(self, calls: Sequence[Call], deadline: float) -> list[list[PGresult]]:
        self.pgconn.enter_pipeline_mode()
        for call in calls:
            self._send(*call)
        self.pgconn.pipeline_sync()
        await self._wait_for(generators.send(self.pgconn), deadline)
        results = [await self._wait_for(generators.fetch_many(self.pgconn), deadline) for _ in calls]
        await self._wait_for(generators.fetch_many(self.pgconn), deadline)  # everything is committed, or nothing
        self.pgconn.exit_pipeline_mode()
        return results

    async def _wait_for(self, exchange: PQGen[T], deadline: float) -> T:
        """Run psycopg's side of an exchange, which yields whenever it has to wait for the socket."""
        try:
            wanted = next(exchange)
            while True:
                writing = bool(wanted & Wait.W)
                await self._wait(deadline, writing=writing)
                wanted = exchange.send(Ready.RW if writing else Ready.R)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        except BaseException:
            self.close()
            raise

    async def _wait(self, deadline: float, *, writing: bool = False) -> None:
        """Wait until the socket is ready. Raise StoreUnavailable at the deadline."""
        remaining = deadline - time.monotonic()
        socket = self.pgconn.socket
        if remaining <= 0 or not await self.runtime.wait_for_socket(socket, writing=writing, seconds=remaining):
            raise StoreUnavailable(
                f"{self.name}: no answer within the timeout of this call", hint="the same call may be repeated"
            )

    def _rows(self, statement: Statement, result: PGresult) -> Rows:
        """Return the rows. For a command that returns none: one row with the number of rows that it wrote."""
        if result.status == COMMAND:
            return [(result.command_tuples,)]
        reader = self._readers.get(statement.name)
        if reader is None:
            reader = Transformer(ADAPTERS)
            reader.set_pgresult(result)  # with the loaders of its columns
            if self.prepares:
                self._readers[statement.name] = reader
        else:
            reader.set_pgresult(result, set_loaders=False)
        rows: Rows = reader.load_rows(0, result.ntuples, tuple)
        reader.set_pgresult(None, set_loaders=False)  # release it: it may be large
        return rows

    @contextmanager
    def _lost_connection_translated(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            self.lost = _one_line(error)
            raise StoreUnavailable(
                f"{self.name}: the connection broke: {self.lost}", hint="the same call may be repeated"
            ) from error


def _one_line(error: object) -> str:
    """Return a message of libpq as one line, for logs. It may have several lines, with tabs."""
    return " ".join(str(error).split())


def _checked(results: Sequence[PGresult]) -> PGresult:
    """Return the last result, or raise PostgresRefused for the first error: it is the meaningful one."""
    for result in results:
        if result.status not in (TUPLES, COMMAND):
            code = result.error_field(pq.DiagnosticField.SQLSTATE)
            if code is None:
                raise psycopg.OperationalError(result.get_error_message() or "aborted")
            message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b""
            raise PostgresRefused(code.decode(), message.decode("utf-8", "replace"))
    return results[-1]
