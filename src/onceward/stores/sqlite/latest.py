"""The newest state of entities: read what a batch is about, let `protocol.latest` rule, write what changed.

A batch is one transaction of a handful of statements, however many events it has: the look-up in chunks, one
`executemany` for marks and one for states, and what has expired is deleted by the way.

What an entity is called and what it holds are two rows: an event changes only the second, and that one is narrow.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine, Mapping, Sequence
from collections.abc import Set as AbstractSet
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
    paged,
)
from onceward.protocol.ordering import content_of
from onceward.protocol.ports import Clock

from .connection import Allowance, SQLiteConnection
from .latest_cache import Alive, SQLiteLatestCache
from .maintenance import CHUNK

Cursor = sqlite3.Cursor
Row = tuple[Any, ...]

_SIZES = (1, 8, 64, 500)
"""Ids are looked up in statements of these sizes, filled up by repetition: few statements, each prepared once."""

FEW = 16
"""Up to so many deliveries are looked at without a lock first: a duplicate that comes alone shall wait for nobody."""

SWEEP = 4
"""Of what has expired, deleted by the way per delivery: twice what a delivery can add."""

NUMBERED = 2
"""The reader that an entity with a number needs: one that looks for its state in `onceward_states`."""

# `+` hides the declared type: on a connection of the user's, no converter of theirs is applied.
_ORDERS = """
SELECT +n.id, coalesce(s.ordering, n.ordering), +s.number, +n.expires_at, +n.min_reader
FROM onceward_newest n LEFT JOIN onceward_states s ON s.number = n.number
WHERE n.id IN ({})
"""
_STANDING = """
SELECT +n.id, +n.scope, +n.entity, coalesce(s.ordering, n.ordering), coalesce(s.value, n.value),
    coalesce(s.updated_at, n.updated_at), +n.expires_at
FROM onceward_newest n LEFT JOIN onceward_states s ON s.number = n.number
"""
_STANDINGS = _STANDING + "WHERE n.id IN ({})"
_ENTITIES = (
    _STANDING + "WHERE n.id > ? AND n.scope = ? AND coalesce(s.value, n.value) IS NOT NULL ORDER BY n.id LIMIT ?"
)
_KNOWN = (
    "SELECT +id, +content, +message, +created_at, +expires_at FROM onceward_marks WHERE expires_at > ? AND id IN ({})"
)
_MARKS = "SELECT +id, +content FROM onceward_marks WHERE expires_at > ? AND id IN ({})"

# Values are bound as bytearray, int and str, never as bytes or None: for those, Python looks for adapters each time.
_MOVE = "UPDATE onceward_states SET ordering = ?, value = ?, updated_at = ? WHERE number = ?"
_NUMBER = "SELECT coalesce(max(number), 0) FROM onceward_states"
_STATE = "INSERT INTO onceward_states (ordering, value, updated_at, number) VALUES (?, ?, ?, ?)"
_REVIVE = """
INSERT INTO onceward_newest (id, scope, entity, ordering, updated_at, number, min_reader)
VALUES (?, ?, ?, x'', ?, ?, ?)
ON CONFLICT (id) DO UPDATE
SET ordering = excluded.ordering, value = NULL, updated_at = excluded.updated_at, expires_at = NULL,
    number = excluded.number, min_reader = excluded.min_reader
