"""The latest state of entities: read the states of a batch, let `protocol.latest` decide, write the changes.

A batch is one transaction with few statements, however many events it has: lookups in chunks, one `executemany` for
marks and one for states. Each batch also deletes some expired rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from typing import Any, NamedTuple

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
from onceward.protocol.ports import Clock
from onceward.protocol.record import READER
from onceward.stores.sql_capabilities import SWEEP_PER_DELIVERY, SqlLatest

from .connection import SQLiteConnection
from .latest_cache import LiveEntities, SQLiteLatestCache

Cursor = sqlite3.Cursor
Row = tuple[Any, ...]

_SIZES = (1, 8, 64, 500)
"""Numbers of ids per lookup, padded by repeating the last id: few distinct statements, each prepared once."""

SMALL_BATCH = 16
"""Up to this many deliveries are first checked without the lock, so that a single duplicate does not wait."""

# `+` hides the declared type, so that converters registered on the caller's connection are not applied.
_ORDERS = "SELECT +id, +ordering, +number, +expires_at, +min_reader FROM onceward_latest WHERE id IN ({})"
_SELECT_STATE = "SELECT +id, +scope, +entity, +ordering, +value, +updated_at, +expires_at FROM onceward_latest "
_STATES_BY_ID = _SELECT_STATE + "WHERE id IN ({})"
_ENTITIES = _SELECT_STATE + "WHERE id > ? AND scope = ? AND value IS NOT NULL ORDER BY id LIMIT ?"
_SELECT_MARKS = (
    "SELECT +id, +content, +message, +created_at, +expires_at FROM onceward_marks WHERE expires_at > ? AND id IN ({})"
)
_SELECT_MARK_CONTENTS = "SELECT +id, +content FROM onceward_marks WHERE expires_at > ? AND id IN ({})"

# Values are bound as bytearray, int and str, never as bytes or None: for those, Python searches for adapters each time.
_UPDATE_STATE = "UPDATE onceward_latest SET ordering = ?, value = ?, updated_at = ? WHERE number = ?"
_UPSERT_STATE = """
INSERT INTO onceward_latest (id, scope, entity, ordering, value, updated_at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE
SET ordering = excluded.ordering, value = excluded.value, updated_at = excluded.updated_at, expires_at = NULL
"""
_UPSERT_DELETED = """
INSERT INTO onceward_latest (id, scope, entity, ordering, updated_at, expires_at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE
SET ordering = excluded.ordering, value = NULL, updated_at = excluded.updated_at, expires_at = excluded.expires_at
"""
_INSERT_MARK = """
INSERT INTO onceward_marks (id, content, message, created_at, expires_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING
"""
_UPSERT_MARK = """
INSERT INTO onceward_marks (id, content, message, created_at, expires_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE
SET content = excluded.content, message = excluded.message,
    created_at = excluded.created_at, expires_at = excluded.expires_at
"""
EXPIRE_MARKS = """
DELETE FROM onceward_marks WHERE id IN (
    SELECT id FROM onceward_marks WHERE expires_at <= ? ORDER BY expires_at LIMIT ?
)
"""
EXPIRE_DELETED = """
DELETE FROM onceward_latest WHERE number IN (
    SELECT number FROM onceward_latest WHERE expires_at IS NOT NULL AND expires_at <= ? ORDER BY expires_at LIMIT ?
)
"""


class SQLiteLatest(SqlLatest):
    """The latest states of `SQLiteStore`. All methods block, and are called with the connection's lock held."""

    _connection: SQLiteConnection
    _clock: Clock

    def __init__(self) -> None:
        super().__init__()
        self._latest_cache = SQLiteLatestCache()

    def _apply_events(self, cursor: Cursor, deliveries: Sequence[EventDelivery], keep: Retention) -> list[LatestResult]:
        if len(deliveries) <= SMALL_BATCH:
            preview = decide_without_lock(cursor, deliveries, self._clock.now())
            if not preview.updates and not preview.marks:
                return preview.answers
        decisions = self._connection.write(cursor, self._apply_events_locked, deliveries, keep)
        self._latest_cache.confirm(cursor)
        return decisions.answers

    def _apply_events_locked(
        self, cursor: Cursor, deliveries: Sequence[EventDelivery], keep: Retention
    ) -> LatestDecisions:
        now = self._clock.now()  # after waiting for the lock
        cached = self._latest_cache.load(cursor)
        expire(cursor, now, SWEEP_PER_DELIVERY * len(deliveries))
        return apply_deliveries(cursor, deliveries, keep, now, cached)

    def _read_latest(self, cursor: Cursor, ids: Sequence[bytes]) -> list[EntityState | None]:
        return read_states(cursor, ids, self._clock.now())

    def _entities(self, cursor: Cursor, scope: str, after: bytes, limit: int) -> list[EntityState]:
        return [EntityState(*row) for row in cursor.execute(_ENTITIES, (bytearray(after), scope, limit)).fetchall()]

    def _read_marks(self, cursor: Cursor, ids: Sequence[bytes]) -> list[DedupMark | None]:
        found = {row[0]: DedupMark(*row) for row in fetch_by_ids(cursor, _SELECT_MARKS, set(ids), self._clock.now())}
        return [found.get(id) for id in ids]

    def _expire_latest(self, cursor: Cursor, limit: int) -> int:
        return self._connection.write(cursor, expire, self._clock.now(), limit)


# ── inside a write transaction, of the store or of the caller ──


def apply_deliveries(
    cursor: Cursor, deliveries: Sequence[EventDelivery], keep: Retention, now: int, cached: LiveEntities | None = None
) -> LatestDecisions:
    """Decide about the deliveries and write marks and states. Updates `cached`.

    In a large batch, all marks are assumed to be new, and are looked up only if some of them exist.
    """
    live = cached or LiveEntities({}, {})
    current = _current_orders(cursor, deliveries, now, live)
    decisions = None
    if len(deliveries) > SMALL_BATCH:
        decisions = decide(deliveries, current.orders, {}, now, current.closed)
        if not _insert_new_marks(cursor, decisions, keep, now):
            decisions = None
    if decisions is None:
        decisions = decide(deliveries, current.orders, _known_marks(cursor, deliveries, now), now, current.closed)
        _write_marks(cursor, _UPSERT_MARK, decisions, keep, now)
    _write(cursor, decisions.updates, live, keep, now)
    return decisions


def _write(
    cursor: Cursor, updates: Mapping[bytes, EventDelivery], live: LiveEntities, keep: Retention, now: int
) -> None:
    """Write the states. For an entity that has a state and keeps one, no index is read or written."""
    updated: list[Row] = []
    inserted: list[Row] = []
    deleted: list[Row] = []
    orders, numbers = live
    for id, one in updates.items():
        order, value, number = one.order, one.value, numbers.get(id)
        if value is None:
            deleted.append((bytearray(id), one.scope, one.entity, bytearray(order), now, now + keep.deleted))
            if number is not None:
                del orders[id], numbers[id]
        elif number is None:  # new, or deleted before
            inserted.append((bytearray(id), one.scope, one.entity, bytearray(order), bytearray(value), now))
        else:
            updated.append((bytearray(order), bytearray(value), now, number))
            orders[id] = order
    for statement, rows in ((_UPDATE_STATE, updated), (_UPSERT_STATE, inserted), (_UPSERT_DELETED, deleted)):
        if rows:
            cursor.executemany(statement, rows)


def decide_without_lock(cursor: Cursor, deliveries: Sequence[EventDelivery], now: int) -> LatestDecisions:
    current = _current_orders(cursor, deliveries, now, LiveEntities({}, {}))
    return decide(deliveries, current.orders, _known_marks(cursor, deliveries, now), now, current.closed)


class CurrentOrders(NamedTuple):
    """The orders of the entities of a batch, and the entities that a newer version wrote (`closed`)."""

    orders: Mapping[bytes, bytes]
    closed: AbstractSet[bytes]


def _current_orders(cursor: Cursor, deliveries: Sequence[EventDelivery], now: int, live: LiveEntities) -> CurrentOrders:
    orders, numbers = live
    closed: set[bytes] = set()
    deleted: dict[bytes, bytes] = {}
    unknown = {one.id for one in deliveries}.difference(orders)
    if not unknown:
        return CurrentOrders(orders, closed)
    own_ids = {id: id for id in unknown}  # the id objects of the deliveries, so that dict lookups find them by identity
    for id, order, number, expires_at, min_reader in fetch_by_ids(cursor, _ORDERS, unknown):
        if min_reader > READER:
            closed.add(id)
        elif expires_at is None:
            orders[own_ids[id]], numbers[own_ids[id]] = order, number
        elif expires_at > now:
            deleted[id] = order
    return CurrentOrders({**orders, **deleted} if deleted else orders, closed)


def _known_marks(cursor: Cursor, deliveries: Sequence[EventDelivery], now: int) -> dict[bytes, bytes]:
    ids = {one.message for one in deliveries}
    ids.update(one.event for one in deliveries)
    ids.discard(NO_MARK)
    return dict(fetch_by_ids(cursor, _SELECT_MARK_CONTENTS, ids, now))


def _insert_new_marks(cursor: Cursor, decisions: LatestDecisions, keep: Retention, now: int) -> bool:
    """Insert the marks if all of them are new, and return True. Otherwise write nothing and return False."""
    if not decisions.marks:
        return True
    cursor.execute("SAVEPOINT onceward_marks")
    if _write_marks(cursor, _INSERT_MARK, decisions, keep, now) == len(decisions.marks):
        cursor.execute("RELEASE onceward_marks")
        return True
    cursor.execute("ROLLBACK TO onceward_marks")
    cursor.execute("RELEASE onceward_marks")
    return False


def _write_marks(cursor: Cursor, statement: str, decisions: LatestDecisions, keep: Retention, now: int) -> int:
    end = now + keep.marks
    marks = sorted(decisions.marks.items())  # neighbours in the index share a page
    rows = [(bytearray(id), bytearray(content_of(one.order)), one.trace, now, end) for id, one in marks]
    return cursor.executemany(statement, rows).rowcount if rows else 0


def read_states(cursor: Cursor, ids: Sequence[bytes], now: int) -> list[EntityState | None]:
    found = {row[0]: EntityState(*row) for row in fetch_by_ids(cursor, _STATES_BY_ID, set(ids))}
    live = {id: one for id, one in found.items() if one.expires_at is None or one.expires_at > now}
    return [live.get(id) for id in ids]


def expire(cursor: Cursor, now: int, limit: int) -> int:
    """Delete expired marks and deleted entities. Return how many rows were deleted."""
    deleted = cursor.execute(EXPIRE_MARKS, (now, limit)).rowcount
    return deleted + cursor.execute(EXPIRE_DELETED, (now, limit - deleted)).rowcount


def fetch_by_ids(cursor: Cursor, statement: str, ids: set[bytes], *first: Any) -> list[tuple[Any, ...]]:
    """Return the rows of these ids, read in chunks. `first` are the parameters before the ids."""
    found: list[tuple[Any, ...]] = []
    ordered = list(map(bytearray, sorted(ids)))  # in the order of the index
    for start in range(0, len(ordered), _SIZES[-1]):
        chunk = ordered[start : start + _SIZES[-1]]
        size = next(size for size in _SIZES if size >= len(chunk))
        chunk += chunk[-1:] * (size - len(chunk))
        found += cursor.execute(_with_placeholders(statement, size), (*first, *chunk)).fetchall()
    return found


@cache
def _with_placeholders(statement: str, size: int) -> str:
    return statement.format(", ".join("?" * size))
