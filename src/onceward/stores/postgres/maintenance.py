"""What is asked about many records at once, and what people change by hand: scan, counts, purge, forget, audit."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from onceward.errors import StoreUnavailable
from onceward.protocol import transitions
from onceward.protocol.audit import AUDIT_RETENTION, AuditEntry, AuditFilter, AuditSignature, audit_entries, purge_entry
from onceward.protocol.capabilities import HealthFinding
from onceward.protocol.cells import KEEP_UNFINISHED
from onceward.protocol.ports import Filter, Page, SortOrder
from onceward.protocol.record import AfterCrash, Record, RecordState
from onceward.protocol.requests import Answer, AnySettlement, ExpectedRecord, Verdict
from onceward.stores.sql import COLUMNS, Row, record_from_row, record_or_stub, records_from_rows

from . import schema
from .connection import PostgresConnection
from .errors import PostgresRefused
from .row_reader import Rows
from .statements import NOW, Statement
from .table import PostgresTable, Sight, Sights

CHUNK = 500
"""Records deleted in one transaction: short ones leave little to clean up behind them, and hold up nobody."""

Step = tuple[Record | None, Verdict]
Change = Callable[[bytes, Record | None, int], Step]

_PLACES = {SortOrder.UPDATED: "updated_at DESC, id", SortOrder.CREATED: "created_at DESC, id", SortOrder.KEY: "key, id"}
_ENTRY = AuditEntry.__struct_fields__


KEPT = Statement(
    "SELECT current_setting('server_version'), current_setting('synchronous_commit'), current_setting('fsync'),"
    " current_setting('full_page_writes')"
)
"""Which server it is, and whether what it acknowledges survives a power cut."""


async def in_chunks(delete: Callable[[int], Awaitable[int]], limit: int) -> int:
    """What has expired goes in chunks, each a transaction of its own; tells how many went."""
    gone = 0
    while gone < limit:
        most = min(limit - gone, CHUNK)
        went = await delete(most)
        gone += went
        if went < most:
            break
    return gone


class Turn(NamedTuple):
    """One call with a connection in hand. `now` is None where the server's clock decides."""

    wire: PostgresConnection
    table: PostgresTable
    now: int | None
    deadline: float

    async def rows(self, statement: Statement, *values: Any) -> Rows:
        return await self.wire.rows(self.deadline, statement, *values)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """All of it, or nothing and an error. Waits for others' locks no longer than the call may take."""
        wire, deadline = self.wire, self.deadline
        patience = max(1, int((deadline - time.monotonic()) * 1000))
        begin = f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout = {patience}"
        await wire.command(begin, deadline)
        try:
            yield
            await wire.command("COMMIT", deadline)
        except PostgresRefused:
            with suppress(PostgresRefused, StoreUnavailable):
                await wire.command("ROLLBACK", deadline)
            raise


# ── looking ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def scan(turn: Turn, wanted: Filter, after: bytes | None, limit: int) -> Page:
    """Records in the order of their ids, from behind the cursor on."""
    where = _Conditions(turn.now)
    where.of(wanted)
    if after is not None:
        where.add("id > {}::bytea", after)
    rows, now = await _select(turn, f"WHERE {where} ORDER BY id LIMIT {limit + 1:d}", where)
    records, unreadable = records_from_rows(rows[:limit])
    return Page(records, bytes(rows[limit - 1][0]) if len(rows) > limit else None, now, unreadable)


async def first(turn: Turn, wanted: Filter, order: SortOrder, limit: int) -> Page:
    """The first records of an order. Ids are sorted, not records: those may carry large results."""
    where = _Conditions(turn.now)
    where.of(wanted)
    place = f"{_PLACES[order]} LIMIT {limit:d}"
    chosen = f"SELECT id FROM {turn.table.statements.prefix}onceward_records WHERE {where} ORDER BY {place}"  # noqa: S608 (our own texts)
    rows, now = await _select(turn, f"WHERE id IN ({chosen}) ORDER BY {place}", where)
    records, unreadable = records_from_rows(rows)
    return Page(records, None, now, unreadable)


