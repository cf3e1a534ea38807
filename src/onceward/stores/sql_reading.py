"""Read many records of a SQL store: scans, sorted pages, listings for operators and the audit trail.

Listings walk an index and visit a limited number of records.
"""

from __future__ import annotations

import json
from collections.abc import Coroutine, Sequence
from typing import Annotated, Any, Final, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from onceward.errors import ConfigurationError
from onceward.protocol.audit import AuditEntry, AuditFilter
from onceward.protocol.listing import UNFINISHED, ListingFilter, ListingPage
from onceward.protocol.note import SAGA
from onceward.protocol.ports import Filter, Page, SortOrder
from onceward.protocol.record import RecordState
from onceward.stores.sql import COLUMNS, FIELDS, Row, records_from_rows

T = TypeVar("T")

MAX_VISITED: Final = 20_000
"""Records that one page visits at most. This takes tens of milliseconds, and is never a full scan."""

Position = tuple[int, Any]
"""Where a record is in a listing: its token, and its row id or id."""

Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""An integer that fits into a column. A forged cursor may contain others."""

AUDIT_FIELDS: Final = AuditEntry.__struct_fields__
_STATE, _TOKEN = FIELDS.index("state"), FIELDS.index("token")
_ORDER_BY: Final = {
    SortOrder.UPDATED: "updated_at DESC, id",
    SortOrder.CREATED: "coalesce(created_at, token) DESC, id",
    SortOrder.KEY: "key, id",
}


class Dialect(NamedTuple):
    """The SQL that differs between databases."""

    row_id: str
    """The column that orders records with equal tokens in the index of unfinished records."""
    row_id_type: type
    """The type of this column: a cursor with a value of another type is one of another store."""
    newest_order: tuple[str, ...]
    """The order in which all records are listed: by token if there is an index, otherwise by row."""
    newest_condition: str
    """A condition that every record meets, and that makes the database use the index of this order."""
    columns_without_result: str
    find: str
    """The function that finds the position of a text in another."""
    hex_id: str
    """The expression for the id of a record in hexadecimal digits."""
    now: str
    """The expression for the store's time in a query of `Reader.select`."""


class Reader(Protocol):
    """Reads from the tables of one database."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def prefix(self) -> str:
        """The text before each table name, such as a schema."""
        ...

    def placeholder(self, number: int, value: Any) -> str:
        """Return the placeholder of the parameter with this number, counted from 1."""
        ...

    async def select(self, text: str, values: Sequence[Any]) -> tuple[list[Row], int]:
        """Return the rows of a query whose first column is never NULL, and the store's time."""
        ...


