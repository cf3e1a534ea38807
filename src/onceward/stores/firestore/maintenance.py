"""Operations on many records: scan, first, counts, purge, audit. Each document read is billed."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any, Final

from onceward.errors import RecordBroken
from onceward.protocol import transitions
from onceward.protocol.audit import AuditEntry, AuditFilter, AuditSignature, purge_entry
from onceward.protocol.ports import SORT_KEYS, Filter, Page, SortOrder
from onceward.protocol.record import Record, RecordState

from . import audit as trail
from . import values
from .calls import PAGE, Cursor, FoundDocument, all_of, document_at, order_by, where
from .errors import CONFLICT_CODES, FirestoreError
from .opened import OpenedStore
from .values import ArrayValue, Value

_SORT_FIELDS: Final = {
    SortOrder.UPDATED: ("updated_at", True),
    SortOrder.CREATED: ("created_at", True),
    SortOrder.KEY: ("key", False),
}


class FirestoreMaintenance(OpenedStore):
    """The operations of `FirestoreStore` on all records of a collection."""

    async def scan(self, wanted: Filter, *, cursor: bytes | None, limit: int, timeout: float) -> Page:
        """Return records in the order of document ids. Filters by age and prefix here: that needs no index."""
        found: list[Record] = []
        names: list[str] = []
        last = None if cursor is None else document_at(cursor)
        most = min(PAGE, limit + 1)
        conditions = self._conditions(wanted)
        clauses = {"where": all_of(conditions)} if conditions else {}
        with self._call(timeout) as deadline:
            while True:
                page, now = await self._calls.page(self._collection, deadline, after=last, limit=most, **clauses)
                for one in page:
                    record = self._readable(one)
                    if _matches(record, wanted):
                        found.append(record)
                        names.append(one.name)
                if len(found) > limit:
                    return Page(found[:limit], names[limit - 1].encode(), now)
                if len(page) < most:
                    return Page(found, None, now)
                last = page[-1]

    @property
    def _collection(self) -> str:
        return self._calls.address.collection

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

    def _readable(self, one: FoundDocument) -> Record:
        """Decode a document, or return a placeholder if that fails: one bad document must not fail the page."""
        id = self._records.id_in(one.fields) or one.name.encode()
        try:
            return self._records.record(id, one.fields)
        except RecordBroken:
            error = "the document cannot be decoded"
            return Record(id, "", one.name, RecordState.PARKED, 0, error_type="RecordBroken", error=error)

    async def first(self, wanted: Filter, *, order: SortOrder, limit: int, timeout: float) -> Page:
        """Read in the order of one indexed field until enough records match."""
        field, descending = _SORT_FIELDS[order]
        path = self._records.paths[field]
        found: list[Record] = []
        last = None
        with self._call(timeout) as deadline:
            while True:
                page, now = await self._calls.page(
                    self._collection, deadline, path, after=last, limit=PAGE, descending=descending
                )
                records = [self._readable(one) for one in page]
                found += [record for record in records if _matches(record, wanted)]
                if len(page) < PAGE or self._is_enough(found, records[-1], order, limit):
                    return Page(heapq.nsmallest(limit, found, key=SORT_KEYS[order]), None, now)
                last = page[-1]

    def _is_enough(self, found: list[Record], last: Record, order: SortOrder, limit: int) -> bool:
        """Return whether no later record can precede those found. Records of equal time are ordered by id."""
        sort_key = SORT_KEYS[order]
        return len(found) > limit and sum(sort_key(one)[0] < sort_key(last)[0] for one in found) >= limit

    async def counts(self, *, timeout: float) -> dict[tuple[str, RecordState], int]:
        """Let the server count the records of each scope. Only one document per scope is read."""
        paths = self._records.paths
        order = [order_by(paths["scope"])]
        counted: dict[tuple[str, RecordState], int] = {}
        more: dict[str, Any] = {}
        with self._call(timeout) as deadline:
            while True:
                page, _ = await self._calls.query(self._collection, deadline, limit=1, order_by=order, **more)
                if not page:
                    return counted
                scope = values.value_at(page[0].fields, paths["scope"])
                for state in RecordState:
                    conditions = [
                        where(paths["scope"], "EQUAL", scope),
                        where(paths["state"], "EQUAL", values.text(state.value)),
                    ]
                    number = await self._calls.count(self._collection, deadline, all_of(conditions))
                    if number:
                        counted[values.plain(scope), state] = number
                more = {"start_at": Cursor(values=[scope], before=False)}

    async def purge(self, limit: int, *, timeout: float, signed: AuditSignature | None = None) -> int:
        """Delete what a TTL policy would delete, too, if the document still has the version that was read."""
        path = self._records.expiry
        purged, now = 0, 0
        most, last = min(limit, PAGE), None
        with self._call(timeout) as deadline:
            while purged < limit:
                now = await self._calls.now(deadline)
                condition = where(path, "LESS_THAN_OR_EQUAL", values.time(now))
                old, _ = await self._calls.page(
                    self._collection, deadline, path, after=last, limit=most, where=condition
                )
                to_delete = [one for one in old if transitions.purgeable(self._readable(one), now)][: limit - purged]
                purged += await self._delete(to_delete, now, deadline, signed)
                if len(old) < most:
                    break
                most, last = PAGE, old[-1]  # skip documents that stay, such as those of a newer version
            await trail.expire_entries(self._calls, PAGE, now, deadline)
        return purged

    async def _delete(
        self, to_delete: Sequence[FoundDocument], now: int, deadline: float, signed: AuditSignature | None
    ) -> int:
        if signed is None or not to_delete:
            return await self._calls.delete_each(self._collection, to_delete, deadline)
        batch = [self._calls.build_delete(self._collection, one.name, one.version) for one in to_delete]
        entry = trail.entry_write(self._calls, purge_entry(signed, len(batch), now))
        try:
            await self._calls.commit([*batch, entry], deadline)
        except FirestoreError as error:
            if error.code not in CONFLICT_CODES:
                raise
            return 0  # one of them was claimed in the meantime: the next purge deletes the others
        return len(batch)

    async def audit(self, wanted: AuditFilter, *, limit: int, timeout: float) -> list[AuditEntry]:
        with self._call(timeout) as deadline:
            return await trail.find_entries(self._calls, wanted, limit, deadline)


def _matches(record: Record, wanted: Filter) -> bool:
    return (
        (not wanted.states or record.state in wanted.states)
        and (wanted.scope is None or record.scope == wanted.scope)
        and (wanted.key is None or record.key == wanted.key)
        and (wanted.updated_before is None or record.updated_at < wanted.updated_before)
        and (wanted.prefix is None or record.key.startswith(wanted.prefix))
    )