class _Conditions:
    """Texts of conditions and what is bound in them; the time is the first of the values."""

    def __init__(self, now: int | None) -> None:
        self.values: list[Any] = [now]
        self._texts: list[str] = []

    def add(self, text: str, value: Any) -> None:
        self.values.append(value)
        self._texts.append(text.format(f"${len(self.values)}"))

    def of(self, wanted: Filter) -> None:
        if wanted.states:
            self.add("state = ANY ({}::text[])", [state.value for state in wanted.states])
            if RecordState.COMPLETED not in wanted.states:
                self._texts.append("state <> 'COMPLETED'")  # word by word the condition of the index
        if wanted.scope is not None:
            self.add("scope = {}::text", wanted.scope)
        if wanted.key is not None:
            self.add("key = {}::text", wanted.key)
        if wanted.updated_before is not None:
            self.add("updated_at < {}::bigint", wanted.updated_before)

    def __str__(self) -> str:
        return " AND ".join(self._texts) or "TRUE"


async def _select(turn: Turn, place: str, where: _Conditions) -> tuple[list[Row], int]:
    """The rows of records, and the store's time even if there are none."""
    inner = f"SELECT {COLUMNS} FROM {turn.table.statements.prefix}onceward_records {place}"  # noqa: S608 (our own texts)
    text = (
        f"SELECT clock.now, record.* FROM (SELECT coalesce($1::bigint, {NOW}) AS now) AS clock "  # noqa: S608 (as above)
        f"LEFT JOIN LATERAL ({inner}) AS record ON true"
    )
    rows = await turn.wire.ask(text, turn.deadline, *where.values)
    return [tuple(row[1:]) for row in rows if row[1] is not None], rows[0][0]


async def counts(turn: Turn) -> dict[tuple[str, RecordState], int]:
    known = {state.value: state for state in RecordState}
    rows = await turn.rows(turn.table.statements.counts)
    return {(scope, known[state]): number for scope, state, number in rows if state in known}


# ── changing by hand ────────────────────────────────────────────────────────────────────────────────────────────


async def settle_signed(turn: Turn, settlements: Sequence[AnySettlement], signed: AuditSignature) -> list[Answer]:
    asked = {one.id: one for one in settlements}

    def change(id: bytes, record: Record | None, now: int) -> Step:
        return transitions.settle(record, asked[id], now)

    return await _change(turn, list(asked), change, signed)


async def forget(
    turn: Turn,
    ids: Sequence[bytes],
    seen: Mapping[bytes, ExpectedRecord],
    signed: AuditSignature | None,
    *,
    force: bool,
) -> list[Answer]:
    """By force even what cannot be read."""

    def change(id: bytes, record: Record | None, now: int) -> Step:
        return transitions.forget(record, now, force=force, seen=seen.get(id))

    return await _change(turn, ids, change, signed, record_or_stub if force else record_from_row)


async def _change(
    turn: Turn,
    ids: Sequence[bytes],
    change: Change,
    signed: AuditSignature | None,
    read: Callable[[Any], Record] = record_from_row,
) -> list[Answer]:
    """Judged by what is seen without a lock first: what changes nothing takes none, and writes nothing."""
    sights = await _seen(turn, ids, read)
    answers, changed = _judge(sights, ids, change)
    if not changed:
        return answers
    async with turn.transaction():
        await turn.rows(turn.table.statements.lock, sorted(ids))
        sights = await _seen(turn, ids, read)  # the time after waiting for the locks
        answers, changed = _judge(sights, ids, change)
        if changed:
            written, _ = await turn.table.write(turn.wire, sights, changed, turn.deadline)
            if len(written) < len(changed):
                raise PostgresRefused("40001", "a record changed although it was locked")
            if signed is not None:
                for entry in audit_entries(signed, lambda id: sights[id].record, changed.values()):
                    await sign(turn, entry)
    return answers


async def _seen(turn: Turn, ids: Sequence[bytes], read: Callable[[Any], Record]) -> Sights:
    rows = await turn.rows(turn.table.statements.read, turn.now, list(ids))
    return {id: Sight(None if version is None else read(tuple(rest)), version, now) for now, id, version, *rest in rows}


