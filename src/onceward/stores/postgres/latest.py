"""The newest state of entities: see what a batch is about, let `protocol.latest` rule, write if it is still so.

A batch looks without a lock first, and what changes nothing ends there; a large one of which the connection knows all
entities does not even look. What it has to write goes into one transaction, in which every state is written only over
the order that was met and every mark only if nobody has it. Entities that are all there are updated, which costs the
server a third less than an insert that meets them. If somebody else was faster, all of it is undone, and the batch goes
the other way: it holds its entities first and looks then.

Batches never wait for one another crosswise: each takes entities before marks, both in the order of their ids, each in
one pass; what has expired is deleted last, and waits for nobody.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
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
    page_of,
)
from onceward.protocol.ordering import content_of

from .connection import Call
from .errors import PostgresRefused
from .latest_cache import PostgresLatestCache
from .maintenance import Turn, in_chunks
from .row_reader import Rows
from .statements import Statement, Statements

FEW: Final = 16
"""Up to so many deliveries are looked at without a lock in any case: a duplicate that comes alone waits for nobody."""

SWEEP: Final = 4
"""Of what has expired, deleted by the way per delivery: twice what a delivery can add."""

MIN_BATCH: Final = 16
"""After somebody was faster, so many batches hold their entities at once: those who raced will race again."""

BEGIN: Final = Statement("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
PATIENCE: Final = Statement("SELECT set_config('lock_timeout', $1::text, true)")
ORDERLY: Final = Statement(
    "SELECT set_config('lock_timeout', $1::text, true),"
    " set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)"
)
"""Patience, and no plan that takes rows as they lie: batches take them in the order of their ids."""

COMMIT: Final = Statement("COMMIT")

_TIME, _HERE, _OVER, _CLOSED, _MARK, _DELETED = range(6)


class EventBatch:
    """Deliveries, what was seen of their entities, and what is to be written for them. `now` None: the server's."""

    def __init__(
        self, statements: Statements, deliveries: Sequence[EventDelivery], keep: Retention, now: int | None
    ) -> None:
        self._statements = statements
        self.deliveries = deliveries
        self._keep = keep
        self._given_now = now
        self._now = 0
        self._met: Mapping[bytes, bytes] = {}
        self._decisions = LatestDecisions([], {}, {})
        self._looked = False

    @property
    def answers(self) -> list[LatestResult]:
        return self._decisions.answers

    @property
    def updates(self) -> Mapping[bytes, EventDelivery]:
        return self._decisions.updates

    # ── what is seen ──

    def hold(self) -> Call:
        entities = {one.id: one for one in self.deliveries}
        ids = sorted(entities)
        values = ids, [entities[id].scope for id in ids], [entities[id].entity for id in ids]
        return self._statements.newest_hold, values

    def look(self) -> Call:
        marks = {one.message for one in self.deliveries}
        marks.update([one.event for one in self.deliveries])
        marks.discard(NO_MARK)
        ids = sorted({one.id for one in self.deliveries})
        return self._statements.newest_look, (self._given_now, ids, sorted(marks))

    def judge(self, rows: Rows) -> bool:
        """By what `look` has shown; tells whether anything is to be written."""
        orders, marks, closed = self._seen(rows)
        self._decisions = decide(self.deliveries, orders, marks, self._now, closed)
        return bool(self._decisions.updates or self._decisions.marks)

    def unknown(self, recalled: PostgresLatestCache) -> list[bytes]:
        """Entities that have to be looked up before there is anything to guess by."""
        return recalled.unknown(self.deliveries, self._keep.deleted, self._given_now)

    def look_up(self, unknown: list[bytes]) -> Call:
        """Only these entities, and no marks."""
        return self._statements.newest_look, (self._given_now, unknown, [])

    def guess(self, recalled: PostgresLatestCache, rows: Rows) -> bool:
        """By what is recalled, and what `look_up` has shown; False if that does not do, or nothing is to be written."""
        if rows:
            if any(kind not in (_TIME, _HERE) for kind, *_ in rows):  # it expires, or did, or is a newer version's
                return False
            orders, _, _ = self._seen(rows)
            recalled.saw(orders, self._now)
        self._now = recalled.now() if self._given_now is None else self._given_now
        self._met = recalled.orders
        self._decisions = decide(self.deliveries, recalled.orders, {}, self._now)
        return bool(self._decisions.updates)

    def _seen(self, rows: Rows) -> tuple[dict[bytes, bytes], dict[bytes, bytes], set[bytes]]:
        orders: dict[bytes, bytes] = {}
        marks: dict[bytes, bytes] = {}
        met: dict[bytes, bytes] = {}
        closed: set[bytes] = set()
        for kind, id, said, now in rows:
            if kind in (_HERE, _DELETED):
                orders[id] = met[id] = said
            elif kind == _MARK:
                marks[id] = said
            elif kind == _OVER:
                met[id] = said
            elif kind == _CLOSED:
                closed.add(id)
            else:
                self._now = now
        self._met = met
        self._looked = True
        return orders, marks, closed

    # ── what is written ──

    def writes(self, *, counted: bool = False) -> list[Call]:
        """`counted`: on a connection that tells of a command how many rows it has written."""
        calls: list[Call] = []
        if self._decisions.updates:
            calls.append(self._move(counted=counted))
        if self._decisions.marks:
            calls.append((self._statements.newest_mark, self._claims()))
        return calls

    def _move(self, *, counted: bool) -> Call:
        updates = self._decisions.updates
        ids = sorted(updates)
        moved = [updates[id] for id in ids]
        met = list(map(self._met.get, ids))
        orders, values = [one.order for one in moved], [one.value for one in moved]
        times = self._now, self._now + self._keep.deleted
        if counted and None not in met:
            return self._statements.newest_update, (ids, orders, values, met, *times)
        scopes, entities = [one.scope for one in moved], [one.entity for one in moved]
        return self._statements.newest_move, (ids, scopes, entities, orders, values, met, *times)

    def _claims(self) -> list[Any]:
        marks = self._decisions.marks
        ids = sorted(marks)
        claimed = [marks[id] for id in ids]
        contents, traces = [content_of(one.order) for one in claimed], [one.trace for one in claimed]
        return [ids, contents, traces, self._now, self._now + self._keep.marks]

    def took(self, replies: Sequence[Rows]) -> bool:
        """Whether all of it was written: nobody else has changed these entities, or claimed these marks, since."""
        wanted = [len(some) for some in (self._decisions.updates, self._decisions.marks) if some]
        return [rows[0][0] for rows in replies] == wanted

    def sweep(self) -> list[Call]:
        """None if all was guessed: nothing of that expires. Whoever guesses looks once a minute."""
        if not self._looked:
            return []
        return [(self._statements.newest_expire, (self._given_now, SWEEP * len(self.deliveries)))]


