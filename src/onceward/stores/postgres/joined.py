"""The store inside the caller's own transaction: nothing commits here.

A claim that changes anything takes the key's advisory lock first, for as long as the transaction is open: batches of
others see it and say "running" instead of waiting. Nothing here waits inside the server: what is taken is asked for
again, so that a limit is a limit and an event loop stays free.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any, TypeVar

from onceward.errors import ConfigurationError, RetryTransaction, StoreError
from onceward.protocol import transitions
from onceward.protocol.latest import EntityState, EventDelivery, LatestResult, Retention
from onceward.protocol.record import Record
from onceward.protocol.requests import Answer, AnyRequest, AnySettlement, ClaimRequest, Renewal, Verdict
from onceward.protocol.runtime import Runtime
from onceward.stores.caller_connection import (
    TRANSACTION_ENDED,
    TRANSACTION_ENDED_HINT,
    SessionSavepoint,
    async_driver_connection,
    driver_connection,
    is_async_wrapper,
    keeps_connection,
    transaction_block,
)

from .caller_channel import YOURS, CallerChannel, line_of
from .connection import Call
from .errors import PostgresRefused, explain
from .latest import PATIENCE, EventBatch, patience, standings
from .row_reader import Rows
from .rows import columns_of
from .statements import Statement
from .table import PostgresTable, Sight, elsewhere, seen

T = TypeVar("T")
Change = Callable[[Record | None, Any, int], tuple[Record | None, Verdict]]

FIRST_WAIT, LONGEST_WAIT = 0.002, 0.05  # seconds between tries for what another transaction holds
AGAIN = frozenset({"40001", "40P01", "55P03"})
NO_SUCH_SAVEPOINT, SPOILT = "3B001", "25P02"

WHERE = (
    "SELECT (extract(epoch FROM now()) * 1000000)::bigint, current_setting('transaction_isolation'),"
    " current_database()::text, (pg_control_system()).system_identifier,"
    " coalesce(to_regclass($1::text)::oid::bigint, 0)"
)
"""Which transaction this is (by its begin), how it is isolated, and which tables it would write to."""

BE_PATIENT = Statement(
    "SELECT theirs, set_config('lock_timeout', CASE WHEN theirs = '0' OR theirs::interval >"
    " make_interval(secs => $1::bigint / 1000.0) THEN $1::bigint || 'ms' ELSE theirs END, true)"
    " FROM (SELECT current_setting('lock_timeout') AS theirs) AS before"
)
"""Waits for others' locks for so many ms, unless the caller is less patient; tells what was set before."""

_points = count(1)


