"""The store inside the caller's transaction: it never commits.

A claim that changes anything first takes the key's advisory lock, until the transaction ends. Batches of other clients
see the lock and answer "running" instead of waiting. Nothing here waits inside the server: a taken lock is polled, so
that deadlines hold and the event loop is not blocked.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from onceward.errors import ConfigurationError, RetryTransaction, StoreError, StoreUnavailable
from onceward.protocol.latest import EntityState, EventDelivery, LatestResult, Retention
from onceward.protocol.record import Record
from onceward.protocol.requests import Answer, AnyRequest, ClaimRequest, Verdict
from onceward.protocol.runtime import Runtime
from onceward.stores.caller_connection import (
    TRANSACTION_ENDED,
    TRANSACTION_ENDED_HINT,
    async_driver_connection,
    driver_connection,
    invalidate,
    is_async_wrapper,
    is_invalidated,
    keeps_connection,
    transaction_block,
    wrapped_connection,
)
from onceward.stores.joined_savepoints import END_TIMEOUT, JoinedSavepoints

from .caller_channel import REPEAT_HINT, TIMED_OUT, YOUR_TRANSACTION, CallerChannel, channel_for
from .connection import Call, Rows
from .errors import RETRYABLE, PostgresRefused, explain
from .latest import SET_LOCK_TIMEOUT, EventBatch, lock_timeout_ms, states_from_rows
from .rows import columns_of
from .statements import Statement
from .table import PostgresTable, RecordSnapshot, snapshots_from_rows, uncommitted_claim

T = TypeVar("T")
Change = Callable[[Record | None, Any, int], tuple[Record | None, Verdict]]

MIN_WAIT, MAX_WAIT = 0.002, 0.05  # seconds between attempts to take a lock of another transaction
NO_SUCH_SAVEPOINT, IN_FAILED_TRANSACTION = "3B001", "25P02"

IDENTIFY = (
    "SELECT (extract(epoch FROM now()) * 1000000)::bigint, current_setting('transaction_isolation'),"
    " current_database()::text, (pg_control_system()).system_identifier,"
    " coalesce(to_regclass($1::text)::oid::bigint, 0)"
)
"""Identifies the transaction (by its start), its isolation level, and the tables that it would write to."""

CAP_LOCK_TIMEOUT = Statement(
    "SELECT theirs, set_config('lock_timeout', CASE WHEN theirs = '0' OR theirs::interval >"
    " make_interval(secs => $1::bigint / 1000.0) THEN $1::bigint || 'ms' ELSE theirs END, true)"
    " FROM (SELECT current_setting('lock_timeout') AS theirs) AS before"
)
"""Sets the lock timeout in ms, unless the caller's is shorter. Returns the previous setting."""