class PostgresLatest:
    """Part of `PostgresStore`."""

    _with: Callable[..., Coroutine[Any, Any, Any]]

    def __init__(self) -> None:
        super().__init__()
        self._crowd = 0

    async def apply_events(
        self, deliveries: Sequence[EventDelivery], keep: Retention, *, timeout: float
    ) -> list[LatestResult]:
        answers: list[LatestResult] = await self._with(time.monotonic() + timeout, self._kept, deliveries, keep)
        return answers

    async def latest(self, ids: Sequence[bytes], *, timeout: float) -> list[EntityState | None]:
        found: list[EntityState | None] = await self._with(time.monotonic() + timeout, _standings, ids)
        return found

    async def expire_latest(self, limit: int, *, timeout: float) -> int:
        return await in_chunks(partial(self._with, time.monotonic() + timeout, _expire), limit)

    async def entities(
        self, scope: str, *, cursor: bytes | None, limit: int, timeout: float
    ) -> tuple[list[EntityState], bytes | None]:
        return page_of(await self._with(time.monotonic() + timeout, _entities, scope, cursor or b"", limit), limit)

    async def marks(self, ids: Sequence[bytes], *, timeout: float) -> list[DedupMark | None]:
        found: list[DedupMark | None] = await self._with(time.monotonic() + timeout, _known, ids)
        return found

    async def _kept(self, turn: Turn, deliveries: Sequence[EventDelivery], keep: Retention) -> list[LatestResult]:
        batch = EventBatch(turn.table.statements, deliveries, keep, turn.now)
        if len(deliveries) > FEW and not self._crowd and await _guess_and_write(turn, batch):
            return batch.answers
        looks = not self._crowd or len(deliveries) <= FEW
        if looks and not batch.judge(await _rows(turn, batch.look())):
            return batch.answers
        if not self._crowd:
            if await _write(turn, batch):
                return batch.answers
            self._crowd = MIN_BATCH
        self._crowd = max(0, self._crowd - 1)
        while not await _hold_and_write(turn, batch):
            pass  # a mark was claimed meanwhile by somebody who moved no entity; it is known by now
        return batch.answers


