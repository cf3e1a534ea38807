"""Operations on many records and administrative changes: scan, counts, purge, forget, audit."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from onceward.errors import StoreUnavailable
from onceward.protocol import transitions
from onceward.protocol.audit import AUDIT_RETENTION, AuditEntry, AuditFilter, AuditSignature, audit_entries, purge_entry
from onceward.protocol.capabilities import HealthFinding
from onceward.protocol.cells import KEEP_UNFINISHED
from onceward.protocol.ports import Filter, Page, SortOrder
from onceward.protocol.record import AfterCrash, Record, RecordState
from onceward.protocol.requests import Answer, AnySettlement, ExpectedRecord, Verdict
from onceward.stores.sql import (
    COLUMNS,
    FIELDS,
    STATES,
    Row,
    record_from_row,
    record_or_stub,
    records_from_rows,
)

from . import schema
from .connection import PostgresConnection, Rows
from .errors import PostgresRefused
from .statements import NOW, Statement
from .table import PostgresTable, RecordSnapshot, Snapshots

CHUNK = 500
"""Records deleted in one transaction: short transactions leave little to vacuum, and block no other client."""

Step = tuple[Record | None, Verdict]
Change = Callable[[bytes, Record | None, int], Step]

_ORDER_BY = {
    SortOrder.UPDATED: "updated_at DESC, id",
    SortOrder.CREATED: "coalesce(created_at, token) DESC, id",
    SortOrder.KEY: "key, id",
}
_ID, _STATE, _TOKEN = (FIELDS.index(name) for name in ("id", "state", "token"))
_AUDIT_FIELDS = AuditEntry.__struct_fields__


DURABILITY_SETTINGS = Statement(
    "SELECT current_setting('server_version'), current_setting('synchronous_commit'), current_setting('fsync'),"
    " current_setting('full_page_writes')"
)
"""The server version, and the settings that decide whether acknowledged commits survive a power cut."""


async def delete_in_chunks(delete: Callable[[int], Awaitable[int]], limit: int) -> int:
    """Delete up to `limit` rows in chunks, each in a transaction of its own. Return how many were deleted."""
    total = 0
    while total < limit:
        chunk = min(limit - total, CHUNK)
        deleted = await delete(chunk)
        total += deleted
        if deleted < chunk:
            break
    return total


class CallContext(NamedTuple):
    """The connection, tables, time and deadline of one call. `now` None: the server's clock."""

    connection: PostgresConnection
    table: PostgresTable
    now: int | None
    deadline: float

    async def rows(self, statement: Statement, *values: Any) -> Rows:
        return await self.connection.rows(self.deadline, statement, *values)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Run the block in a transaction. Locks of other transactions are waited for until the deadline at most."""
        connection, deadline = self.connection, self.deadline
        lock_timeout = max(1, int((deadline - time.monotonic()) * 1000))
        begin = f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout = {lock_timeout}"
        await connection.command(begin, deadline)
        try:
            yield
            await connection.command("COMMIT", deadline)
        except PostgresRefused:
            with suppress(PostgresRefused, StoreUnavailable):
                await connection.command("ROLLBACK", deadline)
            raise


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def scan(context: CallContext, wanted: Filter, after: bytes | None, limit: int) -> Page:
    """Return a page of records, starting after the cursor: in the order of their ids, or of the unfinished index."""
    if wanted.states and RecordState.COMPLETED not in wanted.states:
        return await _scan_unfinished(context, wanted, after, limit)
    where = Conditions(context.now)
    where.add_filter(wanted)
    if after is not None:
        where.add("id > {}::bytea", after)
    rows, now = await _select(context, f"WHERE {where} ORDER BY id LIMIT {limit + 1:d}", where)
    records, unreadable = records_from_rows(rows[:limit])
    return Page(records, bytes(rows[limit - 1][0]) if len(rows) > limit else None, now, unreadable)


async def _scan_unfinished(context: CallContext, wanted: Filter, after: bytes | None, limit: int) -> Page:
    """Return a page of records that are not COMPLETED: state by state, each by its last claim, so without a sort."""
    states = sorted({state.value for state in wanted.states})
    start = (states[0], -1, b"") if after is None else msgspec.msgpack.decode(after, type=tuple[str, int, bytes])
    found: list[Row] = []
    now = 0
    for state in states:
        if state < start[0] or len(found) > limit:
            continue
        token, id = start[1:] if state == start[0] else (-1, b"")
        where = Conditions(context.now)
        where.add("state = {}::text", state)
        where.add_filter(replace(wanted, states=()))
        position = f"(token, id) > ({where.parameter(token, 'bigint')}, {where.parameter(id, 'bytea')})"
        clauses = f"WHERE {where} AND {position} ORDER BY token, id LIMIT {limit + 1 - len(found):d}"
        rows, now = await _select(context, clauses, where)
        found += rows
    records, unreadable = records_from_rows(found[:limit])
    if len(found) <= limit:
        return Page(records, None, now, unreadable)
    last = found[limit - 1]
    position_after = (last[_STATE], last[_TOKEN], bytes(last[_ID]))
    return Page(records, msgspec.msgpack.encode(position_after), now, unreadable)


async def first(context: CallContext, wanted: Filter, order: SortOrder, limit: int) -> Page:
    """Return the first records in an order. Only ids are sorted: records may contain large results."""
    where = Conditions(context.now)
    where.add_filter(wanted)
    order_by = f"{_ORDER_BY[order]} LIMIT {limit:d}"
    chosen = f"SELECT id FROM {context.table.statements.prefix}onceward_records WHERE {where} ORDER BY {order_by}"  # noqa: S608 (our own texts)
    rows, now = await _select(context, f"WHERE id IN ({chosen}) ORDER BY {order_by}", where)
    records, unreadable = records_from_rows(rows)
    return Page(records, None, now, unreadable)


class Conditions:
    """Conditions of a WHERE clause and their parameters. The first parameter is the time."""

    def __init__(self, now: int | None) -> None:
        self.values: list[Any] = [now]
        self._texts: list[str] = []

    def add(self, text: str, value: Any) -> None:
        self.values.append(value)
        self._texts.append(text.format(f"${len(self.values)}"))

    def parameter(self, value: Any, kind: str) -> str:
        """Add a parameter; return its placeholder."""
        self.values.append(value)
        return f"${len(self.values)}::{kind}"

    def add_filter(self, wanted: Filter) -> None:
        if wanted.states:
            completed = "state IS NULL OR " if RecordState.COMPLETED in wanted.states else "state IS NOT NULL AND "
            self.add(f"({completed}state = ANY ({{}}::text[]))", [state.value for state in wanted.states])
        if wanted.scope is not None:
            self.add("scope = {}::text", wanted.scope)
        if wanted.key is not None:
            self.add("key = {}::text", wanted.key)
        if wanted.updated_before is not None:
            self.add("updated_at < {}::bigint", wanted.updated_before)
        if wanted.prefix is not None:
            self.add("starts_with(key, {}::text)", wanted.prefix)

    def __str__(self) -> str:
        return " AND ".join(self._texts) or "TRUE"


async def _select(context: CallContext, clauses: str, where: Conditions) -> tuple[list[Row], int]:
    """Return the rows of records, and the store's time even if there are no rows."""
    inner = f"SELECT {COLUMNS} FROM {context.table.statements.prefix}onceward_records {clauses}"  # noqa: S608 (our own texts)
    text = (
        f"SELECT clock.now, record.* FROM (SELECT coalesce($1::bigint, {NOW}) AS now) AS clock "  # noqa: S608 (as above)
        f"LEFT JOIN LATERAL ({inner}) AS record ON true"
    )
    rows = await context.connection.query(text, context.deadline, *where.values)
    return [tuple(row[1:]) for row in rows if row[1] is not None], rows[0][0]


