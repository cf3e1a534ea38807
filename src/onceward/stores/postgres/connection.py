"""One connection, as libpq has it: requests out, rows in, and a deadline for each exchange.

Written once for both colours: waiting for the socket is the world's part, and everything else never blocks. What
interrupts an exchange (a deadline, a cancellation, a signal) leaves the connection in the middle of it, so that it
must be closed; the server notices that within a second and gives up what it was doing.
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
from .row_reader import Reader, Rows
from .statements import BINARY, Statement

Call = tuple[Statement, Sequence[Any]]

OK, BAD = pq.ConnStatus.OK, pq.ConnStatus.BAD
IDLE = pq.TransactionStatus.IDLE
TUPLES, COMMAND, SYNC = pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.PIPELINE_SYNC
ABORTED = pq.ExecStatus.PIPELINE_ABORTED


class PostgresConnection:
    """Used by one call at a time. `world` is whose call it is."""

    prepares = True
    """False behind a pooler that hands each transaction to another server connection."""

    slot: object = None
    """What counts it."""

    met = 0
    """How many claims in a row found a record that answered them. A guess about the next, and no more than that."""

    def __init__(self, pgconn: PGconn, runtime: Runtime, name: str) -> None:
        self.pgconn = pgconn
        self.runtime = runtime
        self.name = name
        self.recalled = PostgresLatestCache()
        self._prepared: set[bytes] = set()
        self._readers: dict[bytes, Reader] = {}

    @classmethod
    async def connect(cls, conninfo: bytes, runtime: Runtime, name: str, deadline: float) -> PostgresConnection:
        """Names are looked up where that blocks nobody; the rest waits as everything here does."""
        pgconn = await runtime.offload(pq.PGconn.connect_start, conninfo)
        wire = cls(pgconn, runtime, name)
        try:
            while (status := pgconn.connect_poll()) != pq.PollingStatus.OK:
                if status == pq.PollingStatus.FAILED or pgconn.status == BAD:
                    raise StoreUnavailable(  # noqa: TRY301 (closed below like every other trouble)
                        f"{name}: no connection: {pgconn.get_error_message().strip()}",
                        hint="is the server running, and is the URL right?",
                    )
                await wire._wait(deadline, writing=status == pq.PollingStatus.WRITING)
        except psycopg.Error as error:
            wire.close()
            raise wire._broken(error) from error
        except BaseException:
            wire.close()
            raise
        pgconn.nonblocking = 1
        return wire

    # ── state ───────────────────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        with suppress(psycopg.Error):
            self.pgconn.finish()

    def is_idle(self) -> bool:
        """Nothing is under way, and nothing is open."""
        return self.pgconn.status == OK and self.pgconn.transaction_status == IDLE

    def is_sound(self) -> bool:
        """Whether an idle connection may still be used: a server that has gone left a word, or an end."""
        try:
            self.pgconn.consume_input()
        except psycopg.Error:
            return False
        return self.pgconn.status == OK

    # ── exchanges ───────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self, deadline: float, *calls: Call) -> list[Rows]:
        """Several calls travel together, and are one transaction (unless one is open anyway)."""
        if len(calls) == 1:
            return [await self.rows(deadline, calls[0][0], *calls[0][1])]
        try:
            if self.prepares:
                for statement, _ in calls:
                    if statement.name not in self._prepared:
                        await self._prepare(statement, deadline)
            return await self._together(calls, deadline)
        except psycopg.Error as error:
            raise self._broken(error) from error

    async def rows(self, deadline: float, statement: Statement, *values: Any) -> Rows:
        """One call: what most exchanges are."""
        try:
            if self.prepares and statement.name not in self._prepared:
                await self._prepare(statement, deadline)
            self._send(statement, values)
            return self._rows(statement, _check(await self._until_none(deadline)))
        except psycopg.Error as error:
            raise self._broken(error) from error

    async def command(self, text: str, deadline: float) -> None:
        """BEGIN and its like, without values and without an answer."""
        try:
            self.pgconn.send_query(text.encode())
            await self._answer(deadline)
        except psycopg.Error as error:
            raise self._broken(error) from error

    async def ask(self, text: str, deadline: float, *values: Any) -> Rows:
        """A question that is asked once, or seldom: it is not prepared."""
        prepares, self.prepares = self.prepares, False
        statement = Statement(text)
        try:
            return await self.rows(deadline, statement, *values)
        finally:
            self.prepares = prepares
            self._readers.pop(statement.name, None)

    async def _prepare(self, statement: Statement, deadline: float) -> None:
        self.pgconn.send_prepare(statement.name, statement.raw)
        await self._answer(deadline)
        self._prepared.add(statement.name)

    def _send(self, statement: Statement, values: Sequence[Any]) -> None:
        encoded = statement.encoded(values)
        if self.prepares:
            self.pgconn.send_query_prepared(statement.name, encoded, statement.formats, BINARY)
        else:
            self.pgconn.send_query_params(statement.raw, encoded, None, statement.formats, BINARY)

    async def _together(self, calls: Sequence[Call], deadline: float) -> list[Rows]:
        self.pgconn.enter_pipeline_mode()
        for statement, values in calls:
            self._send(statement, values)
        self.pgconn.pipeline_sync()
        await self._flush(deadline)
        results = [await self._until_none(deadline) for _ in calls]
        await self._next(deadline)  # the sync point: all of it is committed, or nothing
        self.pgconn.exit_pipeline_mode()
        for result in results:
            _check(result)
        return [self._rows(statement, result) for (statement, _), result in zip(calls, results, strict=True)]

    async def _answer(self, deadline: float) -> PGresult:
        return _check(await self._until_none(deadline))

    async def _until_none(self, deadline: float) -> PGresult:
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
            if last is None or last.status in (TUPLES, COMMAND):  # the first error is the one that tells
                last = result
        if last is None:
            raise psycopg.OperationalError("the server sent no answer")
        return last

    async def _flush(self, deadline: float) -> None:
        while self.pgconn.flush():
            await self._wait(deadline, writing=True)
            self.pgconn.consume_input()

    async def _next(self, deadline: float) -> PGresult | None:
        pgconn = self.pgconn
        while pgconn.is_busy():
            await self._wait(deadline)
            pgconn.consume_input()
        return pgconn.get_result()

    async def _wait(self, deadline: float, *, writing: bool = False) -> None:
        left = deadline - time.monotonic()
        if left <= 0 or not await self.runtime.ready(self.pgconn.socket, writing=writing, seconds=left):
            raise StoreUnavailable(
                f"{self.name}: no answer in the time that this call has", hint="the same call may be repeated"
            )

    def _rows(self, statement: Statement, result: PGresult) -> Rows:
        """Of a command that shows none: how many it has written."""
        reader = self._readers.get(statement.name)
        if reader is None or reader.width != result.nfields:
            if result.status == COMMAND:
                return [(result.command_tuples,)]
            reader = self._readers[statement.name] = Reader(result)
        return reader.rows(result)

    def _broken(self, error: psycopg.Error) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self.name}: the connection broke: {str(error).strip()}", hint="the same call may be repeated"
        )


def _check(result: PGresult) -> PGresult:
    """The same result, unless the server refused."""
    if result.status in (TUPLES, COMMAND):
        return result
    code = result.error_field(pq.DiagnosticField.SQLSTATE)
    if result.status == ABORTED or code is None:
        raise psycopg.OperationalError(result.get_error_message() or "aborted")
    message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b""
    raise PostgresRefused(code.decode(), message.decode("utf-8", "replace"))
