"""Operations on many records and administrative changes: scan, counts, purge, forget, audit."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from onceward.errors import StoreUnavailable
from onceward.protocol import transitions
from onceward.protocol.audit import AUDIT_RETENTION, AuditEntry, AuditSignature, audit_entries, purge_entry
from onceward.protocol.capabilities import HealthFinding
from onceward.protocol.cells import KEEP_UNFINISHED
from onceward.protocol.record import AfterCrash, Record, RecordState
from onceward.protocol.requests import Answer, AnySettlement, ExpectedRecord, Verdict
from onceward.stores import sql_reading
from onceward.stores.sql import COLUMNS, STATES, Row, record_from_row, record_or_stub
from onceward.stores.sql_reading import Dialect

from . import schema
from .connection import PostgresConnection, Rows
from .errors import PostgresRefused
from .statements import NOW, Statement
from .table import PostgresTable, RecordSnapshot, Snapshots

CHUNK = 500
"""Records deleted in one transaction: short transactions leave little to vacuum, and block no other client."""

Step = tuple[Record | None, Verdict]
Change = Callable[[bytes, Record | None, int], Step]

_DIALECT = Dialect(
    row_id="id",
    row_id_type=bytes,
    newest_order=("token", "id"),
    newest_condition="token > 0",
    columns_without_result=COLUMNS.replace(" result,", " NULL::bytea AS result,"),
    find="strpos",
    hex_id="encode(id, 'hex')",
    now="clock.now",
)


DURABILITY_SETTINGS = Statement(
    "SELECT current_setting('server_version'), current_setting('synchronous_commit'), current_setting('fsync'),"
    " current_setting('full_page_writes')"
)
"""The server version, and the settings that decide whether acknowledged commits survive a power cut."""


def column_type(value: str | int | bytes) -> str:
    """Return the type of columns with such values. A text may be of a subclass, such as a member of a StrEnum."""
    if isinstance(value, str):
        return "text"
    return "bigint" if isinstance(value, int) else "bytea"


class CallContext(NamedTuple):
    """The connection, tables, time and deadline of one call. `now` None: the server's clock."""

    connection: PostgresConnection
    table: PostgresTable
    now: int | None
    deadline: float

    @property
    def dialect(self) -> Dialect:
        return _DIALECT

    @property
    def prefix(self) -> str:
        return self.table.statements.prefix

    def placeholder(self, number: int, value: Any) -> str:
        return f"${number + 1}::{column_type(value)}"  # the first parameter is the time

    async def select(self, text: str, values: Sequence[Any]) -> tuple[list[Row], int]:
        """Return the rows, and the store's time even if there are none (see `sql_reading`)."""
        select = (
            f"SELECT clock.now, found.* FROM (SELECT coalesce($1::bigint, {NOW}) AS now) AS clock "  # noqa: S608 (our own texts)
            f"LEFT JOIN LATERAL ({text}) AS found ON true"
        )
        rows = await self.connection.query(select, self.deadline, self.now, *values)
        return [tuple(row[1:]) for row in rows if row[1] is not None], rows[0][0]

    async def read_time(self) -> int:
        return (await self.select("SELECT 1", ()))[1]

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


scan, first, audit = sql_reading.scan, sql_reading.first, sql_reading.audit


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
        context.table.statements.audit_insert, *[getattr(entry, name) for name in sql_reading.AUDIT_FIELDS]
    )
    return int(number)


async def purge_audit(context: CallContext) -> None:
    await context.rows(context.table.statements.audit_purge, context.now, AUDIT_RETENTION, CHUNK)


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