async def counts(context: CallContext) -> dict[tuple[str, RecordState], int]:
    rows = await context.rows(context.table.statements.counts)
    return {(scope, STATES[state]): number for scope, state, number in rows if state in STATES}


# ── administrative changes ──────────────────────────────────────────────────────────────────────────────────────────


async def settle_signed(
    context: CallContext, settlements: Sequence[AnySettlement], signed: AuditSignature
) -> list[Answer]:
    settlements_by_id = {one.id: one for one in settlements}

    def change(id: bytes, record: Record | None, now: int) -> Step:
        return transitions.settle(record, settlements_by_id[id], now)

    return await _change(context, list(settlements_by_id), change, signed)


async def forget(
    context: CallContext,
    ids: Sequence[bytes],
    seen: Mapping[bytes, ExpectedRecord],
    signed: AuditSignature | None,
    *,
    force: bool,
) -> list[Answer]:
    """Forget the records. `force` includes undecodable ones."""

    def change(id: bytes, record: Record | None, now: int) -> Step:
        return transitions.forget(record, now, force=force, seen=seen.get(id))

    return await _change(context, ids, change, signed, record_or_stub if force else record_from_row, forgets=True)


async def _change(
    context: CallContext,
    ids: Sequence[bytes],
    change: Change,
    signed: AuditSignature | None,
    decode: Callable[[Any], Record] = record_from_row,
    *,
    forgets: bool = False,
) -> list[Answer]:
    """Apply the change. It is first computed without a lock; if nothing changes, no lock is taken."""
    snapshots = await _read_snapshots(context, ids, decode)
    answers, changed = _compute_answers(snapshots, ids, change)
    if not changed:
        return answers
    async with context.transaction():
        await context.rows(context.table.statements.lock, sorted(ids))
        snapshots = await _read_snapshots(context, ids, decode)  # the time after waiting for the locks
        answers, changed = _compute_answers(snapshots, ids, change)
        if changed:
            written, _ = await context.table.write(context.connection, snapshots, changed, context.deadline)
            if len(written) < len(changed):
                raise PostgresRefused("40001", "a record changed although it was locked")
            if forgets:
                await context.rows(context.table.statements.history_delete, list(changed))
            if signed is not None:
                for entry in audit_entries(signed, lambda id: snapshots[id].record, changed.values()):
                    await insert_audit(context, entry)
    return answers


