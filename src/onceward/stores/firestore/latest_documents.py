"""Convert marks and states of entities to documents and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from onceward.errors import OncewardError, RecordBroken, ResultError
from onceward.protocol.latest import DedupMark, EntityState, EventDelivery, Retention
from onceward.protocol.ordering import content_of
from onceward.protocol.record import READER
from onceward.results.codec import Codec
from onceward.results.result_type import ResultType

from . import values
from .calls import FirestoreCalls, FoundDocument
from .documents import EDITED, Changes
from .layout import REST, Layout, Path
from .names import entity_name, hash_name, mark_name, plain_mark_name
from .table import MAX_VALUE_BYTES
from .values import Value, plain_at

MAX_SHOWN_BYTES: Final = 200 << 10
"""Limit for the copied members of a value."""

MIN_READER: Final = "min_reader"
DocumentPath = tuple[str, str]

_shown = Codec(ResultType(Any))


class LatestDocuments:
    """Converts marks and states to documents of one layout, and back."""

    def __init__(self, calls: FirestoreCalls, layout: Layout) -> None:
        self.calls = calls
        self.marks_in, self.states_in = calls.address.marks_in, calls.address.states_in
        self._by_entity = calls.address.entity_ids
        self._plain_marks = calls.address.plain_mark_ids
        self._mark_fields = layout.mark_paths()
        self._paths = layout.state_paths()
        self._show_values = layout.show_values

    @property
    def expiry(self) -> Path:
        return self._paths["expires_at"]

    @property
    def scope_path(self) -> Path:
        return self._paths["scope"]

    def state_path(self, one: EventDelivery) -> DocumentPath:
        """Return the document of the delivery's entity."""
        name = entity_name(one.id, one.scope, one.entity) if self._by_entity else hash_name(one.id)
        return self.states_in, name

    def mark_paths(self, mark: bytes, one: EventDelivery) -> list[DocumentPath]:
        """Return the documents that may be this mark of a delivery: with plain ids, another mark may have its name."""
        names = [mark_name(mark)]
        if self._plain_marks:
            names.insert(0, plain_mark_name(mark, one.trace if mark == one.message else one.event_name))
        return [(self.marks_in, name) for name in dict.fromkeys(names)]

    def mark_path(self, mark: bytes, one: EventDelivery, found: Mapping[DocumentPath, FoundDocument]) -> DocumentPath:
        """Return the document to write this mark to: the first that no other mark has."""
        *plain, hashed = self.mark_paths(mark, one)
        free = (path for path in plain if path not in found or self._owner(found[path].fields) == mark)
        return next(free, hashed)

    def _owner(self, fields: Mapping[str, Any]) -> Any:
        return plain_at(fields, self._mark_fields["id"])

    def paths_for(self, deliveries: Iterable[EventDelivery]) -> list[DocumentPath]:
        places: dict[DocumentPath, None] = {}
        for one in deliveries:
            places[self.state_path(one)] = None
            for mark in (one.message, one.event):
                if mark:
                    places |= dict.fromkeys(self.mark_paths(mark, one))
        return list(places)

    # ── reading ──

    def state(self, fields: Mapping[str, Any]) -> EntityState:
        found = {name: plain_at(fields, path) for name, path in self._paths.items()}
        try:
            return msgspec.convert(found, EntityState, strict=True, builtin_types=(bytes,))
        except msgspec.ValidationError as error:
            raise RecordBroken(
                "the state of this entity has invalid content", key=str(found.get("entity")),
                hint=EDITED,
            ) from error  # fmt: skip

    def id_in(self, one: FoundDocument) -> bytes:
        """Return the id of a state, or the name of its document if it has none."""
        id = plain_at(one.fields, self._paths["id"])
        return id if isinstance(id, bytes) else one.name.encode()

    async def search(self, ids: Sequence[bytes], deadline: float) -> list[FoundDocument]:
        """Find states by id, for when documents are named after entities."""
        return await self.calls.find_by_ids(self.states_in, self._paths["id"], ids, deadline)

    def is_newer_version(self, fields: Mapping[str, Any]) -> bool:
        """Return whether a newer version wrote the document."""
        return bool((plain_at(fields, (REST, MIN_READER)) or 0) > READER)

    async def find_marks(self, ids: Sequence[bytes], deadline: float) -> tuple[dict[bytes, DedupMark], int]:
        """Return these marks, also expired ones, and the time."""
        if self._plain_marks:
            hits = await self.calls.find_by_ids(self.marks_in, self._mark_fields["id"], ids, deadline)
            by_id = {self._owner(one.fields): one for one in hits}
            now = await self.calls.now(deadline)
        else:
            places = {(self.marks_in, mark_name(id)): id for id in ids}
            found, now = await self.calls.get(places, deadline)
            by_id = {places[place]: one for place, one in found.items()}
        return {id: self.dedup_mark(id, one.fields) for id, one in by_id.items()}, now

    def known_content(
        self, mark: bytes, one: EventDelivery, found: Mapping[DocumentPath, FoundDocument], now: int
    ) -> bytes | None:
        """Return the content of a mark, if it was found and has not expired.

        With plain ids, a document that was written without Onceward means that the message was processed.
        """
        for path in self.mark_paths(mark, one):
            fields = found[path].fields if path in found else None
            if fields is None:
                continue
            owner = self._owner(fields)
            if self._plain_marks and owner is None:
                return content_of(one.order)
            content, end = self.content(fields)
            if owner in (mark, None) and now < end:
                return content
        return None

    def content(self, fields: Mapping[str, Any]) -> tuple[bytes, int]:
        """Return the content hash of a mark, and when it expires."""
        content, end = (plain_at(fields, self._mark_fields[name]) for name in ("content", "expires_at"))
        if not isinstance(content, bytes) or not isinstance(end, int):
            raise RecordBroken("a mark has invalid content", hint=EDITED)
        return content, end

    def dedup_mark(self, mark: bytes, fields: Mapping[str, Any]) -> DedupMark:
        """Decode a mark for display."""
        content, end = self.content(fields)
        trace, created_at = (plain_at(fields, self._mark_fields[name]) for name in ("trace", "created_at"))
        return DedupMark(mark, content, str(trace or ""), created_at if isinstance(created_at, int) else 0, end)

    # ── writing ──

    def state_changes(self, one: EventDelivery, keep: Retention, now: int) -> Changes:
        end = now + keep.deleted if one.value is None else None
        if one.value is not None and len(one.value) > MAX_VALUE_BYTES:
            raise ResultError(
                f"the value has {len(one.value)} bytes, but a document can hold {MAX_VALUE_BYTES}",
                key=one.entity,
                hint="store it elsewhere, and keep a reference to it here",
            )
        shown = {(REST, MIN_READER): values.number(READER), **self._members(one)}
        encoded = {
            "id": Value(bytes_value=one.id),
            "scope": values.text(one.scope),
            "entity": values.text(one.entity),
            "order": Value(bytes_value=one.order),
            "value": values.NULL if one.value is None else Value(bytes_value=one.value),
            "updated_at": values.time(now),
            "expires_at": values.time(end),
        }
        return {**shown, **{path: encoded[name] for name, path in self._paths.items()}}

    def _members(self, one: EventDelivery) -> Changes:
        """Return the value's members as fields for display. An undecodable value (an encrypted one) has none."""
        if not self._show_values or one.value is None:
            return {}
        try:
            value = _shown.decode(one.value, one.id)
        except OncewardError:
            return {}
        members = value if isinstance(value, dict) else {"value": value}
        shown: Changes = {(name,): values.value_of(one) for name, one in members.items() if _is_field(name)}
        return shown if sum(map(values.size_of, shown.values())) < MAX_SHOWN_BYTES else {}

    def removed_members(self, place: DocumentPath, changes: Changes, there: FoundDocument) -> list[Path]:
        """Return the members that the previous value had and the new one lacks."""
        if not self._show_values or place[0] != self.states_in:
            return []
        before = self.state(there.fields)
        shown = self._members(EventDelivery(before.id, before.scope, before.entity, before.order, before.value))
        return [path for path in shown if path not in changes]

    def mark_changes(self, mark: bytes, one: EventDelivery, keep: Retention, now: int) -> Changes:
        encoded = {
            "id": Value(bytes_value=mark),
            "content": Value(bytes_value=content_of(one.order)),
            "trace": values.text(one.trace),
            "created_at": values.time(now),
            "expires_at": values.time(now + keep.marks),
        }
        return {path: encoded[name] for name, path in self._mark_fields.items()}


def _is_field(name: object) -> bool:
    """Return whether the name can be used as a field name without quoting."""
    return (
        isinstance(name, str)
        and name.isidentifier()
        and name.isascii()
        and name != REST
        and values.is_valid_member(name)
    )