"""
_DELETE = """
INSERT INTO onceward_newest (id, scope, entity, ordering, updated_at, expires_at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE
SET ordering = excluded.ordering, value = NULL, updated_at = excluded.updated_at, expires_at = excluded.expires_at,
    number = NULL, min_reader = excluded.min_reader
"""
_EMPTY = "DELETE FROM onceward_states WHERE number = ?"
_CLAIM_NEW = """
INSERT INTO onceward_marks (id, content, message, created_at, expires_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING
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


class SQLiteLatest:
    """Part of `SQLiteStore`."""

    _link: SQLiteConnection
    _clock: Clock
    _turn_of: Callable[..., Coroutine[Any, Any, Any]]

    def __init__(self) -> None:
        super().__init__()
        self._orders = SQLiteLatestCache()

    async def apply_events(
        self, deliveries: Sequence[EventDelivery], keep: Retention, *, timeout: float
    ) -> list[LatestResult]:
        answers: list[LatestResult] = await self._turn_of(Allowance.of(timeout), self._apply_events, deliveries, keep)
        return answers

    async def latest(self, ids: Sequence[bytes], *, timeout: float) -> list[EntityState | None]:
        found: list[EntityState | None] = await self._turn_of(Allowance.of(timeout), self._latest, ids)
        return found

    async def expire_latest(self, limit: int, *, timeout: float) -> int:
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

    async def entities(
        self, scope: str, *, cursor: bytes | None, limit: int, timeout: float
    ) -> tuple[list[EntityState], bytes | None]:
        return paged(await self._turn_of(Allowance.of(timeout), self._entities, scope, cursor or b"", limit), limit)

    async def marks(self, ids: Sequence[bytes], *, timeout: float) -> list[DedupMark | None]:
        found: list[DedupMark | None] = await self._turn_of(Allowance.of(timeout), self._marks, ids)
        return found

    # ── the same, blocking, with the connection in hand ──

    def _apply_events(self, cursor: Cursor, deliveries: Sequence[EventDelivery], keep: Retention) -> list[LatestResult]:
        if len(deliveries) <= FEW:
            seen = judged(cursor, deliveries, self._clock.now())
            if not seen.updates and not seen.marks:
                return seen.answers
        decisions = self._link.write(cursor, self._kept, deliveries, keep)
        self._orders.keep(cursor)
        return decisions.answers

    def _kept(self, cursor: Cursor, deliveries: Sequence[EventDelivery], keep: Retention) -> LatestDecisions:
        now = self._clock.now()  # after waiting for the lock
        recalled = self._orders.begin(cursor)
        expire(cursor, now, SWEEP * len(deliveries))
        return kept(cursor, deliveries, keep, now, recalled)

    def _latest(self, cursor: Cursor, ids: Sequence[bytes]) -> list[EntityState | None]:
        return standings(cursor, ids, self._clock.now())

    def _entities(self, cursor: Cursor, scope: str, after: bytes, limit: int) -> list[EntityState]:
        return [EntityState(*row) for row in cursor.execute(_ENTITIES, (bytearray(after), scope, limit)).fetchall()]

    def _marks(self, cursor: Cursor, ids: Sequence[bytes]) -> list[DedupMark | None]:
        found = {row[0]: DedupMark(*row) for row in looked_up(cursor, _KNOWN, set(ids), self._clock.now())}
        return [found.get(id) for id in ids]

    def _expire(self, cursor: Cursor, limit: int) -> int:
        return self._link.write(cursor, self._expired, limit)

    def _expired(self, cursor: Cursor, limit: int) -> int:
        return expire(cursor, self._clock.now(), limit)


# ── within somebody's write transaction: the store's own, or the caller's ──


def kept(
    cursor: Cursor, deliveries: Sequence[EventDelivery], keep: Retention, now: int, recalled: Alive | None = None
) -> LatestDecisions:
    """Marks of many deliveries are taken for new, and looked up only if some turn out to be there.

    What is recalled of the entities is brought up to date.
    """
    alive = recalled or Alive({}, {})
    met = _met(cursor, deliveries, now, alive)
    decisions = None
    if len(deliveries) > FEW:
        decisions = decide(deliveries, met.orders, {}, now, met.closed)
        if not _claimed_afresh(cursor, decisions, keep, now):
            decisions = None
    if decisions is None:
        decisions = decide(deliveries, met.orders, _known(cursor, deliveries, now), now, met.closed)
        _claim(cursor, _CLAIM, decisions, keep, now)
    _write(cursor, decisions.updates, alive, keep, now)
    return decisions


def _write(cursor: Cursor, updates: Mapping[bytes, EventDelivery], alive: Alive, keep: Retention, now: int) -> None:
    """What is there and stays there gets its new order and value, and no index is touched or looked at."""
    moved: list[Row] = []
    revived: list[tuple[EventDelivery, bytearray]] = []
    deleted: list[Row] = []
    emptied: list[Row] = []
    orders, numbers = alive
    number_of = numbers.get
    for id, one in updates.items():
        order, value, number = one.order, one.value, number_of(id)
        if value is None:
            deleted.append((bytearray(id), one.scope, one.entity, bytearray(order), now, now + keep.deleted))
            if number is not None:
                emptied.append((number,))
                del orders[id], numbers[id]
        elif number is None:
            revived.append((one, bytearray(value)))
        else:
            moved.append((bytearray(order), bytearray(value), now, number))
            orders[id] = order
    if revived:
        _revive(cursor, revived, alive, now)
    for statement, changes in ((_MOVE, moved), (_EMPTY, emptied), (_DELETE, deleted)):
        if changes:
            cursor.executemany(statement, changes)


def _revive(cursor: Cursor, revived: list[tuple[EventDelivery, bytearray]], alive: Alive, now: int) -> None:
    """What is new, was deleted, or still has its state in its own row: it gets a number, and is at hand from now on."""
    last: int = cursor.execute(_NUMBER).fetchall()[0][0]
    entities: list[Row] = []
    states: list[Row] = []
    for number, (one, value) in enumerate(revived, last + 1):
        id, order = one.id, one.order
        entities.append((bytearray(id), one.scope, one.entity, now, number, NUMBERED))
        states.append((bytearray(order), value, now, number))
        alive.orders[id], alive.numbers[id] = order, number
    cursor.executemany(_REVIVE, entities)
    cursor.executemany(_STATE, states)


def judged(cursor: Cursor, deliveries: Sequence[EventDelivery], now: int) -> LatestDecisions:
    met = _met(cursor, deliveries, now, Alive({}, {}))
    return decide(deliveries, met.orders, _known(cursor, deliveries, now), now, met.closed)


class Met(NamedTuple):
    """What the deliveries meet: the orders of their entities, and which ones a newer version wrote."""

    orders: Mapping[bytes, bytes]
    closed: AbstractSet[bytes]


def _met(cursor: Cursor, deliveries: Sequence[EventDelivery], now: int, alive: Alive) -> Met:
    orders, numbers = alive
    closed: set[bytes] = set()
    others: dict[bytes, bytes] = {}  # deleted, or without a number yet
    unknown = {one.id for one in deliveries}.difference(orders)
    if not unknown:
        return Met(orders, closed)
    ours = {id: id for id in unknown}  # to be found again at a glance: they are the very objects that deliveries have
    for id, order, number, expires_at, min_reader in looked_up(cursor, _ORDERS, unknown):
        if min_reader > NUMBERED:
            closed.add(id)
        elif number is not None:
            orders[ours[id]], numbers[ours[id]] = order, number
        elif expires_at is None or expires_at > now:
            others[id] = order
    return Met({**orders, **others} if others else orders, closed)


def _known(cursor: Cursor, deliveries: Sequence[EventDelivery], now: int) -> dict[bytes, bytes]:
    ids = {one.message for one in deliveries}
    ids.update(one.event for one in deliveries)
    ids.discard(NO_MARK)
    return dict(looked_up(cursor, _MARKS, ids, now))


def _claimed_afresh(cursor: Cursor, decisions: LatestDecisions, keep: Retention, now: int) -> bool:
    """Whether all marks are new, and written now. If not, nothing is written."""
    if not decisions.marks:
        return True
    cursor.execute("SAVEPOINT onceward_marks")
    if _claim(cursor, _CLAIM_NEW, decisions, keep, now) == len(decisions.marks):
        cursor.execute("RELEASE onceward_marks")
        return True
    cursor.execute("ROLLBACK TO onceward_marks")
    cursor.execute("RELEASE onceward_marks")
    return False


def _claim(cursor: Cursor, statement: str, decisions: LatestDecisions, keep: Retention, now: int) -> int:
    end = now + keep.marks
    marks = sorted(decisions.marks.items())  # neighbours in the index share a page
    rows = [(bytearray(id), bytearray(content_of(one.order)), one.trace, now, end) for id, one in marks]
    return cursor.executemany(statement, rows).rowcount if rows else 0


def standings(cursor: Cursor, ids: Sequence[bytes], now: int) -> list[EntityState | None]:
    """One whose state somebody has removed by hand has no order: nothing is known of it any more."""
    found = {row[0]: EntityState(*row) for row in looked_up(cursor, _STANDINGS, set(ids))}
    alive = {id: one for id, one in found.items() if one.order and (one.expires_at is None or one.expires_at > now)}
    return [alive.get(id) for id in ids]


def expire(cursor: Cursor, now: int, limit: int) -> int:
    """Marks, and what is left of deleted entities; tells how many went."""
    gone = cursor.execute(_EXPIRE_MARKS, (now, limit)).rowcount
    return gone + cursor.execute(_EXPIRE_DELETED, (now, limit - gone)).rowcount


def looked_up(cursor: Cursor, statement: str, ids: set[bytes], *first: Any) -> list[tuple[Any, ...]]:
    """The rows of these ids, in chunks."""
    found: list[tuple[Any, ...]] = []
    ordered = list(map(bytearray, sorted(ids)))  # as the index has them
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
