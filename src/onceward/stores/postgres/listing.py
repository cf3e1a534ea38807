"""List records for people, newest first: by their last claim. Searches walk an index and visit limited numbers."""

from __future__ import annotations

from onceward.protocol.listing import UNFINISHED, ListingFilter, ListingPage
from onceward.protocol.record import RecordState
from onceward.stores.sql import COLUMNS, FIELDS, Row, records_from_rows
from onceward.stores.sql_listing import (
    MAX_VISITED,
    FoundRows,
    Position,
    decode_position,
    filter_conditions,
    merged_page,
    searched_states,
)

from .maintenance import CallContext, Conditions
from .statements import NOW

COLUMNS_WITHOUT_RESULT = COLUMNS.replace(" result,", " NULL::bytea AS result,")
_ID, _TOKEN = FIELDS.index("id"), FIELDS.index("token")


async def newest(context: CallContext, wanted: ListingFilter, after: bytes | None, limit: int) -> ListingPage:
    """Return a page of matching records."""
    start = None if after is None else decode_position(after, tuple[int, bytes])
    found: list[FoundRows] = []
    now = 0
    for state in searched_states(wanted):
        one, now = await _search(context, wanted, state, start, limit)
        found.append(one)
    return merged_page(found, wanted, limit, now)


async def _search(
    context: CallContext, wanted: ListingFilter, state: RecordState | None, start: Position | None, limit: int
) -> tuple[FoundRows, int]:
    where = Conditions(context.now)
    visited = _visited(context, where, wanted, state, start)
    inner = f"SELECT {COLUMNS_WITHOUT_RESULT} {visited} LIMIT {MAX_VISITED:d}"
    outer = f"SELECT * FROM ({inner}) AS visited WHERE {_filters(where, wanted, state)} LIMIT {limit + 1:d}"  # noqa: S608 (our own texts)
    rows, now = await _rows(context, outer, where)
    found = [((row[_TOKEN], bytes(row[_ID])), row) for row in rows]
    if len(found) > limit:
        return FoundRows(found, None, None), now
    where = Conditions(context.now)
    last = f"SELECT token, id {_visited(context, where, wanted, state, start)} LIMIT 1 OFFSET {MAX_VISITED - 1:d}"
    ends, _ = await _rows(context, last, where)
    end = (ends[0][0], bytes(ends[0][1])) if ends else None
    return FoundRows(found, end, None if end is None else end[0]), now


def _visited(
    context: CallContext, where: Conditions, wanted: ListingFilter, state: RecordState | None, start: Position | None
) -> str:
    """Return the clauses that walk the index from the position, and add their parameters."""
    conditions = []
    if state is not None:
        conditions.append(f"state = {where.parameter(state.value, 'text')}")
    if start is not None:
        conditions.append(
            f"(token, id) < ({where.parameter(start[0], 'bigint')}, {where.parameter(start[1], 'bytea')})"
        )
    if wanted.claimed_since is not None:
        conditions.append(f"token >= {where.parameter(wanted.claimed_since, 'bigint')}")
    if wanted.claimed_before is not None:
        conditions.append(f"token < {where.parameter(wanted.claimed_before, 'bigint')}")
    table = f"{context.table.statements.prefix}onceward_records"
    conditions.append("token > 0")  # the condition of the index
    return f"FROM {table} WHERE {' AND '.join(conditions)} ORDER BY token DESC, id DESC"


def _filters(where: Conditions, wanted: ListingFilter, state: RecordState | None) -> str:
    texts = []
    for text, values in filter_conditions(wanted, "strpos", "encode(id, 'hex')"):
        texts.append(text.format(*(where.parameter(value, "text") for value in values)))
    if state is None:
        others = [one.value for one in wanted.states if one is not RecordState.COMPLETED]
        texts.append(f"(state IS NULL OR state = ANY ({where.parameter(others, 'text[]')}))")
    return " AND ".join(texts) or "TRUE"


async def _rows(context: CallContext, inner: str, where: Conditions) -> tuple[list[Row], int]:
    """Return the rows, and the store's time even if there are none."""
    text = (
        f"SELECT clock.now, found.* FROM (SELECT coalesce($1::bigint, {NOW}) AS now) AS clock "  # noqa: S608 (our own texts)
        f"LEFT JOIN LATERAL ({inner}) AS found ON true"
    )
    rows = await context.connection.query(text, context.deadline, *where.values)
    return [tuple(row[1:]) for row in rows if row[1] is not None], rows[0][0]


async def oldest_pending(context: CallContext, wanted: ListingFilter, limit: int) -> ListingPage:
    """Return the PENDING records that were claimed first."""
    where = Conditions(context.now)
    table = f"{context.table.statements.prefix}onceward_records"
    pending = (
        f"SELECT {COLUMNS_WITHOUT_RESULT} FROM {table} WHERE state = 'PENDING' ORDER BY token, id LIMIT {MAX_VISITED:d}"  # noqa: S608 (our own texts)
    )
    filters = _filters(where, wanted, RecordState.PENDING)
    rows, now = await _rows(context, f"SELECT * FROM ({pending}) AS visited WHERE {filters} LIMIT {limit:d}", where)  # noqa: S608 (as above)
    records, unreadable = records_from_rows(rows)
    return ListingPage(records, None, now, unreadable=unreadable)


async def count_unfinished(context: CallContext, limit: int) -> dict[RecordState, int]:
    """Count the records of each unfinished state, up to the limit, in one query."""
    table = f"{context.table.statements.prefix}onceward_records"
    counts = ", ".join(
        f"(SELECT count(*) FROM (SELECT 1 FROM {table} WHERE state = '{state.value}' LIMIT $1::bigint) AS counted)"  # noqa: S608 (our own texts)
        for state in UNFINISHED
    )
    [numbers] = await context.connection.query(f"SELECT {counts}", context.deadline, limit)
    return dict(zip(UNFINISHED, numbers, strict=True))