class PostgresJoined(JoinedSavepoints):
    """The store inside the caller's transaction."""

    number: str | None = None
    """The transaction id, once it has written anything: with it, a commit can be verified if the reply was lost."""

    def __init__(
        self,
        connection: Any,
        runtime: Runtime,
        table: PostgresTable,
        tables_identity: tuple[Any, ...],
        now: Callable[[], int | None],
    ) -> None:
        super().__init__(connection)
        self._wrapper = connection
        self.block = transaction_block(connection)
        self._runtime = runtime
        self._table = table
        self._tables_identity = tables_identity
        self._now = now
        self._identify_statement = Statement(IDENTIFY)
        self._channel: CallerChannel | None = None
        self._keeps_connection: Callable[[], bool] = bool  # False until there is a channel
        self._inner_wrapper: Any = None
        if not is_async_wrapper(connection):
            self._channel = channel_for(driver_connection(connection, runtime), runtime)
            self._inner_wrapper = wrapped_connection(connection)
            self._keeps_connection = keeps_connection(connection)
        self._started_at: int | None = None
        self._has_fixed_snapshot = False

    def is_open(self) -> bool:
        return self._keeps_connection() and self._channel is not None and self._channel.is_open()

    def is_lost(self) -> bool:
        return is_invalidated(self._inner_wrapper) or (self._channel is not None and self._channel.is_lost())

    async def abandon(self) -> bool:
        if not self.is_open():
            return False
        await self._run_commands(time.monotonic() + END_TIMEOUT, "ROLLBACK")
        return True

    async def _run_commands(self, deadline: float, *commands: str) -> bool:
        channel = await self._connected(deadline)
        try:
            for command in commands:
                await channel.command(command, deadline)
        except PostgresRefused as error:
            if error.code == NO_SUCH_SAVEPOINT:
                return False
            raise _translate(error) from error
        except StoreUnavailable:
            await self._invalidate_if_lost()
            raise
        return True

    # ── which transaction ───────────────────────────────────────────────────────────────────────────────────────

    async def _connected(self, deadline: float) -> CallerChannel:
        if self._channel is None:
            try:
                driver, self._inner_wrapper = await async_driver_connection(self._wrapper, deadline - time.monotonic())
            except TimeoutError as error:
                raise StoreUnavailable(f"{YOUR_TRANSACTION}: {TIMED_OUT}", hint=REPEAT_HINT) from error
            self._keeps_connection = keeps_connection(self._inner_wrapper)
            self._channel = channel_for(driver, self._runtime)
        return self._channel

    def _closed_at(self, deadline: float) -> AbstractAsyncContextManager[None]:
        assert self._channel is not None  # noqa: S101 (`begin` has connected it)
        return self._channel.closed_at(deadline)

    async def _enter(self, deadline: float) -> None:
        await self._translating(self._require_same(deadline))

    async def _enters_same(self, deadline: float) -> bool:
        """Make sure that a transaction on our tables is open. Return whether it is the one that was entered first."""
        channel = await self._connected(deadline)
        if not self._keeps_connection():
            return False
        await channel.begin(deadline)
        started_at, isolation, *tables_identity = await self._identify(channel, deadline)
        if tuple(tables_identity) != self._tables_identity:
            raise ConfigurationError(
                "this connection uses another database or other tables than the store: the two cannot commit together",
                hint="open both on the same database; set ?schema= in the store's URL to the schema of the tables",
            )
        if self._started_at is None:
            self._started_at = started_at
        self._has_fixed_snapshot = isolation not in ("read committed", "read uncommitted")
        return bool(started_at == self._started_at)

    async def _require_same(self, deadline: float) -> None:
        if not await self._enters_same(deadline):
            raise ConfigurationError(TRANSACTION_ENDED, hint=TRANSACTION_ENDED_HINT)

    async def _identify(self, channel: CallerChannel, deadline: float) -> tuple[Any, ...]:
        name = f"{self._table.statements.prefix}onceward_records"
        return (await channel.rows(deadline, self._identify_statement, name))[0]

    async def _is_same(self, *, if_failed: bool = False) -> bool:
        if self._channel is None or not self.is_open():
            return False
        try:
            started_at = (await self._identify(self._channel, time.monotonic() + END_TIMEOUT))[0]
        except PostgresRefused as error:
            if error.code == IN_FAILED_TRANSACTION:
                return if_failed
            raise explain(error, YOUR_TRANSACTION) from error
        except StoreUnavailable:
            await self._invalidate_if_lost()
            raise
        return bool(started_at == self._started_at)

    async def _translating(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except PostgresRefused as error:
            raise _translate(error) from error
        except StoreUnavailable:
            await self._invalidate_if_lost()
            raise

    async def _invalidate_if_lost(self) -> None:
        if self._channel is not None and self._channel.is_lost():
            await invalidate(self._inner_wrapper)

    # ── latest state ────────────────────────────────────────────────────────────────────────────────────────────

    async def apply_events(
        self, deliveries: Sequence[EventDelivery], keep: Retention, *, timeout: float
    ) -> list[LatestResult]:
        """Apply the events behind a savepoint: if this fails, the caller must not commit a mark without its state.

        The entities are locked until the transaction ends. Locks of other transactions are waited for in the server.
        """
        deadline = time.monotonic() + timeout
        while True:
            await self.begin(timeout=max(deadline - time.monotonic(), 0.0))
            try:
                answers = await self._translating(self._try_apply(deliveries, keep, deadline))
                if answers is not None:
                    await self.keep()
                    return answers
            except BaseException:
                await self.undo()
                raise
            await self.undo()

    async def _try_apply(
        self, deliveries: Sequence[EventDelivery], keep: Retention, deadline: float
    ) -> list[LatestResult] | None:
        """Return the answers. None: another transaction inserted one of the marks without changing the entity."""
        channel = await self._connected(deadline)
        batch = EventBatch(self._table.statements, deliveries, keep, self._now())
        [(previous_timeout, _)] = await channel.rows(deadline, CAP_LOCK_TIMEOUT, lock_timeout_ms(deadline))
        await _execute(channel, deadline, batch.lock())
        batch.decide(await _execute(channel, deadline, batch.lookup()))
        replies = [await _execute(channel, deadline, call) for call in batch.writes()]
        await channel.rows(deadline, SET_LOCK_TIMEOUT, previous_timeout)
        return batch.answers if batch.all_written(replies) else None

    async def read_latest(self, ids: Sequence[bytes], *, timeout: float) -> list[EntityState | None]:
        deadline = time.monotonic() + timeout
        await self._enter(deadline)
        statement = self._table.statements.latest
        rows = await self._translating(
            (await self._connected(deadline)).rows(deadline, statement, self._now(), list(ids))
        )
        return states_from_rows(rows, ids)

    # ── one request ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _apply_each(self, change: Change, requests: Sequence[AnyRequest], timeout: float) -> list[Answer]:
        deadline = time.monotonic() + timeout
        return [await self._translating(self._apply(change, one, deadline)) for one in requests]

    async def _apply(self, change: Change, request: AnyRequest, deadline: float) -> Answer:
        if not await self._enters_same(deadline):
            return Answer(Verdict.LOST, None, self._now() or 0)
        channel = await self._connected(deadline)
        locked, pause = False, MIN_WAIT
        while True:
            snapshot = await self._read(channel, request.id, deadline)
            record, verdict = change(snapshot.record, request, snapshot.now)
            if record is snapshot.record:
                return self._checked_answer(request, Answer(verdict, record, snapshot.now))
            if locked:
                if await self._write(channel, snapshot, record, deadline):
                    return Answer(verdict, record, snapshot.now)
                locked = False  # the record changed after our read; we still hold the lock
            elif await self._lock(channel, request.id, deadline):
                locked = True
                continue  # read again: the previous holder of the lock may have changed the record
            if time.monotonic() + pause >= deadline:
                return self._blocked_answer(request, snapshot)
            await self._runtime.sleep(pause * (0.5 + self._runtime.jitter() / 2))
            pause = min(pause * 2, MAX_WAIT)

    async def _read(self, channel: CallerChannel, id: bytes, deadline: float) -> RecordSnapshot:
        return snapshots_from_rows(await channel.rows(deadline, self._table.statements.read, self._now(), [id]))[id]

    async def _lock(self, channel: CallerChannel, id: bytes, deadline: float) -> bool:
        lock = self._table.lock_of(id)
        [(mine, number)] = await channel.rows(deadline, self._table.statements.advisory_lock, lock)
        self.number = number
        return bool(mine)

    async def _write(
        self, channel: CallerChannel, snapshot: RecordSnapshot, record: Record | None, deadline: float
    ) -> bool:
        assert record is not None  # noqa: S101 (no verb deletes a record)
        columns = columns_of([record])
        statements = self._table.statements
        if snapshot.record is None:
            return bool(await channel.rows(deadline, statements.insert_one, *[column[0] for column in columns]))
        lock = self._table.lock_of(record.id)
        values = (*columns, [snapshot.version], [False], [lock])
        [(_, written, _)] = await channel.rows(deadline, statements.write, *values)
        return bool(written)

    def _checked_answer(self, request: AnyRequest, answer: Answer) -> Answer:
        """Return the answer, or raise RetryTransaction if the snapshot is older than the claim: LOST may be wrong."""
        token = getattr(request, "token", 0)
        stale = answer.verdict is Verdict.LOST and (answer.record is None or answer.record.token < token)
        if stale and self._has_fixed_snapshot:
            raise RetryTransaction(
                "your transaction began before the claim that it completes",
                hint="roll back and repeat it; make the claim before the transaction begins",
            )
        return answer

    def _blocked_answer(self, request: AnyRequest, snapshot: RecordSnapshot) -> Answer:
        if isinstance(request, ClaimRequest):
            return Answer(Verdict.RUNNING, snapshot.record or uncommitted_claim(request), snapshot.now)
        raise RetryTransaction(
            "another open transaction holds the record", hint="roll back and repeat your transaction"
        )


async def _execute(channel: CallerChannel, deadline: float, call: Call) -> Rows:
    statement, values = call
    return await channel.rows(deadline, statement, *values)


def _translate(error: PostgresRefused) -> StoreError:
    if error.code in RETRYABLE:
        return RetryTransaction(
            f"your transaction conflicts with another one ({error})",
            hint="roll back and repeat it; under READ COMMITTED, duplicates do not conflict",
        )
    return explain(error, YOUR_TRANSACTION)
