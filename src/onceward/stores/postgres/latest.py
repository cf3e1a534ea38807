"""The latest state of entities: read the states of a batch, let `protocol.latest` decide, write if nothing has changed.

A batch first reads without a lock; if nothing changes, it ends there. A large batch whose entities are all in the
connection's cache skips the read. Changes are written in one transaction: a state only if its order is still the one
that was read, a mark only if it does not exist. If all entities exist, they are updated, which costs the server a third
less than an upsert. If another batch was faster, the transaction is rolled back, and the batch locks its entities first
and then reads.

Batches never deadlock: each locks entities before marks, both in the order of their ids, each in one pass. Expired rows
are deleted last, without waiting for locks.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from onceward.errors import StoreUnavailable
from onceward.protocol.latest import (
    NO_MARK,
    DedupMark,
    EntityState,
    EventDelivery,
    LatestDecisions,
    LatestResult,
    Retention,
    decide,
)
from onceward.protocol.ordering import content_of
from onceward.stores.sql_capabilities import SWEEP_PER_DELIVERY, SqlLatest

from .connection import Call, Rows
from .errors import PostgresRefused
from .latest_cache import PostgresLatestCache
from .maintenance import CallContext
from .statements import Statement, Statements

SMALL_BATCH: Final = 16
"""Up to this many deliveries are always read without a lock first, so that a single duplicate does not wait."""

LOCK_FIRST_BATCHES: Final = 16
"""After a conflict, this many batches lock their entities first: writers that raced will race again."""

BEGIN: Final = Statement("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
SET_LOCK_TIMEOUT: Final = Statement("SELECT set_config('lock_timeout', $1::text, true)")
BATCH_SETTINGS: Final = Statement(
    "SELECT set_config('lock_timeout', $1::text, true),"
    " set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)"
)
"""The lock timeout, and no plan that locks rows in physical order: batches lock them in the order of their ids."""

COMMIT: Final = Statement("COMMIT")

_TIME, _LIVE, _EXPIRED, _CLOSED, _MARK, _DELETED = range(6)


class EventBatch:
    """Deliveries, the states that were read for them, and the writes that follow. `now` None: the server's clock."""

    def __init__(
        self, statements: Statements, deliveries: Sequence[EventDelivery], keep: Retention, now: int | None
    ) -> None:
        self._statements = statements
        self.deliveries = deliveries
        self._keep = keep
        self._fixed_now = now
        self._now = 0
        self._expected_orders: Mapping[bytes, bytes] = {}
        self._decisions = LatestDecisions([], {}, {})
        self._has_read = False

    @property
    def answers(self) -> list[LatestResult]:
        return self._decisions.answers

    @property
    def updates(self) -> Mapping[bytes, EventDelivery]:
        return self._decisions.updates

    # ── reading ──

    def lock(self) -> Call:
        entities = {one.id: one for one in self.deliveries}
        ids = sorted(entities)
        values = ids, [entities[id].scope for id in ids], [entities[id].entity for id in ids]
        return self._statements.latest_lock, values

    def lookup(self) -> Call:
        marks = {one.message for one in self.deliveries}
        marks.update([one.event for one in self.deliveries])
        marks.discard(NO_MARK)
        ids = sorted({one.id for one in self.deliveries})
        return self._statements.latest_lookup, (self._fixed_now, ids, sorted(marks))

    def decide(self, rows: Rows) -> bool:
        """Decide by the rows of `lookup`. Return whether anything has to be written."""
        orders, marks, closed = self._read_rows(rows)
        self._decisions = decide(self.deliveries, orders, marks, self._now, closed)
        return bool(self._decisions.updates or self._decisions.marks)

    def unknown(self, cache: PostgresLatestCache) -> list[bytes]:
        """Return the entities that are not cached."""
        return cache.unknown(self.deliveries, self._keep.deleted, self._fixed_now)

    def lookup_entities(self, unknown: list[bytes]) -> Call:
        """Look up only these entities, and no marks."""
        return self._statements.latest_lookup, (self._fixed_now, unknown, [])

    def decide_from_cache(self, cache: PostgresLatestCache, rows: Rows) -> bool:
        """Decide by the cache and the rows of `lookup_entities`. False: they do not suffice, or nothing changes."""
        if rows:
            if any(kind not in (_TIME, _LIVE) for kind, *_ in rows):  # expiring, expired, or of a newer version
                return False
            orders, _, _ = self._read_rows(rows)
            cache.add_read(orders, self._now)
        self._now = cache.now() if self._fixed_now is None else self._fixed_now
        self._expected_orders = cache.orders
        self._decisions = decide(self.deliveries, cache.orders, {}, self._now)
        return bool(self._decisions.updates)

    def _read_rows(self, rows: Rows) -> tuple[dict[bytes, bytes], dict[bytes, bytes], set[bytes]]:
        orders: dict[bytes, bytes] = {}
        marks: dict[bytes, bytes] = {}
        expected: dict[bytes, bytes] = {}
        closed: set[bytes] = set()
        for kind, id, value, now in rows:
            if kind in (_LIVE, _DELETED):
                orders[id] = expected[id] = value
            elif kind == _MARK:
                marks[id] = value
            elif kind == _EXPIRED:
                expected[id] = value
            elif kind == _CLOSED:
                closed.add(id)
            else:
                self._now = now
        self._expected_orders = expected
        self._has_read = True
        return orders, marks, closed

    # ── writing ──

    def writes(self, *, counted: bool = False) -> list[Call]:
        """Return the statements to execute. `counted`: the connection reports how many rows an UPDATE wrote."""
        calls: list[Call] = []
        if self._decisions.updates:
            calls.append(self._state_write(counted=counted))
        if self._decisions.marks:
            calls.append((self._statements.latest_insert_marks, self._mark_values()))
        return calls

    def _state_write(self, *, counted: bool) -> Call:
        updates = self._decisions.updates
        ids = sorted(updates)
        changed = [updates[id] for id in ids]
        expected = list(map(self._expected_orders.get, ids))
        orders, values = [one.order for one in changed], [one.value for one in changed]
        times = self._now, self._now + self._keep.deleted
        if counted and None not in expected:
            return self._statements.latest_update, (ids, orders, values, expected, *times)
        scopes, entities = [one.scope for one in changed], [one.entity for one in changed]
        return self._statements.latest_upsert, (ids, scopes, entities, orders, values, expected, *times)

    def _mark_values(self) -> list[Any]:
        marks = self._decisions.marks
        ids = sorted(marks)
        inserted = [marks[id] for id in ids]
        contents, traces = [content_of(one.order) for one in inserted], [one.trace for one in inserted]
        return [ids, contents, traces, self._now, self._now + self._keep.marks]

    def all_written(self, replies: Sequence[Rows]) -> bool:
        """Return whether everything was written: no entity has changed and no mark was inserted since the read."""
        expected_counts = [len(changes) for changes in (self._decisions.updates, self._decisions.marks) if changes]
        return [rows[0][0] for rows in replies] == expected_counts

    def sweep(self) -> list[Call]:
        """Return the deletion of expired rows. Skipped if only the cache was used, which is refreshed every minute."""
        if not self._has_read:
            return []
        return [(self._statements.latest_expire, (self._fixed_now, SWEEP_PER_DELIVERY * len(self.deliveries)))]