async def _read_snapshots(context: CallContext, ids: Sequence[bytes], decode: Callable[[Any], Record]) -> Snapshots:
    rows = await context.rows(context.table.statements.read, context.now, list(ids))
    return {
        id: RecordSnapshot(None if version is None else decode(tuple(rest)), version, now)
        for now, id, version, *rest in rows
    }


def _compute_answers(
    snapshots: Snapshots, ids: Sequence[bytes], change: Change
) -> tuple[list[Answer], dict[bytes, Answer]]:
    """Return all answers, and those that change a record."""
    answers: list[Answer] = []
    changed: dict[bytes, Answer] = {}
    for id in ids:
        before, _, now = snapshots[id]
        record, verdict = change(id, before, now)
        answers.append(Answer(verdict, record, now))
        if record is not before:
            changed[id] = answers[-1]
    return answers, changed


# ── purge ───────────────────────────────────────────────────────────────────────────────────────────────────────


class PurgeProgress:
    """How far a purge has come, from chunk to chunk."""

    def __init__(self) -> None:
        self.time = 0
        """The purge has already visited records that could be purged before this time."""

        self.free_token = 0
        """FREE records with a lower token were visited before."""

        self.audit_entry = 0
        """The number of the audit entry that counts the deleted records; 0 if there is none yet."""

    def add(self, record: Record) -> None:
        if record.state is RecordState.FREE:
            self.free_token = record.token
        elif record.valid_until is not None:
            self.time = max(record.valid_until, record.token + transitions.CLOCK_MARGIN + 1)


