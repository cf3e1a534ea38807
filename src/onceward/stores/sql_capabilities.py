"""The optional capabilities of the SQL stores: latest states, counters, the history of keys, erasure.

The public methods are here. They pass private methods, which each store implements, to `_run`. It calls them with a
cursor (SQLite) or a `CallContext` (PostgreSQL).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple

from onceward.protocol.audit import AuditSignature
from onceward.protocol.capabilities import Erasure, History
from onceward.protocol.counters import CounterRow, StoredCounts
from onceward.protocol.erasure import ErasureFilter, FoundEntity
from onceward.protocol.history import HistoryEvent, belongs_to
from onceward.protocol.latest import DedupMark, EntityState, EventDelivery, LatestResult, Retention, page_of
from onceward.protocol.record import Record, RecordState

from .sql import STATES, Row
from .sql_reading import Conditions, Reader

CHUNK: Final = 500
"""Rows deleted in one transaction."""

SWEEP_PER_ROW: Final = 2
"""Expired counters deleted for each row that is written: twice the number added, so that the table shrinks again."""

SWEEP_PER_DELIVERY: Final = 4
"""Expired marks and states deleted for each delivery: twice the number that a delivery can add."""


class SqlCalls:
    """How a store runs its work."""

    _run: Callable[..., Coroutine[Any, Any, Any]]
    _run_until: Callable[..., Coroutine[Any, Any, Any]]

    async def _delete_in_chunks(self, delete: Callable[..., Any], limit: int, timeout: float) -> int:
        """Delete up to `limit` rows in chunks, each in a transaction of its own. Return how many were deleted."""
        deadline, total = time.monotonic() + timeout, 0
        while total < limit:
            chunk = min(limit - total, CHUNK)
            deleted: int = await self._run_until(deadline, delete, chunk)
            total += deleted
            if deleted < chunk:
                break
        return total


class SqlLatest(SqlCalls):
    """The latest states of a SQL store."""

    _apply_events: Callable[..., Any]
    _read_latest: Callable[..., Any]
    _entities: Callable[..., Any]
    _read_marks: Callable[..., Any]
    _expire_latest: Callable[..., Any]

    async def apply_events(
        self, deliveries: Sequence[EventDelivery], keep: Retention, *, timeout: float
    ) -> list[LatestResult]:
        answers: list[LatestResult] = await self._run(timeout, self._apply_events, deliveries, keep)
        return answers

    async def read_latest(self, ids: Sequence[bytes], *, timeout: float) -> list[EntityState | None]:
        found: list[EntityState | None] = await self._run(timeout, self._read_latest, ids)
        return found

    async def expire_latest(self, limit: int, *, timeout: float) -> int:
        return await self._delete_in_chunks(self._expire_latest, limit, timeout)

    async def entities(
        self, scope: str, *, cursor: bytes | None, limit: int, timeout: float
    ) -> tuple[list[EntityState], bytes | None]:
        return page_of(await self._run(timeout, self._entities, scope, cursor or b"", limit), limit)

    async def marks(self, ids: Sequence[bytes], *, timeout: float) -> list[DedupMark | None]:
        found: list[DedupMark | None] = await self._run(timeout, self._read_marks, ids)
        return found


class SqlCounters(SqlCalls):
    """The counters of a SQL store: one row per process and hour, overwritten as the process keeps counting."""

    _save_counts: Callable[..., Any]
    _read_counts: Callable[..., Any]
    _expire_counts: Callable[..., Any]

    async def save_counts(self, counter_rows: Sequence[CounterRow], *, timeout: float) -> int:
        now: int = await self._run(timeout, self._save_counts, counter_rows)
        return now

    async def read_counts(self, since: int, *, timeout: float) -> StoredCounts:
        found: StoredCounts = await self._run(timeout, self._read_counts, since)
        return found

    async def expire_counts(self, limit: int, *, timeout: float) -> int:
        return await self._delete_in_chunks(self._expire_counts, limit, timeout)


class SqlHistory(SqlCalls):
    """The history of the keys of a SQL store: one row per event, deleted with its record."""

    _append_history: Callable[..., Any]
    _read_history: Callable[..., Any]

    @property
    def history(self) -> History:
        return self

    async def append_history(self, events: Sequence[HistoryEvent], *, timeout: float) -> int:
        now: int = await self._run(timeout, self._append_history, events)
        return now

    async def read_history(self, id: bytes, *, limit: int, timeout: float) -> list[HistoryEvent]:
        found: list[HistoryEvent] = await self._run(timeout, self._read_history, id, limit)
        return found


class _Lifetime(NamedTuple):
    state: RecordState
    token: int
    cycle: int


def events_to_keep(events: Sequence[HistoryEvent], rows: Sequence[Row]) -> list[HistoryEvent]:
    """Return the events that belong to their records, given the id, state, token and cycle of each record."""
    records = {id: _Lifetime(STATES.get(state, RecordState.PENDING), token, cycle) for id, state, token, cycle in rows}
    return [event for event in events if belongs_to(event, records.get(event.id))]


# ── erasure ─────────────────────────────────────────────────────────────────────────────────────────────────────

_DELETE_FREE: Final = "DELETE FROM {prefix}onceward_records WHERE id {matches} AND state = 'FREE'"
_DELETE_HISTORY: Final = """
DELETE FROM {prefix}onceward_history WHERE id {matches}
    AND NOT EXISTS (SELECT 1 FROM {prefix}onceward_records AS record WHERE record.id = onceward_history.id)
