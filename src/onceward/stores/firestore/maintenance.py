"""Operations on many records: scan, first, counts, purge. Each document read is billed."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any, Final

from onceward.errors import StoreBroken
from onceward.protocol import transitions
from onceward.protocol.audit import AuditSignature, purge_entry
from onceward.protocol.ports import SORT_KEYS, Filter, Page, SortOrder
from onceward.protocol.record import Record, RecordState

from . import audit as trail
from . import values
from .cache import Now
from .calls import NAME, OK, FirestoreCalls, FoundDocument, all_of, order_by, stable_order, start_after, where
from .documents import Records
from .errors import CONFLICT_CODES, FirestoreError
from .layout import Path
from .values import ArrayValue, Value

PAGE: Final = 300
"""Documents per query."""

_SORT_FIELDS: Final = {
    SortOrder.UPDATED: ("updated_at", True),
    SortOrder.CREATED: ("created_at", True),
    SortOrder.KEY: ("key", False),
}


class FirestoreMaintenance:
    """Operations on all records of a collection."""

    def __init__(self, calls: FirestoreCalls, records: Records, clock: Now) -> None:
        self._calls = calls
        self._records = records
        self._clock = clock
        self._collection = calls.address.collection

    async def scan(self, wanted: Filter, cursor: bytes | None, limit: int, deadline: float) -> Page:
        """Return records in the order of document ids. Filters by age and prefix here: that needs no index."""
        found: list[Record] = []
        names: list[str] = []
        start = None if cursor is None else cursor.decode()
        conditions = self._conditions(wanted)
        while True:
            page, now = await self._page(conditions, start, min(PAGE, limit + 1), deadline)
            for one in page:
                record = self.readable(one)
                if _matches(record, wanted):
                    found.append(record)
                    names.append(one.name)
            if len(found) > limit:
                return Page(found[:limit], names[limit - 1].encode(), now)
            if len(page) < min(PAGE, limit + 1):
                return Page(found, None, now)
            start = page[-1].name

    async def _page(
        self, conditions: Sequence[Any], start: str | None, max_documents: int, deadline: float
    ) -> tuple[list[FoundDocument], int]:
        clauses: dict[str, Any] = {"order_by": [order_by((NAME,))]}
        if conditions:
            clauses["where"] = all_of(conditions)
        if start is not None:
            clauses["start_at"] = start_after(Value(reference_value=self._calls.path(self._collection, start)))
        page, now = await self._calls.query(self._collection, deadline, limit=max_documents, **clauses)
        return page, self._clock() or now

    def _conditions(self, wanted: Filter) -> list[Any]:
        paths = self._records.paths
        conditions = []
        if wanted.states:
            states = [values.text(state.value) for state in wanted.states]
            conditions.append(where(paths["state"], "IN", Value(array_value=ArrayValue(values=states))))
        if wanted.scope is not None:
            conditions.append(where(paths["scope"], "EQUAL", values.text(wanted.scope)))
        if wanted.key is not None:
            conditions.append(where(paths["key"], "EQUAL", values.text(wanted.key)))
        return conditions

    def readable(self, one: FoundDocument) -> Record:
        """Decode a document, or return a placeholder if that fails: one bad document must not fail the page."""
        id = self._records.id_in(one.fields) or one.name.encode()
        try:
            return self._records.record(id, one.fields)
        except StoreBroken:
            return Record(
                id,
                "",
                one.name,
                RecordState.PARKED,
                0,
                error_type="StoreBroken",
                error="the document cannot be decoded",
            )

    async def first(self, wanted: Filter, order: SortOrder, limit: int, deadline: float) -> Page:
        """Read in the order of one indexed field until enough records match."""
        field, descending = _SORT_FIELDS[order]
        path: Path = self._records.paths[field]
        found: list[Record] = []
        more: dict[str, Any] = {}
        while True:
            page, now = await self._calls.query(
                self._collection, deadline, limit=PAGE, order_by=stable_order(path, descending=descending), **more
            )
            records = [self.readable(one) for one in page]
            found += [record for record in records if _matches(record, wanted)]
            if len(page) < PAGE or self._is_enough(found, records[-1], order, limit):
                return Page(heapq.nsmallest(limit, found, key=SORT_KEYS[order]), None, self._clock() or now)
            last = Value(reference_value=self._calls.path(self._collection, page[-1].name))
            more = {"start_at": start_after(_value_at(page[-1], path), last)}

    def _is_enough(self, found: list[Record], last: Record, order: SortOrder, limit: int) -> bool:
        """Return whether no later record can precede those found. Records of equal time are ordered by id."""
        sort_key = SORT_KEYS[order]
        return len(found) > limit and sum(sort_key(one)[0] < sort_key(last)[0] for one in found) >= limit

    async def counts(self, deadline: float) -> dict[tuple[str, RecordState], int]:
        """Let the server count the records of each scope. Only one document per scope is read."""
        paths = self._records.paths
        counted: dict[tuple[str, RecordState], int] = {}
        more: dict[str, Any] = {}
        while True:
            page, _ = await self._calls.query(
                self._collection, deadline, limit=1, order_by=[order_by(paths["scope"])], **more
            )
            if not page:
                return counted
            scope = _value_at(page[0], paths["scope"])
            for state in RecordState:
                conditions = [
                    where(paths["scope"], "EQUAL", scope),
                    where(paths["state"], "EQUAL", values.text(state.value)),
                ]
                number = await self._calls.count(self._collection, deadline, all_of(conditions))
                if number:
                    counted[values.plain(scope), state] = number
            more = {"start_at": start_after(scope)}

    async def purge(self, limit: int, deadline: float, signed: AuditSignature | None) -> int:
        """Delete what a TTL policy would delete, too, if the document still has the version that was read."""
        purged, now = 0, 0
        max_documents, last = min(limit, PAGE), None
        while purged < limit:
            old, now = await self._expired(max_documents, last, deadline)
            to_delete = [one for one in old if transitions.purgeable(self.readable(one), now)][: limit - purged]
            purged += await self._delete(to_delete, now, deadline, signed)
            if len(old) < max_documents:
                break
            max_documents, last = PAGE, old[-1]  # skip documents that stay, such as those of a newer version
        await trail.expire_entries(self._calls, PAGE, now, deadline)
        return purged

    async def _expired(
        self, max_documents: int, last: FoundDocument | None, deadline: float
    ) -> tuple[list[FoundDocument], int]:
        now = self._clock()
        if now is None:
            _, now = await self._calls.get([(self._collection, "clock")], deadline)
        path = self._records.expiry
        clauses = {"where": where(path, "LESS_THAN_OR_EQUAL", values.time(now)), "order_by": stable_order(path)}
        if last is not None:
            name = Value(reference_value=self._calls.path(self._collection, last.name))
            clauses["start_at"] = start_after(_value_at(last, path), name)
        old, _ = await self._calls.query(self._collection, deadline, limit=max_documents, **clauses)
        return old, now

    async def _delete(
        self, to_delete: Sequence[FoundDocument], now: int, deadline: float, signed: AuditSignature | None
    ) -> int:
        if not to_delete:
            return 0
        batch = [self._calls.build_delete(self._collection, one.name, one.version) for one in to_delete]
        if signed is None:
            return sum(code == OK for code, _ in await self._calls.write_each(batch, deadline))
        entry = trail.entry_write(self._calls, purge_entry(signed, len(batch), now))
        try:
            await self._calls.commit([*batch, entry], deadline)
        except FirestoreError as error:
            if error.code not in CONFLICT_CODES:
                raise
            return 0  # one of them was claimed in the meantime: the next purge deletes the others
        return len(batch)


def _value_at(one: FoundDocument, path: Path) -> Any:
    fields: Any = one.fields
    for step in path[:-1]:
        fields = fields[step].map_value.fields
    return fields[path[-1]]


def _matches(record: Record, wanted: Filter) -> bool:
    return (
        (not wanted.states or record.state in wanted.states)
        and (wanted.scope is None or record.scope == wanted.scope)
        and (wanted.key is None or record.key == wanted.key)
        and (wanted.updated_before is None or record.updated_at < wanted.updated_before)
        and (wanted.prefix is None or record.key.startswith(wanted.prefix))
    )
