"""The newest state of entities: read what a batch is about, let `model.newest` rule, write what changed.

A batch is one transaction of a handful of statements, however many events it has: two kinds of look-up in chunks, one
`executemany` for marks and one for entities, and what has expired is deleted by the way.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from onceward.model.newest import Delivery, Keep, Ruled, Rulings, Standing, rule
from onceward.model.ordering import content_of
from onceward.model.record import READER
from onceward.ports import Clock

from .link import Allowance, Link
from .upkeep import CHUNK

Cursor = sqlite3.Cursor

_SIZES = (1, 8, 64, 500)
"""Ids are looked up in statements of these sizes, filled up by repetition: few statements, each prepared once."""

FEW = 16
"""Up to so many deliveries are looked at without a lock first: a duplicate that comes alone shall wait for nobody."""

SWEEP = 4
"""Of what has expired, deleted by the way per delivery: twice what a delivery can add."""

# `+` hides the declared type: on a connection of the user's, no converter of theirs is applied.
_ORDERS = "SELECT +id, +ordering, +expires_at, +min_reader FROM onceward_newest WHERE id IN ({})"
_STANDINGS = (
    "SELECT +id, +scope, +entity, +ordering, +value, +updated_at, +expires_at FROM onceward_newest WHERE id IN ({})"
)
_MARKS = "SELECT +id, +content FROM onceward_marks WHERE expires_at > ? AND id IN ({})"

_WRITE = """
INSERT INTO onceward_newest (id, scope, entity, ordering, value, updated_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE
SET ordering = excluded.ordering, value = excluded.value,
    updated_at = excluded.updated_at, expires_at = excluded.expires_at
"""
_CLAIM = """
INSERT INTO onceward_marks (id, content, message, created_at, expires_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE
SET content = excluded.content, message = excluded.message,
    created_at = excluded.created_at, expires_at = excluded.expires_at
"""
_EXPIRE_MARKS = """
DELETE FROM onceward_marks WHERE id IN (
    SELECT id FROM onceward_marks WHERE expires_at <= ? ORDER BY expires_at LIMIT ?
)
"""
_EXPIRE_DELETED = """
DELETE FROM onceward_newest WHERE rowid IN (
    SELECT rowid FROM onceward_newest WHERE expires_at IS NOT NULL AND expires_at <= ? ORDER BY expires_at LIMIT ?
)
"""


class SQLiteNewest:
    """Part of `SQLiteStore`."""

    _link: Link
    _clock: Clock
    _turn_of: Callable[..., Coroutine[Any, Any, Any]]

    async def keep_newest(self, deliveries: Sequence[Delivery], keep: Keep, *, timeout: float) -> list[Ruled]:
        answers: list[Ruled] = await self._turn_of(Allowance.of(timeout), self._keep_newest, deliveries, keep)
        return answers

    async def newest(self, ids: Sequence[bytes], *, timeout: float) -> list[Standing | None]:
        found: list[Standing | None] = await self._turn_of(Allowance.of(timeout), self._newest, ids)
        return found

    async def expire_newest(self, limit: int, *, timeout: float) -> int:
        """In chunks, each a turn and a transaction of its own, so that others pass in between."""
        allowance = Allowance.of(timeout)
        gone = 0
        while gone < limit:
            most = min(limit - gone, CHUNK)
            went: int = await self._turn_of(allowance, self._expire, most)
            gone += went
            if went < most:
                break
        return gone

    # ── the same, blocking, with the connection in hand ──

    def _keep_newest(self, cursor: Cursor, deliveries: Sequence[Delivery], keep: Keep) -> list[Ruled]:
        if len(deliveries) <= FEW:
            seen = judged(cursor, deliveries, self._clock.now())
            if not seen.newest and not seen.marks:
                return seen.answers
        return self._link.write(cursor, self._kept, deliveries, keep)

    def _kept(self, cursor: Cursor, deliveries: Sequence[Delivery], keep: Keep) -> list[Ruled]:
        now = self._clock.now()  # after waiting for the lock
        expire(cursor, now, SWEEP * len(deliveries))
        return kept(cursor, deliveries, keep, now)

    def _newest(self, cursor: Cursor, ids: Sequence[bytes]) -> list[Standing | None]:
        return standings(cursor, ids, self._clock.now())

    def _expire(self, cursor: Cursor, limit: int) -> int:
        return self._link.write(cursor, self._expired, limit)

    def _expired(self, cursor: Cursor, limit: int) -> int:
        return expire(cursor, self._clock.now(), limit)


# ── within somebody's write transaction: the store's own, or the caller's ──


def kept(cursor: Cursor, deliveries: Sequence[Delivery], keep: Keep, now: int) -> list[Ruled]:
    rulings = judged(cursor, deliveries, now)
    ends = now + keep.marks
    if rulings.marks:
        marks = sorted(rulings.marks.items())  # neighbours in the index share a page
        cursor.executemany(_CLAIM, [(id, content_of(one.order), one.trace, now, ends) for id, one in marks])
    if rulings.newest:
        forgotten = now + keep.deleted
        rows = [
            (one.id, one.scope, one.entity, one.order, one.value, now, forgotten if one.value is None else None)
            for one in rulings.newest.values()
        ]
        cursor.executemany(_WRITE, rows)
    return rulings.answers


def judged(cursor: Cursor, deliveries: Sequence[Delivery], now: int) -> Rulings:
    orders: dict[bytes, bytes] = {}
    closed = set()
    for id, order, expires_at, min_reader in looked_up(cursor, _ORDERS, {one.id for one in deliveries}):
        if min_reader > READER:
            closed.add(id)
        elif expires_at is None or expires_at > now:
            orders[id] = order
    ids = {one.message for one in deliveries}
    ids.update(one.event for one in deliveries)
    ids.discard(b"")
    marks = dict(looked_up(cursor, _MARKS, ids, now))
    return rule(deliveries, orders, marks, now, closed)


def standings(cursor: Cursor, ids: Sequence[bytes], now: int) -> list[Standing | None]:
    found = {row[0]: Standing(*row) for row in looked_up(cursor, _STANDINGS, set(ids))}
    alive = {id: one for id, one in found.items() if one.expires_at is None or one.expires_at > now}
    return [alive.get(id) for id in ids]


def expire(cursor: Cursor, now: int, limit: int) -> int:
    """Marks, and what is left of deleted entities; tells how many went."""
    gone = cursor.execute(_EXPIRE_MARKS, (now, limit)).rowcount
    return gone + cursor.execute(_EXPIRE_DELETED, (now, limit - gone)).rowcount


def looked_up(cursor: Cursor, statement: str, ids: set[bytes], *first: Any) -> list[tuple[Any, ...]]:
    """The rows of these ids, in chunks."""
    found: list[tuple[Any, ...]] = []
    ordered = sorted(ids)  # as the index has them
    for start in range(0, len(ordered), _SIZES[-1]):
        chunk = ordered[start : start + _SIZES[-1]]
        size = next(size for size in _SIZES if size >= len(chunk))
        chunk += chunk[-1:] * (size - len(chunk))
        found += cursor.execute(_sized(statement, size), (*first, *chunk)).fetchall()
    return found


def _sized(statement: str, size: int) -> str:
    key = (statement, size)
    text = _texts.get(key)
    if text is None:
        text = _texts[key] = statement.format(", ".join("?" * size))
    return text


_texts: dict[tuple[str, int], str] = {}