def _judge(sights: Sights, ids: Sequence[bytes], change: Change) -> tuple[list[Answer], dict[bytes, Answer]]:
    """The answers, and those among them that change a record."""
    answers: list[Answer] = []
    changed: dict[bytes, Answer] = {}
    for id in ids:
        before, _, now = sights[id]
        record, verdict = change(id, before, now)
        answers.append(Answer(verdict, record, now))
        if record is not before:
            changed[id] = answers[-1]
    return answers, changed


# ── purge ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def purge(turn: Turn, limit: int, signed: AuditSignature | None, entry: int) -> tuple[int, int, int]:
    """How many looked purgeable, how many went, and the number of the audit entry that counts them."""
    statements, ages = turn.table.statements, (transitions.CLOCK_MARGIN, KEEP_UNFINISHED)
    rows = await turn.rows(statements.purgeable, turn.now, *ages, limit, AfterCrash.RERUN.value)
    ids = [id for _, id in rows if id is not None]
    if not ids:
        return 0, 0, entry
    sights = await _seen(turn, ids, record_or_stub)  # one that cannot be read must not keep the others
    over = {id: one for id, one in sights.items() if one.record and transitions.purgeable(one.record, one.now)}
    if not over:
        return len(ids), 0, entry
    async with turn.transaction():
        gone = len(await turn.rows(statements.delete, list(over), [one.version for one in over.values()]))
        if signed is not None and gone:
            now = rows[0][0]
            if entry:
                await turn.rows(statements.count_more, entry, gone, now)
            else:
                entry = await sign(turn, purge_entry(signed, gone, now))
    return len(ids), gone, entry


# ── the audit trail ─────────────────────────────────────────────────────────────────────────────────────────────


async def sign(turn: Turn, entry: AuditEntry) -> int:
    [(number,)] = await turn.rows(turn.table.statements.sign, *[getattr(entry, name) for name in _ENTRY])
    return int(number)


async def purge_audit(turn: Turn) -> None:
    await turn.rows(turn.table.statements.purge_audit, turn.now, AUDIT_RETENTION, CHUNK)


async def audit(turn: Turn, wanted: AuditFilter, limit: int) -> list[AuditEntry]:
    """The newest first."""
    where = _Conditions(turn.now)
    for name, kind in (("id", "bytea"), ("scope", "text"), ("key", "text")):
        value = getattr(wanted, name)
        if value is not None:
            where.add(f"{name} = {{}}::{kind}", value)
    if wanted.within is not None:
        where.add(f"at > coalesce($1::bigint, {NOW}) - {{}}::bigint", wanted.within)
    else:
        where.add("($1::bigint IS NULL OR {}::boolean)", value=True)  # every parameter must have a type
    columns = ", ".join(_ENTRY)
    text = (
        f"SELECT {columns} FROM {turn.table.statements.prefix}onceward_audit WHERE {where} "  # noqa: S608 (our own texts)
        f"ORDER BY number DESC LIMIT {limit:d}"
    )
    return [AuditEntry(*row) for row in await turn.wire.ask(text, turn.deadline, *where.values)]


async def examine(turn: Turn) -> list[HealthFinding]:
    """For people: the tables, the server, and what a commit is worth there."""
    found = await schema.examine(turn.wire, turn.table.statements, turn.deadline)
    [(version, commits, syncs, pages)] = await turn.rows(KEPT)
    survives = "what was acknowledged survives a power cut"
    if commits == "off":
        survives = "the last acknowledged commits may be lost in a crash, and their work may run again"
    if "off" in (syncs, pages):
        survives = "a power cut may damage the database"
    version_of_tables = f"version {found.version}; this Onceward writes {found.latest}"
    return [
        HealthFinding("schema", found.version == found.latest, version_of_tables),
        HealthFinding("server", well=True, detail=f"PostgreSQL {version}"),
        HealthFinding(
            "durability",
            "off" not in (commits, syncs, pages),
            f"synchronous_commit={commits}, fsync={syncs}, full_page_writes={pages}: {survives}",
        ),
    ]
