"""Erase everything that names a key from every table."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from onceward.protocol.audit import AuditSignature, purge_entry
from onceward.protocol.capabilities import Erasure
from onceward.protocol.erasure import ErasureFilter, FoundEntity
from onceward.protocol.record import Record

from .maintenance import CHUNK, CallContext, insert_audit
from .statements import NOW

_DELETE_FREE = "DELETE FROM {}onceward_records WHERE id = ANY ($1::bytea[]) AND state = 'FREE' RETURNING 1"
_DELETE_HISTORY = """
DELETE FROM {0}onceward_history AS event WHERE id = ANY ($1::bytea[])
    AND NOT EXISTS (SELECT FROM {0}onceward_records AS record WHERE record.id = event.id)
RETURNING 1
"""
_SCOPES = "SELECT DISTINCT scope FROM {}onceward_latest WHERE $1::text IS NULL"
_ENTITIES = "SELECT id, scope, entity FROM {}onceward_latest WHERE scope = ANY ($1::text[])"
_DELETE_ENTITIES = "DELETE FROM {}onceward_latest WHERE id = ANY ($1::bytea[]) RETURNING 1"
_AUDIT = "SELECT number, scope, key FROM {}onceward_audit WHERE key <> $1::text"
_REDACT = (
    "UPDATE {}onceward_audit SET id = '', scope = '', key = '', why = '' WHERE number = ANY ($1::bigint[]) RETURNING 1"
)


class PostgresErasure:
    """The erasure of `PostgresStore`."""

    _run_until: Callable[..., Coroutine[Any, Any, Any]]

    @property
    def erasure(self) -> Erasure:
        return self

    async def delete_free(self, records: Sequence[Record], *, timeout: float) -> int:
        ids = [one.id for one in records]
        deleted = await self._change_rows(_DELETE_FREE, ids, timeout)
        await self._change_rows(_DELETE_HISTORY, ids, timeout)
        return deleted

    async def find_entities(self, wanted: ErasureFilter, *, timeout: float) -> list[FoundEntity]:
        found: list[FoundEntity] = await self._run_until(time.monotonic() + timeout, _find_entities, wanted)
        return found

    async def delete_entities(self, found: Sequence[FoundEntity], *, timeout: float) -> int:
        return await self._change_rows(_DELETE_ENTITIES, [one.id for one in found], timeout)

    async def redact_audit(self, wanted: ErasureFilter, *, timeout: float) -> int:
        rows = await self._run_until(time.monotonic() + timeout, _query, _AUDIT, "")
        numbers = [number for number, scope, key in rows if wanted.selects(scope, key)]
        return await self._change_rows(_REDACT, numbers, timeout)

    async def add_audit(self, signed: AuditSignature, count: int, *, timeout: float) -> None:
        await self._run_until(time.monotonic() + timeout, _add_audit, signed, count)

    async def _change_rows(self, text: str, keys: Sequence[Any], timeout: float) -> int:
        """Execute the statement for these keys, in transactions of limited size. Return how many rows were changed."""
        deadline, changed = time.monotonic() + timeout, 0
        for start in range(0, len(keys), CHUNK):
            changed += len(await self._run_until(deadline, _query, text, list(keys[start : start + CHUNK])))
        return changed


async def _query(context: CallContext, text: str, value: Any) -> list[tuple[Any, ...]]:
    filled = text.format(context.table.statements.prefix)
    return [tuple(row) for row in await context.connection.query(filled, context.deadline, value)]


async def _find_entities(context: CallContext, wanted: ErasureFilter) -> list[FoundEntity]:
    scopes = [scope for (scope,) in await _query(context, _SCOPES, None) if wanted.selects_scope(scope)]
    rows = await _query(context, _ENTITIES, scopes)
    return [FoundEntity(bytes(id), scope, entity) for id, scope, entity in rows if wanted.selects(scope, entity)]


async def _add_audit(context: CallContext, signed: AuditSignature, count: int) -> None:
    [(now,)] = await context.connection.query(
        f"SELECT coalesce($1::bigint, {NOW})",
        context.deadline,
        context.now,
    )
    await insert_audit(context, purge_entry(signed, count, now))
