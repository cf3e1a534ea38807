"""Marks and states of entities as documents, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from onceward.errors import OncewardError, ResultError, StoreBroken
from onceward.protocol.latest import DedupMark, EntityState, EventDelivery, Retention
from onceward.protocol.ordering import content_of
from onceward.protocol.record import READER
from onceward.results.codec import Codec
from onceward.results.result_type import ResultType

from . import values
from .calls import FirestoreCalls, Found, where
from .documents import Changes
from .layout import REST, Layout, Path
from .names import entity_name, hashed, mark_name
from .table import LARGEST_VALUE, SOUGHT
from .values import ArrayValue, Value, plain

MOST_SHOWN: Final = 200 << 10
"""Bytes of the members of a value, beside the value itself."""

MIN_READER: Final = "min_reader"
Place = tuple[str, str]

_shown = Codec(ResultType(Any))


class LatestDocuments:
    """Marks and states as documents, and back."""

    def __init__(self, calls: FirestoreCalls, layout: Layout) -> None:
        self.calls = calls
        self.marks_in, self.states_in = calls.place.marks_in, calls.place.states_in
        self._by_entity = calls.place.entity_ids
        self._mark_paths = layout.mark_paths()
        self._paths = layout.state_paths()
        self._shows = layout.show_values

    @property
    def expiry(self) -> Path:
        return self._paths["expires_at"]

    @property
    def id_path(self) -> Path:
        return self._paths["id"]

    @property
    def scope_path(self) -> Path:
        return self._paths["scope"]

    def of(self, one: EventDelivery) -> Place:
        """The document of its entity."""
        name = entity_name(one.id, one.scope, one.entity) if self._by_entity else hashed(one.id)
        return self.states_in, name

    def mark(self, mark: bytes) -> Place:
        return self.marks_in, mark_name(mark)

    def wanted(self, deliveries: Iterable[EventDelivery]) -> list[Place]:
        places: dict[Place, None] = {}
        for one in deliveries:
            places[self.of(one)] = None
            for mark in (one.message, one.event):
                if mark:
                    places[self.mark(mark)] = None
        return list(places)

    # ── reading ──

    def standing(self, fields: Mapping[str, Any]) -> EntityState:
        found = {name: _at(path, fields) for name, path in self._paths.items()}
        try:
            return msgspec.convert(found, EntityState, strict=True, builtin_types=(bytes,))
        except msgspec.ValidationError as error:
            raise StoreBroken(
                "a state holds what no Onceward of its version writes", key=str(found.get("entity")),
                hint="was it edited by hand?",
            ) from error  # fmt: skip

    async def search(self, ids: Sequence[bytes], deadline: float) -> list[Found]:
        """Where documents are called after entities, and only the id is known."""
        hits: list[Found] = []
        for start in range(0, len(ids), SOUGHT):
            some = ArrayValue(values=[Value(bytes_value=id) for id in ids[start : start + SOUGHT]])
            condition = where(self.id_path, "IN", Value(array_value=some))
            found, _ = await self.calls.query(self.states_in, deadline, where=condition)
            hits += found
        return hits

    def is_newer(self, fields: Mapping[str, Any]) -> bool:
        """Whether a newer version wrote it."""
        return bool((_at((REST, MIN_READER), fields) or 0) > READER)

    def content(self, fields: Mapping[str, Any]) -> tuple[bytes, int]:
        """Of a mark: the content under it, and until when it counts."""
        content, end = (_at(self._mark_paths[name], fields) for name in ("content", "expires_at"))
        if not isinstance(content, bytes) or not isinstance(end, int):
            raise StoreBroken("a mark holds what no Onceward of its version writes", hint="was it edited by hand?")
        return content, end

    def known(self, mark: bytes, fields: Mapping[str, Any]) -> DedupMark:
        """A mark, for people."""
        content, end = self.content(fields)
        trace, begun = (_at(self._mark_paths[name], fields) for name in ("trace", "created_at"))
        return DedupMark(mark, content, str(trace or ""), int(begun or 0), end)

    # ── writing ──

    def state_changes(self, one: EventDelivery, keep: Retention, now: int) -> Changes:
        end = now + keep.deleted if one.value is None else None
        if one.value is not None and len(one.value) > LARGEST_VALUE:
            raise ResultError(
                f"the value takes {len(one.value)} bytes, and a document has room for {LARGEST_VALUE}",
                key=one.entity,
                hint="keep it elsewhere, and here where it is",
            )
        shown = {(REST, MIN_READER): values.number(READER), **self._members(one)}
        held = {
            "id": Value(bytes_value=one.id),
            "scope": values.text(one.scope),
            "entity": values.text(one.entity),
            "order": Value(bytes_value=one.order),
            "value": values.NOTHING if one.value is None else Value(bytes_value=one.value),
            "updated_at": values.time(now),
            "expires_at": values.time(end),
        }
        return {**shown, **{path: held[name] for name, path in self._paths.items()}}

    def _members(self, one: EventDelivery) -> Changes:
        """What the value says, for people. What cannot be shown, such as what is encrypted, is not."""
        if not self._shows or one.value is None:
            return {}
        try:
            said = _shown.decode(one.value, one.id)
        except OncewardError:
            return {}
        members = said if isinstance(said, dict) else {"value": said}
        shown: Changes = {(name,): values.value_of(one) for name, one in members.items() if _is_field(name)}
        return shown if sum(map(values.size_of, shown.values())) < MOST_SHOWN else {}

    def dropped(self, place: Place, changes: Changes, there: Found) -> list[Path]:
        """Members that the value had before, and has no longer."""
        if not self._shows or place[0] != self.states_in:
            return []
        before = self.standing(there.fields)
        shown = self._members(EventDelivery(before.id, before.scope, before.entity, before.order, before.value))
        return [path for path in shown if path not in changes]

    def mark_changes(self, mark: bytes, one: EventDelivery, keep: Retention, now: int) -> Changes:
        held = {
            "id": Value(bytes_value=mark),
            "content": Value(bytes_value=content_of(one.order)),
            "trace": values.text(one.trace),
            "created_at": values.time(now),
            "expires_at": values.time(now + keep.marks),
        }
        return {path: held[name] for name, path in self._mark_paths.items()}


def _at(path: Path, fields: Mapping[str, Any]) -> Any:
    held: Any = fields
    for step in path[:-1]:
        held = held[step].map_value.fields if step in held else {}
    return plain(held[path[-1]]) if path[-1] in held else None


def _is_field(name: object) -> bool:
    """Whether it can be the name of a field, as masks spell it."""
    return isinstance(name, str) and name.isidentifier() and name.isascii() and name != REST and values.is_member(name)
