"""The history of keys: a member of the record's document, so that it is deleted, erased and expired with it.

Writing it changes the version of the document. If a worker owns the record, its next write reads the document again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from onceward.errors import RecordBroken
from onceward.protocol.capabilities import History
from onceward.protocol.history import HistoryEvent, add_event, belongs_to, column_values
from onceward.protocol.record import READER, Record

from . import errors as faults
from .cache import CachedDocument
from .calls import OK, FoundDocument
from .documents import EDITED, HISTORY, MAX_HISTORY_BYTES
from .errors import FirestoreError
from .names import hash_name
from .opened import OpenedStore
from .table import INITIAL_PAUSE, MAX_DOCUMENT_BYTES, MAX_PAUSE, RESERVED_BYTES
from .values import Value, escape_surrogates, plain_at, size_of_fields

MAX_BYTES_BEFORE: Final = MAX_DOCUMENT_BYTES - RESERVED_BYTES // 2
"""A document that is larger gets no events: its owner may need the space."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[int, str, int, int, int, int, str, str, str, int, str]]).decode


class FirestoreHistory(OpenedStore):
    """The history of `FirestoreStore`."""

    @property
    def history(self) -> History:
        return self

    async def append_history(self, events: Sequence[HistoryEvent], *, timeout: float) -> int:
        """Write the events: one read and one write per record. Without events, return the time."""
        left: dict[bytes, list[HistoryEvent]] = {}
        for event in events:
            left.setdefault(event.id, []).append(event)
        pause = INITIAL_PAUSE
        with self._call(timeout) as deadline:
            while left:
                left = await self._append_once(left, deadline)
                if left:
                    await self._opened.runtime.sleep(min(pause, self._calls.left(deadline)))
                    pause = min(2 * pause, MAX_PAUSE)
            return self._calls.clock() or self._calls.cache.now() or await self._calls.now(deadline)

    async def read_history(self, id: bytes, *, limit: int, timeout: float) -> list[HistoryEvent]:
        with self._call(timeout) as deadline:
            found = await self._find([id], deadline)
            return decode_events(id, found[id].fields)[-limit:] if id in found else []

    async def _append_once(
        self, events: Mapping[bytes, Sequence[HistoryEvent]], deadline: float
    ) -> dict[bytes, list[HistoryEvent]]:
        """Write the events, and return those of documents that other writers changed meanwhile."""
        found = await self._find(list(events), deadline)
        writes = {}
        for id, one in found.items():
            try:
                before = decode_events(id, one.fields)
            except RecordBroken:  # `read_history` reports it; the events of other records must not wait for it
                continue
            after = _with_events(before, events[id], self._writable_record(id, one))
            if after != before:
                changes = {HISTORY: Value(bytes_value=encode_events(after))}
                writes[id] = self._calls.build_write(self._calls.address.collection, one.name, changes, one.version)
        results = await self._calls.write_each(list(writes.values()), deadline) if writes else []
        again: dict[bytes, list[HistoryEvent]] = {}
        for id, (code, version) in zip(writes, results, strict=True):
            if code == OK:
                self._update_cache(id, found[id].version, version)
            elif code in faults.CONFLICT_CODES or code in faults.AMBIGUOUS_CODES:
                again[id] = list(events[id])
            else:
                raise FirestoreError(code, "the write of a history was rejected")
        return again

    def _writable_record(self, id: bytes, one: FoundDocument) -> Record | None:
        """Return the record in a document, or None if its document must not get events."""
        if size_of_fields(one.fields) > MAX_BYTES_BEFORE:
            return None
        try:
            record = self._records.record(id, one.fields)
        except RecordBroken:  # the events of other records must not wait for it
            return None
        return None if record.min_reader > READER else record

    async def _find(self, ids: Sequence[bytes], deadline: float) -> dict[bytes, FoundDocument]:
        """Return the documents of these records. Search by id for those that are named after their content."""
        calls, collection = self._calls, self._calls.address.collection
        names = {(collection, calls.cache.document_name(id) or hash_name(id)): id for id in ids}
        documents, _ = await calls.get(names, deadline)
        found = {names[path]: one for path, one in documents.items()}
        missing = [id for id in ids if id not in found]
        hits = await calls.find_by_ids(collection, self._records.paths["id"], missing, deadline)
        return found | {self._records.id_in(one.fields) or b"": one for one in hits}

    def _update_cache(self, id: bytes, before: Any, after: Any) -> None:
        """Tell the cache the new version of a record that this process owns, so that settling it needs no read."""
        cached = self._calls.cache.peek(id)
        if cached is not None and cached.version == before:
            self._calls.cache.put(CachedDocument(cached.name, cached.record, after))


def _with_events(before: list[HistoryEvent], new: Sequence[HistoryEvent], record: Record | None) -> list[HistoryEvent]:
    after = before
    for event in new:
        if belongs_to(event, record):
            after = add_event(after, event)
    return after


def decode_events(id: bytes, fields: Mapping[str, Any]) -> list[HistoryEvent]:
    """Decode the history in a document."""
    data = plain_at(fields, HISTORY)
    try:
        return [HistoryEvent(id, *row) for row in _decode(data)] if data else []
    except (TypeError, ValueError) as error:  # a MsgspecError is a ValueError
        raise RecordBroken("the history of this key has invalid content", key=id.hex(), hint=EDITED) from error


def encode_events(events: Sequence[HistoryEvent]) -> bytes:
    """Encode the events, without the oldest if they are too large."""
    rows = [
        [escape_surrogates(value) if isinstance(value, str) else value for value in column_values(event)[1:]]
        for event in events
    ]
    data = _encode(rows)
    while len(data) > MAX_HISTORY_BYTES:
        rows = rows[1:]
        data = _encode(rows)
    return data