async def purge(
    context: CallContext, limit: int, signed: AuditSignature | None, progress: PurgeProgress
) -> tuple[int, int]:
    """Delete one chunk. Return the number of candidates and of deleted records. Updates `progress`."""
    statements, ages = context.table.statements, (transitions.CLOCK_MARGIN, KEEP_UNFINISHED)
    values = (*ages, limit, AfterCrash.RERUN.value, progress.time, progress.free_token)
    rows = await context.rows(statements.purgeable, context.now, *values)
    now = rows[0][0]
    candidates = [(version, record_or_stub(tuple(columns))) for _, version, *columns in rows if version is not None]
    expired = [(record.id, version) for version, record in candidates if transitions.purgeable(record, now)]
    deleted, entry = 0, progress.audit_entry
    if expired:
        async with context.transaction():
            gone = await context.rows(statements.delete, *map(list, zip(*expired, strict=True)))
            await context.rows(statements.history_delete, [id for (id,) in gone])
            deleted = len(gone)
            if signed is not None and deleted:
                if entry:
                    await context.rows(statements.audit_raise_count, entry, deleted, now)
                else:
                    entry = await insert_audit(context, purge_entry(signed, deleted, now))
    progress.audit_entry = entry  # only after the commit: a chunk that failed is repeated
    for _, record in candidates:
        progress.add(record)
    return len(candidates), deleted


# ── the audit trail ─────────────────────────────────────────────────────────────────────────────────────────────


async def insert_audit(context: CallContext, entry: AuditEntry) -> int:
    [(number,)] = await context.rows(
        context.table.statements.audit_insert, *[getattr(entry, name) for name in _AUDIT_FIELDS]
    )
    return int(number)


async def purge_audit(context: CallContext) -> None:
    await context.rows(context.table.statements.audit_purge, context.now, AUDIT_RETENTION, CHUNK)


async def audit(context: CallContext, wanted: AuditFilter, limit: int) -> list[AuditEntry]:
    """Return audit entries, the most recent first."""
    where = Conditions(context.now)
    for name, kind in (("id", "bytea"), ("scope", "text"), ("key", "text")):
        value = getattr(wanted, name)
        if value is not None:
            where.add(f"{name} = {{}}::{kind}", value)
    if wanted.ids:
        where.add("id = ANY ({}::bytea[])", list(wanted.ids))
    if wanted.within is not None:
        where.add(f"at > coalesce($1::bigint, {NOW}) - {{}}::bigint", wanted.within)
    else:
        where.add("($1::bigint IS NULL OR {}::boolean)", value=True)  # every parameter must have a type
    columns = ", ".join(_AUDIT_FIELDS)
    text = (
        f"SELECT {columns} FROM {context.table.statements.prefix}onceward_audit WHERE {where} "  # noqa: S608 (our own texts)
        f"ORDER BY number DESC LIMIT {limit:d}"
    )
    return [AuditEntry(*row) for row in await context.connection.query(text, context.deadline, *where.values)]


async def examine(context: CallContext) -> list[HealthFinding]:
    """Report on the tables, the server version, and the durability of a commit."""
    found = await schema.examine(context.connection, context.table.statements, context.deadline)
    [(version, commits, syncs, pages)] = await context.rows(DURABILITY_SETTINGS)
    consequence = "acknowledged commits survive a power cut"
    if commits == "off":
        consequence = "the last acknowledged commits may be lost in a crash, and their work may run again"
    if "off" in (syncs, pages):
        consequence = "a power cut may damage the database"
    table_version = f"version {found.version}; this Onceward writes {found.latest}"
    return [
        HealthFinding("schema", found.version == found.latest, table_version),
        HealthFinding("server", ok=True, detail=f"PostgreSQL {version}"),
        HealthFinding(
            "durability",
            "off" not in (commits, syncs, pages),
            f"synchronous_commit={commits}, fsync={syncs}, full_page_writes={pages}: {consequence}",
        ),
    ]