"""
_DELETE_ENTITIES: Final = "DELETE FROM {prefix}onceward_latest WHERE id {matches}"
_REDACT: Final = (
    "UPDATE {prefix}onceward_audit SET id = substr(id, 1, 0), scope = '', key = '', why = '' WHERE number {matches}"
)


class SqlErasure(SqlCalls):
    """The erasure of a SQL store: it removes keys from every table."""

    _change_rows: Callable[..., Any]
    """Executes one of the statements above for some keys. Returns how many rows were changed."""
    _add_purge_entry: Callable[..., Any]
    _with_reader: Callable[..., Any]
    """Calls the function that is its next argument with a `Reader`."""

    @property
    def erasure(self) -> Erasure:
        return self

    async def delete_free(self, records: Sequence[Record], *, timeout: float) -> int:
        ids = [one.id for one in records]
        deleted = await self._change_in_chunks(_DELETE_FREE, ids, timeout)
        await self._change_in_chunks(_DELETE_HISTORY, ids, timeout)
        return deleted

    async def find_entities(self, wanted: ErasureFilter, *, timeout: float) -> list[FoundEntity]:
        found: list[FoundEntity] = await self._run(timeout, self._with_reader, _find_entities, wanted)
        return found

    async def delete_entities(self, found: Sequence[FoundEntity], *, timeout: float) -> int:
        return await self._change_in_chunks(_DELETE_ENTITIES, [one.id for one in found], timeout)

    async def redact_audit(self, wanted: ErasureFilter, *, timeout: float, dry_run: bool = False) -> int:
        numbers: list[int] = await self._run(timeout, self._with_reader, _find_entries, wanted)
        return len(numbers) if dry_run else await self._change_in_chunks(_REDACT, numbers, timeout)

    async def add_audit(self, signed: AuditSignature, count: int, *, timeout: float) -> None:
        await self._run(timeout, self._add_purge_entry, signed, count)

    async def discard_deleted(self, *, timeout: float) -> str:  # noqa: ARG002 (there is nothing to do)
        return ""

    async def _change_in_chunks(self, text: str, keys: Sequence[bytes] | Sequence[int], timeout: float) -> int:
        """Execute the statement for these keys, in transactions of limited size. Return how many rows were changed."""
        deadline, changed = time.monotonic() + timeout, 0
        for start in range(0, len(keys), CHUNK):
            changed += await self._run_until(deadline, self._change_rows, text, keys[start : start + CHUNK])
        return changed


async def _find_entities(reader: Reader, wanted: ErasureFilter) -> list[FoundEntity]:
    table = f"{reader.prefix}onceward_latest"
    rows, _ = await reader.select(f"SELECT DISTINCT scope FROM {table}", ())  # noqa: S608 (our own text)
    scopes = [scope for (scope,) in rows if wanted.selects_scope(scope)]
    found: list[Row] = []
    for start in range(0, len(scopes), CHUNK):
        where = Conditions(reader)
        where.add_in("scope", scopes[start : start + CHUNK])
        rows, _ = await reader.select(f"SELECT id, scope, entity FROM {table} WHERE {where.clause()}", where.values)  # noqa: S608 (as above)
        found += rows
    return [FoundEntity(*row) for row in found if wanted.selects(row[1], row[2])]


async def _find_entries(reader: Reader, wanted: ErasureFilter) -> list[int]:
    """Return the numbers of the audit entries to redact."""
    select = f"SELECT number, scope, key FROM {reader.prefix}onceward_audit WHERE key <> ''"  # noqa: S608 (our own text)
    rows, _ = await reader.select(select, ())
    return [number for number, scope, key in rows if wanted.selects(scope, key)]