class PostgresLatest(SqlLatest):
    """The latest states of `PostgresStore`."""

    def __init__(self) -> None:
        super().__init__()
        self._lock_first_batches = 0

    async def _apply_events(
        self, context: CallContext, deliveries: Sequence[EventDelivery], keep: Retention
    ) -> list[LatestResult]:
        batch = EventBatch(context.table.statements, deliveries, keep, context.now)
        if len(deliveries) > SMALL_BATCH and not self._lock_first_batches and await _write_from_cache(context, batch):
            return batch.answers
        read_first = not self._lock_first_batches or len(deliveries) <= SMALL_BATCH
        if read_first and not batch.decide(await _rows(context, batch.lookup())):
            return batch.answers
        if not self._lock_first_batches:
            if await _write(context, batch):
                return batch.answers
            self._lock_first_batches = LOCK_FIRST_BATCHES
        self._lock_first_batches = max(0, self._lock_first_batches - 1)
        while not await _lock_and_write(context, batch):
            pass  # another batch inserted a mark without changing its entity; the next lookup finds it
        return batch.answers

    async def _read_latest(self, context: CallContext, ids: Sequence[bytes]) -> list[EntityState | None]:
        return states_from_rows(await context.rows(context.table.statements.latest, context.now, list(ids)), ids)

    async def _entities(self, context: CallContext, scope: str, after: bytes, limit: int) -> list[EntityState]:
        rows = await context.rows(context.table.statements.latest_entities, scope, after, limit)
        return [EntityState(*row) for row in rows]

    async def _read_marks(self, context: CallContext, ids: Sequence[bytes]) -> list[DedupMark | None]:
        rows = await context.rows(context.table.statements.latest_marks, context.now, list(ids))
        found = {row[0]: DedupMark(*row) for row in rows}
        return [found.get(id) for id in ids]

    async def _expire_latest(self, context: CallContext, limit: int) -> int:
        [(deleted,)] = await context.rows(context.table.statements.latest_expire, context.now, limit)
        return int(deleted)