class PostgresJoined:
    """The store, seen from the caller's transaction."""

    exclusive = False
    number: str | None = None
    """The transaction's own, once it has written anything: its end can be asked for even if nobody saw it."""

    def __init__(
        self,
        connection: Any,
        runtime: Runtime,
        table: PostgresTable,
        home: tuple[Any, ...],
        now: Callable[[], int | None],
    ) -> None:
        self._given = connection
        self._session = SessionSavepoint(connection)
        self.block = transaction_block(connection)
        self._runtime = runtime
        self._table = table
        self._home = home
        self._now = now
        self._where = Statement(WHERE)
        self._line: CallerChannel | None = None
        self._keeps_connection: Callable[[], bool] = bool  # False, until there is a line
        if not is_async_wrapper(connection):
            self._line = line_of(driver_connection(connection, runtime), runtime)
            self._keeps_connection = keeps_connection(connection)
        self._begun: int | None = None
        self._isolated = False
        self._points: list[str] = []

    # ── the verbs ───────────────────────────────────────────────────────────────────────────────────────────────

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        deadline = time.monotonic() + timeout
        return [await self._explained(self._apply(transitions.claim, one, deadline)) for one in requests]

    async def settle(self, settlements: Sequence[AnySettlement], *, timeout: float) -> list[Answer]:
        deadline = time.monotonic() + timeout
        return [await self._explained(self._apply(transitions.settle, one, deadline)) for one in settlements]

    async def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> list[Answer]:
        """The keeper does that by itself: nothing here keeps it out."""
        deadline = time.monotonic() + timeout
        return [await self._explained(self._apply(transitions.renew, one, deadline)) for one in renewals]

    def is_open(self) -> bool:
        return self._keeps_connection() and self._line is not None and self._line.is_open()

    def blocks_writes(self) -> bool:
        return False

    async def begin(self, *, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        point = f"onceward_{next(_points)}"

        async def work() -> None:
            await self._enter_same(deadline)
            await self._session.flush()
            await (await self._connected()).command(f"SAVEPOINT {point}", deadline)
            self._points.append(point)
            await self._session.begin()

        await self._explained(work())

    async def keep(self) -> bool:
        """If it fails, the point is still there to return to."""
        point = self._points[-1]
        if not await self._is_same():
            self._points.pop()
            return False
        await self._session.commit()
        there = await self._explained(self._end(f"RELEASE SAVEPOINT {point}"))
        self._points.pop()
        return there

    async def undo(self) -> bool:
        point = self._points.pop()
        if not await self._is_same(spoilt=True):
            return False
        await self._session.rollback()
        back = f"ROLLBACK TO SAVEPOINT {point}"
        return await self._explained(self._end(back)) and await self._explained(self._end(f"RELEASE SAVEPOINT {point}"))

    async def abandon(self) -> bool:
        if not self.is_open():
            return False
        await self._explained(self._end("ROLLBACK"))
        return True

    async def _end(self, *commands: str) -> bool:
        """False if the point is gone: whoever ends a transaction ends all points in it."""
        line, deadline = await self._connected(), time.monotonic() + 30.0
        try:
            for command in commands:
                await line.command(command, deadline)
        except PostgresRefused as error:
            if error.code == NO_SUCH_SAVEPOINT:
                return False
            raise
        return True

    # ── which transaction ───────────────────────────────────────────────────────────────────────────────────────

    async def _connected(self) -> CallerChannel:
        if self._line is None:
            own, self._keeps_connection = await async_driver_connection(self._given)
            self._line = line_of(own, self._runtime)
        return self._line

    async def _enter(self, deadline: float) -> bool:
        """See to it that a transaction on our own tables is open; False if it is not the one that was entered first."""
        line = await self._connected()
        if not self._keeps_connection():
            return False
        await line.begin()
        begun, isolation, *home = await self._place(line, deadline)
        if tuple(home) != self._home:
            raise ConfigurationError(
                "this connection is on another database (or sees other tables) than the store: "
                "the two cannot commit together",
                hint="open both on the same database; name the schema of the tables in the store's URL",
            )
        if self._begun is None:
            self._begun = begun
        self._isolated = isolation not in ("read committed", "read uncommitted")
        return bool(begun == self._begun)

    async def _enter_same(self, deadline: float) -> None:
        if not await self._enter(deadline):
            raise ConfigurationError(TRANSACTION_ENDED, hint=TRANSACTION_ENDED_HINT)

    async def _place(self, line: CallerChannel, deadline: float) -> tuple[Any, ...]:
        name = f"{self._table.statements.prefix}onceward_records"
        return (await line.rows(deadline, self._where, name))[0]

    async def _is_same(self, *, spoilt: bool = False) -> bool:
        """Whether this is still the transaction that was entered. One that an error spoilt cannot be asked."""
        if self._line is None or not self.is_open():
            return False
        try:
            begun = (await self._place(self._line, time.monotonic() + 30.0))[0]
        except PostgresRefused as error:
            if error.code == SPOILT:
                return spoilt
            raise explain(error, YOURS) from error
        return bool(begun == self._begun)

    async def _explained(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except PostgresRefused as error:
            raise _meaning(error) from error

    # ── newest wins ─────────────────────────────────────────────────────────────────────────────────────────────

    async def apply_events(
        self, deliveries: Sequence[EventDelivery], keep: Retention, *, timeout: float
    ) -> list[LatestResult]:
        """Behind a savepoint: if it fails, a caller who goes on must not commit a mark without its state.

        Their entities are held until the transaction ends. What is held by others is waited for inside the server.
        """
        deadline = time.monotonic() + timeout
        while True:
            await self.begin(timeout=max(deadline - time.monotonic(), 0.0))
            try:
                answers = await self._explained(self._kept(deliveries, keep, deadline))
                if answers is not None:
                    await self.keep()
                    return answers
            except BaseException:
                await self.undo()
                raise
            await self.undo()

    async def _kept(
        self, deliveries: Sequence[EventDelivery], keep: Retention, deadline: float
    ) -> list[LatestResult] | None:
        """None if a mark was claimed meanwhile by somebody who moved no entity."""
        line, batch = await self._connected(), EventBatch(self._table.statements, deliveries, keep, self._now())
        [(before, _)] = await line.rows(deadline, BE_PATIENT, patience(deadline))
        await _asked(line, deadline, batch.hold())
        batch.judge(await _asked(line, deadline, batch.look()))
        replies = [await _asked(line, deadline, call) for call in batch.writes()]
        await line.rows(deadline, PATIENCE, before)
        return batch.answers if batch.took(replies) else None

    async def latest(self, ids: Sequence[bytes], *, timeout: float) -> list[EntityState | None]:
        deadline = time.monotonic() + timeout
        await self._explained(self._enter_same(deadline))
        statement = self._table.statements.newest
        rows = await self._explained((await self._connected()).rows(deadline, statement, self._now(), list(ids)))
        return standings(rows, ids)

    # ── one request ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _apply(self, change: Change, request: AnyRequest, deadline: float) -> Answer:
        if not await self._enter(deadline):
            return Answer(Verdict.LOST, None, self._now() or 0)
        line = await self._connected()
        locked, pause = False, FIRST_WAIT
        while True:
            sight = await self._look(line, request.id, deadline)
            record, verdict = change(sight.record, request, sight.now)
            if record is sight.record:
                return self._answer(request, Answer(verdict, record, sight.now))
            if locked:
                if await self._write(line, sight, record, deadline):
                    return Answer(verdict, record, sight.now)
                locked = False  # seen by others while we looked; the lock itself stays ours
            elif await self._lock(line, request.id, deadline):
                locked = True
                continue  # look again: whoever had the lock may have changed the record
            if time.monotonic() + pause >= deadline:
                return self._taken(request, sight)
            await self._runtime.sleep(pause * (0.5 + self._runtime.jitter() / 2))
            pause = min(pause * 2, LONGEST_WAIT)

    async def _look(self, line: CallerChannel, id: bytes, deadline: float) -> Sight:
        return seen(await line.rows(deadline, self._table.statements.read, self._now(), [id]))[id]

    async def _lock(self, line: CallerChannel, id: bytes, deadline: float) -> bool:
        lock = self._table.lock_of(id)
        [(mine, number)] = await line.rows(deadline, self._table.statements.advise, lock)
        self.number = number
        return bool(mine)

    async def _write(self, line: CallerChannel, sight: Sight, record: Record | None, deadline: float) -> bool:
        assert record is not None  # noqa: S101 (no verb makes a record vanish)
        columns = columns_of([record])
        statements = self._table.statements
        if sight.record is None:
            return bool(await line.rows(deadline, statements.create_one, *[column[0] for column in columns]))
        lock = self._table.lock_of(record.id)
        values = (*columns, [sight.version], [False], [lock])
        [(_, written, _)] = await line.rows(deadline, statements.write, *values)
        return bool(written)

    def _answer(self, request: AnyRequest, answer: Answer) -> Answer:
        """A snapshot that is older than the claim itself cannot tell that it was lost."""
        token = getattr(request, "token", 0)
        stale = answer.verdict is Verdict.LOST and (answer.record is None or answer.record.token < token)
        if stale and self._isolated:
            raise RetryTransaction(
                "your transaction began before the claim that it is to complete",
                hint="roll back and repeat it; claim before the transaction begins",
            )
        return answer

    def _taken(self, request: AnyRequest, sight: Sight) -> Answer:
        if isinstance(request, ClaimRequest):
            return Answer(Verdict.RUNNING, sight.record or elsewhere(request), sight.now)
        raise RetryTransaction("the record is held by another open transaction", hint="roll yours back and repeat it")


async def _asked(line: CallerChannel, deadline: float, call: Call) -> Rows:
    statement, values = call
    return await line.rows(deadline, statement, *values)


def _meaning(error: PostgresRefused) -> StoreError:
    if error.code in AGAIN:
        return RetryTransaction(
            f"the server cannot fit your transaction in beside another one ({error})",
            hint="roll back and repeat it; under READ COMMITTED a duplicate does not need this",
        )
    return explain(error, YOURS)