def without_waiting(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine whose reader never waits, because it calls the database directly."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError


class Conditions:
    """Builds the conditions of WHERE clauses. `values` are the parameters, in the order of their placeholders."""

    def __init__(self, reader: Reader) -> None:
        self.values: list[Any] = []
        self._reader = reader
        self._texts: list[str] = []

    def add(self, text: str, *values: Any) -> None:
        """Add a condition with a `{}` for each of its values."""
        first = len(self.values) + 1
        self.values += values
        self._texts.append(text.format(*map(self._reader.placeholder, range(first, first + len(values)), values)))

    def add_in(self, column: str, values: Sequence[Any]) -> None:
        self.add(_is_in(column, values), *values)

    def add_states(self, states: Sequence[RecordState]) -> None:
        others = [state.value for state in states if state is not RecordState.COMPLETED]
        parts = ["state IS NULL"] if RecordState.COMPLETED in states else []
        if others:
            parts.append(_is_in("state", others))
        self.add(f"({' OR '.join(parts)})", *others)

    def add_filter(self, wanted: Filter) -> None:
        if wanted.states:
            self.add_states(wanted.states)
        if wanted.scope is not None:
            self.add("scope = {}", wanted.scope)
        if wanted.key is not None:
            self.add("key = {}", wanted.key)
        if wanted.updated_before is not None:
            self.add("updated_at < {}", wanted.updated_before)
        if wanted.prefix is not None:
            self.add_prefix("key", wanted.prefix)

    def add_prefix(self, text: str, prefix: str) -> None:
        self.add(f"substr({text}, 1, {len(prefix):d}) = {{}}", prefix)

    def add_listing_filter(self, wanted: ListingFilter) -> None:
        """Add all conditions but state and time. They may match too many records: `matches` filters again."""
        find = self._reader.dialect.find
        if wanted.scopes:
            self._add_any([_scope_condition(scope) for scope in wanted.scopes])
        if wanted.tenants:
            self._add_any([_tenant_condition(tenant, find) for tenant in wanted.tenants])
        if wanted.prefix:
            self.add_prefix("key", wanted.prefix)
        if wanted.id:
            self.add_prefix(self._reader.dialect.hex_id, wanted.id.lower())
        if wanted.error_type:
            self.add("error_type = {}", wanted.error_type)
        if wanted.note:
            text = json.dumps(wanted.note.rpartition("=")[2], ensure_ascii=False)[1:-1]
            self.add(f"{find}(note, {{}}) > 0", text)
        if wanted.sagas:
            self.add(f"{find}(note, {{}}) > 0", f'"{SAGA}":"')

    def add_claim_times(self, wanted: ListingFilter) -> None:
        if wanted.claimed_since is not None:
            self.add("token >= {}", wanted.claimed_since)
        if wanted.claimed_before is not None:
            self.add("token < {}", wanted.claimed_before)

    def _add_any(self, conditions: Sequence[tuple[str, Sequence[str]]]) -> None:
        texts, values = zip(*conditions, strict=True)
        self.add(f"({' OR '.join(texts)})", *[value for some in values for value in some])

    def clause(self) -> str:
        """Return the conditions that were added since the last call."""
        texts, self._texts = self._texts, []
        return " AND ".join(texts) or "TRUE"


def _is_in(column: str, values: Sequence[Any]) -> str:
    return f"{column} IN ({', '.join(['{}'] * len(values))})"


def _scope_condition(scope: str) -> tuple[str, list[str]]:
    if "@" in scope:
        return "scope = {}", [scope]
    return "scope = {} OR scope >= {} AND scope < {}", [scope, f"{scope}@", f"{scope}A"]  # A follows @


def _tenant_condition(tenant: str, find: str) -> tuple[str, list[str]]:
    if not tenant:
        return f"{find}(scope, '@') = 0", []
    return f"substr(scope, {find}(scope, '@')) = {{}}", [f"@{tenant}"]


# ── scans ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def scan(reader: Reader, wanted: Filter, after: bytes | None, limit: int) -> Page:
    """Return a page of records, starting after the cursor: in the order of their ids, or of the unfinished index."""
    if wanted.states and RecordState.COMPLETED not in wanted.states:
        return await _scan_unfinished(reader, wanted, after, limit)
    where = Conditions(reader)
    where.add_filter(wanted)
    if after is not None:
        where.add("id > {}", after)
    select = f"SELECT {COLUMNS} FROM {_records(reader)} WHERE {where.clause()} ORDER BY id LIMIT {limit + 1:d}"  # noqa: S608 (our own texts)
    rows, now = await reader.select(select, where.values)
    records, unreadable = records_from_rows(rows[:limit])
    return Page(records, rows[limit - 1][0] if len(rows) > limit else None, now, unreadable)


async def _scan_unfinished(reader: Reader, wanted: Filter, after: bytes | None, limit: int) -> Page:
    """Return a page of unfinished records, by state and last claim. The index has this order, so no sort is needed."""
    row_id = reader.dialect.row_id
    states = sorted({state.value for state in wanted.states})
    kind = tuple[str, Number, Number | bytes]
    begin, *position = (states[0],) if after is None else decode_position(reader, after, kind)
    found: list[Row] = []
    now = 0
    for state in states:
        if state < begin or len(found) > limit:
            continue
        where = Conditions(reader)
        where.add("state = {}", state)
        if position and state == begin:
            where.add(f"(token, {row_id}) > ({{}}, {{}})", *position)
        where.add_filter(replace(wanted, states=()))
        rows, now = await reader.select(
            f"SELECT {row_id} AS number, {COLUMNS} FROM {_records(reader)} WHERE {where.clause()}"  # noqa: S608 (as above)
            f" ORDER BY token, {row_id} LIMIT {limit + 1 - len(found):d}",
            where.values,
        )
        found += rows
    records, unreadable = records_from_rows(row[1:] for row in found[:limit])
    if len(found) <= limit:
        return Page(records, None, now, unreadable)
    number, *last = found[limit - 1]
    return Page(records, encode_position((last[_STATE], last[_TOKEN], number)), now, unreadable)


async def first(reader: Reader, wanted: Filter, order: SortOrder, limit: int) -> Page:
    """Return the first records in an order. Only row ids are sorted: records may contain large results."""
    where = Conditions(reader)
    where.add_filter(wanted)
    table, row_id, order_by = _records(reader), reader.dialect.row_id, _ORDER_BY[order]
    chosen = f"SELECT {row_id} FROM {table} WHERE {where.clause()} ORDER BY {order_by} LIMIT {limit:d}"  # noqa: S608 (as above)
    select = f"SELECT {COLUMNS} FROM {table} WHERE {row_id} IN ({chosen}) ORDER BY {order_by}"  # noqa: S608 (as above)
    rows, now = await reader.select(select, where.values)
    records, unreadable = records_from_rows(rows)
    return Page(records, None, now, unreadable)


def _records(reader: Reader) -> str:
    return f"{reader.prefix}onceward_records"


# ── listings for operators ──────────────────────────────────────────────────────────────────────────────────────


async def newest(reader: Reader, wanted: ListingFilter, after: bytes | None, limit: int) -> ListingPage:
    """Return a page of matching records: unfinished ones state by state, or all of them."""
    start: Position | None = None if after is None else decode_position(reader, after, tuple[Number, Number | bytes])
    states = tuple(dict.fromkeys(wanted.states)) if wanted.only_unfinished else (None,)
    found: list[FoundRows] = []
    now = 0
    for state in states:
        one, now = await _search(reader, wanted, state, start, limit)
        found.append(one)
    return merged_page(found, wanted, limit, now)


async def _search(
    reader: Reader, wanted: ListingFilter, state: RecordState | None, start: Position | None, limit: int
) -> tuple[FoundRows, int]:
    """Return the matching records of one state, or of all, and the store's time."""
    where, dialect = Conditions(reader), reader.dialect
    row_id = dialect.row_id
    order = dialect.newest_order if state is None else ("token", row_id)
    by_token = "token" in order
    if state is None:
        where.add(dialect.newest_condition)
    else:
        where.add("state = {}", state.value)
    if start is not None:
        where.add(f"({', '.join(order)}) < ({', '.join(['{}'] * len(order))})", *start[-len(order) :])
    if by_token:
        where.add_claim_times(wanted)
    visited = f"FROM {_records(reader)} WHERE {where.clause()} ORDER BY {' DESC, '.join(order)} DESC"
    values_of_visited = tuple(where.values)
    where.add_listing_filter(wanted)
    if state is None:
        where.add_states(wanted.states)
    if not by_token:
        where.add_claim_times(wanted)
    inner = f"SELECT {row_id} AS number, {dialect.columns_without_result} {visited} LIMIT {MAX_VISITED:d}"
    outer = f"SELECT * FROM ({inner}) AS visited WHERE {where.clause()} LIMIT {limit + 1:d}"  # noqa: S608 (as above)
    rows, now = await reader.select(outer, where.values)
    found = [((row[1 + _TOKEN] if by_token else 0, row[0]), row[1:]) for row in rows]
    if len(found) > limit:
        return FoundRows(found, None, None), now
    last = f"SELECT token, {row_id} {visited} LIMIT 1 OFFSET {MAX_VISITED - 1:d}"
    ends, _ = await reader.select(last, values_of_visited)
    if not ends:
        return FoundRows(found, None, None), now
    token, number = ends[0]
    return FoundRows(found, (token if by_token else 0, number), token), now


async def oldest_pending(reader: Reader, wanted: ListingFilter, limit: int) -> ListingPage:
    """Return the PENDING records that were claimed first."""
    where = Conditions(reader)
    where.add_listing_filter(wanted)
    pending = (
        f"SELECT {reader.dialect.columns_without_result} FROM {_records(reader)} WHERE state = 'PENDING'"  # noqa: S608 (as above)
        f" ORDER BY token, {reader.dialect.row_id} LIMIT {MAX_VISITED:d}"
    )
    select = f"SELECT * FROM ({pending}) AS visited WHERE {where.clause()} LIMIT {limit:d}"  # noqa: S608 (as above)
    rows, now = await reader.select(select, where.values)
    records, unreadable = records_from_rows(rows)
    return ListingPage(records, None, now, unreadable=unreadable)


async def count_unfinished(reader: Reader, limit: int) -> dict[RecordState, int]:
    """Count the records of each unfinished state, up to the limit, in one query."""
    counts = [
        f"(SELECT count(*) FROM (SELECT 1 FROM {_records(reader)} WHERE state = '{state.value}' LIMIT {limit:d}) AS _)"  # noqa: S608 (as above)
        for state in UNFINISHED
    ]
    names = ", ".join(f"{count} AS {state.value}" for count, state in zip(counts, UNFINISHED, strict=True))
    [numbers], _ = await reader.select(f"SELECT {names}", ())
    return dict(zip(UNFINISHED, numbers, strict=True))


async def audit(reader: Reader, wanted: AuditFilter, limit: int) -> list[AuditEntry]:
    """Return audit entries, the most recent first."""
    where = Conditions(reader)
    for name in ("id", "scope", "key"):
        value = getattr(wanted, name)
        if value is not None:
            where.add(f"{name} = {{}}", value)
    if wanted.ids:
        where.add_in("id", wanted.ids)
    if wanted.within is not None:
        where.add(f"at > {reader.dialect.now} - {{}}", wanted.within)
    rows, _ = await reader.select(
        f"SELECT {', '.join(AUDIT_FIELDS)} FROM {reader.prefix}onceward_audit WHERE {where.clause()}"  # noqa: S608 (as above)
        f" ORDER BY number DESC LIMIT {limit:d}",
        where.values,
    )
    return [AuditEntry(*row) for row in rows]


class FoundRows(NamedTuple):
    """What one search found, newest first. `end` is the position where it stopped; None if it visited all records."""

    rows: list[tuple[Position, Row]]
    end: Position | None
    end_token: int | None


def merged_page(found: Sequence[FoundRows], wanted: ListingFilter, limit: int, now: int) -> ListingPage:
    """Return one page of several searches. No record is left out: the page ends where the first search stopped."""
    stops = [one.end for one in found if one.end is not None]
    stop = max(stops) if stops else None
    rows = sorted((row for one in found for row in one.rows), key=lambda row: row[0], reverse=True)
    complete = [row for row in rows if stop is None or row[0] >= stop]
    more = len(complete) > limit
    chosen = complete[:limit]
    position = chosen[-1][0] if more else stop
    tokens = [one.end_token for one in found if one.end is not None and one.end_token is not None]
    records, unreadable = records_from_rows(row for _, row in chosen)
    return ListingPage(
        [record for record in records if wanted.matches(record)],
        None if position is None else encode_position(position),
        now,
        max(tokens) if tokens and not more else None,
        unreadable,
    )


encode_position = msgspec.msgpack.Encoder().encode


def decode_position(reader: Reader, cursor: bytes, kind: Any) -> Any:
    """Return the position of a cursor; raise ConfigurationError if it is not one of this store."""
    problem: Exception | None = None
    try:
        position = msgspec.msgpack.decode(cursor, type=kind)
        if isinstance(position[-1], reader.dialect.row_id_type):
            return position
    except (ValueError, RecursionError) as error:  # not only MsgspecError: invalid UTF-8 raises UnicodeDecodeError
        problem = error
    raise ConfigurationError("this is not a cursor of this store", hint="start with the first page") from problem