async def _rows(context: CallContext, call: Call) -> Rows:
    statement, values = call
    return await context.rows(statement, *values)


# ── one transaction ──


async def _write(context: CallContext, batch: EventBatch) -> bool:
    """Write what was decided. Return False, without writing anything, if the states have changed since."""
    return await _all_or_nothing(context, _write_and_commit(context, batch, _begin(context)))


async def _write_from_cache(context: CallContext, batch: EventBatch) -> bool:
    """Write without reading cached entities. Not behind a pooler: there the server connection may be another one."""
    cache = context.connection.latest_cache
    if not context.connection.prepares or not cache.can_serve(batch.deliveries):
        return False
    unknown = batch.unknown(cache)
    if not batch.decide_from_cache(cache, await _rows(context, batch.lookup_entities(unknown)) if unknown else []):
        return False
    if not await _write(context, batch):
        cache.invalidate()
        return False
    cache.add_written(batch.updates)
    return True


async def _lock_and_write(context: CallContext, batch: EventBatch) -> bool:
    async def work() -> bool:
        *_, rows = await context.connection.run(context.deadline, *_begin(context), batch.lock(), batch.lookup())
        batch.decide(rows)
        return await _write_and_commit(context, batch, [])

    return await _all_or_nothing(context, work())


def _begin(context: CallContext) -> list[Call]:
    return [(BEGIN, ()), (BATCH_SETTINGS, (str(lock_timeout_ms(context.deadline)),))]


def lock_timeout_ms(deadline: float) -> int:
    """Return the lock timeout in ms. Shorter than the deadline, so that the server's error arrives before it."""
    return max(1, int((deadline - time.monotonic()) * 800))


async def _write_and_commit(context: CallContext, batch: EventBatch, begin: list[Call]) -> bool:
    writes = batch.writes(counted=True)
    if writes:
        replies = await context.connection.run(context.deadline, *begin, *writes)
        if not batch.all_written(replies[len(begin) :]):
            return False
    await context.connection.run(context.deadline, *batch.sweep(), (COMMIT, ()))
    return True


async def _all_or_nothing(context: CallContext, work: Coroutine[Any, Any, bool]) -> bool:
    """Await the work. Roll back if it raises or returns False."""
    try:
        done = await work
    except PostgresRefused:
        with suppress(PostgresRefused, StoreUnavailable):
            await context.connection.command("ROLLBACK", context.deadline)
        raise
    if not done:
        await context.connection.command("ROLLBACK", context.deadline)
    return done


def states_from_rows(rows: Rows, ids: Sequence[bytes]) -> list[EntityState | None]:
    """Return the states from the rows of `latest`, in the order of the ids."""
    found = {row[0]: EntityState(*row) for row in rows}
    return [found.get(id) for id in ids]