async def _rows(turn: Turn, call: Call) -> Rows:
    statement, values = call
    return await turn.rows(statement, *values)


# ── one transaction ──


async def _write(turn: Turn, batch: EventBatch) -> bool:
    """By what was seen before; False, and nothing is written, if that is not so any more."""
    return await _whole(turn, _written(turn, batch, _begin(turn)))


async def _guess_and_write(turn: Turn, batch: EventBatch) -> bool:
    """Without a look at what the connection has seen before. Behind a pooler, nobody knows whose connection it is."""
    recalled = turn.wire.recalled
    if not turn.wire.prepares or not recalled.serves(batch.deliveries):
        return False
    unknown = batch.unknown(recalled)
    if not batch.guess(recalled, await _rows(turn, batch.look_up(unknown)) if unknown else []):
        return False
    if not await _write(turn, batch):
        recalled.was_wrong()
        return False
    recalled.wrote(batch.updates)
    return True


async def _hold_and_write(turn: Turn, batch: EventBatch) -> bool:
    async def work() -> bool:
        *_, rows = await turn.wire.run(turn.deadline, *_begin(turn), batch.hold(), batch.look())
        batch.judge(rows)
        return await _written(turn, batch, [])

    return await _whole(turn, work())


def _begin(turn: Turn) -> list[Call]:
    return [(BEGIN, ()), (ORDERLY, (str(patience(turn.deadline)),))]


def patience(deadline: float) -> int:
    """How long to wait for others' locks, in ms: so that the server's word comes before the connection is given up."""
    return max(1, int((deadline - time.monotonic()) * 800))


async def _written(turn: Turn, batch: EventBatch, begin: list[Call]) -> bool:
    writes = batch.writes(counted=True)
    if writes:
        replies = await turn.wire.run(turn.deadline, *begin, *writes)
        if not batch.took(replies[len(begin) :]):
            return False
    await turn.wire.run(turn.deadline, *batch.sweep(), (COMMIT, ()))
    return True


async def _whole(turn: Turn, work: Coroutine[Any, Any, bool]) -> bool:
    """All of it, or nothing."""
    try:
        done = await work
    except PostgresRefused:
        with suppress(PostgresRefused, StoreUnavailable):
            await turn.wire.command("ROLLBACK", turn.deadline)
        raise
    if not done:
        await turn.wire.command("ROLLBACK", turn.deadline)
    return done


async def _standings(turn: Turn, ids: Sequence[bytes]) -> list[EntityState | None]:
    return standings(await turn.rows(turn.table.statements.newest, turn.now, list(ids)), ids)


def standings(rows: Rows, ids: Sequence[bytes]) -> list[EntityState | None]:
    """What `newest` shows, in the order of the ids."""
    found = {row[0]: EntityState(*row) for row in rows}
    return [found.get(id) for id in ids]


async def _entities(turn: Turn, scope: str, after: bytes, limit: int) -> list[EntityState]:
    return [EntityState(*row) for row in await turn.rows(turn.table.statements.newest_entities, scope, after, limit)]


async def _known(turn: Turn, ids: Sequence[bytes]) -> list[DedupMark | None]:
    rows = await turn.rows(turn.table.statements.newest_known, turn.now, list(ids))
    found = {row[0]: DedupMark(*row) for row in rows}
    return [found.get(id) for id in ids]


async def _expire(turn: Turn, limit: int) -> int:
    [(gone,)] = await turn.rows(turn.table.statements.newest_expire, turn.now, limit)
    return int(gone)
