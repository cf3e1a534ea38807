"""One connection through libpq: it sends statements, reads rows, and has a deadline for each exchange.

The same code serves sync and async callers: the runtime waits for the socket, and nothing else blocks. A deadline,
cancellation or signal may interrupt an exchange. The connection then has an unread reply, and must be closed. The
server notices that within a second and cancels the statement.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import pq
from psycopg.pq.abc import PGconn, PGresult

from onceward.errors import StoreUnavailable
from onceward.protocol.runtime import Runtime

from .errors import PostgresRefused
from .latest_cache import PostgresLatestCache
from .row_reader import PostgresRowReader, Rows
from .statements import BINARY, Statement

Call = tuple[Statement, Sequence[Any]]

OK, BAD = pq.ConnStatus.OK, pq.ConnStatus.BAD
IDLE = pq.TransactionStatus.IDLE
TUPLES, COMMAND, SYNC = pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.PIPELINE_SYNC
ABORTED = pq.ExecStatus.PIPELINE_ABORTED


class PostgresConnection:
    """Used by one call at a time. `runtime` is the runtime of that call."""

    prepares = True
    """False behind a pooler that hands each transaction to another server connection."""

    slot: object = None
    """The pool's slot of this connection: the pool counts the living slots."""

    consecutive_hits = 0
    """How many claims in a row were answered by an existing record. Used to guess about the next one."""

    def __init__(self, pgconn: PGconn, runtime: Runtime, name: str) -> None:
        self.pgconn = pgconn
        self.runtime = runtime
        self.name = name
        self.latest_cache = PostgresLatestCache()
        self._prepared: set[bytes] = set()
        self._readers: dict[bytes, PostgresRowReader] = {}

    @classmethod
    async def connect(cls, conninfo: bytes, runtime: Runtime, name: str, deadline: float) -> PostgresConnection:
        """Connect. Host names are resolved in a worker thread; the rest waits for the socket through the runtime."""
        pgconn = await runtime.offload(pq.PGconn.connect_start, conninfo)
        connection = cls(pgconn, runtime, name)
        try:
            while (status := pgconn.connect_poll()) != pq.PollingStatus.OK:
                if status == pq.PollingStatus.FAILED or pgconn.status == BAD:
                    raise StoreUnavailable(  # noqa: TRY301 (the handler below closes the connection)
                        f"{name}: cannot connect: {pgconn.get_error_message().strip()}",
                        hint="is the server running, and is the URL correct?",
                    )
                await connection._wait(deadline, writing=status == pq.PollingStatus.WRITING)
        except psycopg.Error as error:
            connection.close()
            raise connection._connection_lost(error) from error
        except BaseException:
            connection.close()
            raise
        pgconn.nonblocking = 1
        return connection

    # ── state ───────────────────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        with suppress(psycopg.Error):
            self.pgconn.finish()

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
        """Send several calls in one pipeline. They are one transaction, unless one is open already."""
        if len(calls) == 1:
            return [await self.rows(deadline, calls[0][0], *calls[0][1])]
        try:
            if self.prepares:
                for statement, _ in calls:
                    if statement.name not in self._prepared:
                        await self._prepare(statement, deadline)
            return await self._run_pipeline(calls, deadline)
        except psycopg.Error as error:
            raise self._connection_lost(error) from error

    async def rows(self, deadline: float, statement: Statement, *values: Any) -> Rows:
        """Execute one statement and return its rows."""
        try:
            if self.prepares and statement.name not in self._prepared:
                await self._prepare(statement, deadline)
            self._send(statement, values)
            return self._rows(statement, _check(await self._read_result(deadline)))
        except psycopg.Error as error:
            raise self._connection_lost(error) from error

    async def command(self, text: str, deadline: float) -> None:
        """Execute a command without parameters and rows, such as BEGIN."""
        try:
            self.pgconn.send_query(text.encode())
            await self._checked_result(deadline)
        except psycopg.Error as error:
            raise self._connection_lost(error) from error

    async def query(self, text: str, deadline: float, *values: Any) -> Rows:
        """Execute a statement that is used once or rarely, without preparing it."""
        prepares, self.prepares = self.prepares, False
        statement = Statement(text)
        try:
            return await self.rows(deadline, statement, *values)
        finally:
            self.prepares = prepares
            self._readers.pop(statement.name, None)

    async def _prepare(self, statement: Statement, deadline: float) -> None:
        self.pgconn.send_prepare(statement.name, statement.raw)
        await self._checked_result(deadline)
        self._prepared.add(statement.name)

    def _send(self, statement: Statement, values: Sequence[Any]) -> None:
        parameters = statement.encode(values)
        if self.prepares:
            self.pgconn.send_query_prepared(statement.name, parameters, statement.formats, BINARY)
        else:
            self.pgconn.send_query_params(statement.raw, parameters, None, statement.formats, BINARY)

    async def _run_pipeline(self, calls: Sequence[Call], deadline: float) -> list[Rows]:
        self.pgconn.enter_pipeline_mode()
        for statement, values in calls:
            self._send(statement, values)
        self.pgconn.pipeline_sync()
        await self._flush(deadline)
        results = [await self._read_result(deadline) for _ in calls]
        await self._read_sync(deadline)  # the sync point: everything is committed, or nothing
        self.pgconn.exit_pipeline_mode()
        for result in results:
            _check(result)
        return [self._rows(statement, result) for (statement, _), result in zip(calls, results, strict=True)]

    async def _checked_result(self, deadline: float) -> PGresult:
        return _check(await self._read_result(deadline))

    async def _read_result(self, deadline: float) -> PGresult:
        pgconn = self.pgconn
        if pgconn.flush():
            await self._flush(deadline)
        last: PGresult | None = None
        while True:
            while pgconn.is_busy():
                await self._wait(deadline)
                pgconn.consume_input()
            result = pgconn.get_result()
            if result is None:
                break
            if last is None or last.status in (TUPLES, COMMAND):  # keep the first error: it is the meaningful one
                last = result
        if last is None:
            raise psycopg.OperationalError("the server sent no result")
        return last

    async def _flush(self, deadline: float) -> None:
        while self.pgconn.flush():
            await self._wait(deadline, writing=True)
            self.pgconn.consume_input()

    async def _read_sync(self, deadline: float) -> PGresult | None:
        pgconn = self.pgconn
        while pgconn.is_busy():
            await self._wait(deadline)
            pgconn.consume_input()
        return pgconn.get_result()

    async def _wait(self, deadline: float, *, writing: bool = False) -> None:
        remaining = deadline - time.monotonic()
        if remaining <= 0 or not await self.runtime.wait_for_socket(
            self.pgconn.socket, writing=writing, seconds=remaining
        ):
            raise StoreUnavailable(
                f"{self.name}: no answer within the timeout of this call", hint="the same call may be repeated"
            )

    def _rows(self, statement: Statement, result: PGresult) -> Rows:
        """Return the rows. For a command that returns none: one row with the number of rows that it wrote."""
        reader = self._readers.get(statement.name)
        if reader is None or reader.width != result.nfields:
            if result.status == COMMAND:
                return [(result.command_tuples,)]
            reader = self._readers[statement.name] = PostgresRowReader(result)
        return reader.rows(result)

    def _connection_lost(self, error: psycopg.Error) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self.name}: the connection broke: {str(error).strip()}", hint="the same call may be repeated"
        )


def _check(result: PGresult) -> PGresult:
    """Return the result, or raise PostgresRefused if the server answered with an error."""
    if result.status in (TUPLES, COMMAND):
        return result
    code = result.error_field(pq.DiagnosticField.SQLSTATE)
    if result.status == ABORTED or code is None:
        raise psycopg.OperationalError(result.get_error_message() or "aborted")
    message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b""
    raise PostgresRefused(code.decode(), message.decode("utf-8", "replace"))
