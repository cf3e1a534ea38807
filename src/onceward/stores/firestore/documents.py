"""Convert records to documents and back. Only changed fields are written, so foreign fields of a document survive.

A document without Onceward's fields, such as a lock of a previous implementation, is read by the fields that it has: a
status and times. So Onceward can adopt an existing collection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from onceward.errors import ConfigurationError, RecordBroken
from onceward.protocol.cells import KEEP_UNFINISHED, attempts_used_up
from onceward.protocol.record import READER, AfterCrash, Record, RecordState
from onceward.protocol.requests import AnyRequest, ClaimRequest
from onceward.protocol.transitions import CLOCK_MARGIN

from . import values
from .layout import REST, Layout, Path
from .values import NULL, MapValue, Value, plain_at, value_at

Fields = Mapping[str, Any]
"""The fields of a document, as Firestore values."""

Changes = dict[Path, Any]
"""The values to write, by path."""

HISTORY: Final[Path] = (REST, "history")
"""The history of the key, see `history.py`. The record does not include it."""

MAX_HISTORY_BYTES: Final = 64 << 10

FOREIGN_TOKEN: Final = 0
"""The token of a record that was read from a document which Onceward did not write."""

EDITED: Final = "was it edited by hand?"

_NULLABLE: Final = frozenset({"error", "error_type"})  # empty texts are stored as null
_json = msgspec.json.Encoder(order="deterministic").encode
_mapping = msgspec.json.Decoder(dict[str, str]).decode


def _text_or_null(text: str) -> Any:
    return values.text(text) if text else NULL


def _bytes(data: bytes | None) -> Any:
    return NULL if data is None else Value(bytes_value=data)


def _flag(value: bool) -> Any:  # noqa: FBT001 (the value of a field)
    return Value(boolean_value=value)


def _mapping_value(texts: Mapping[str, str]) -> Any:
    """Encode as a map, which can be queried, or as bytes if a name is not a valid member name."""
    escaped = {values.escape_surrogates(name): values.escape_surrogates(value) for name, value in texts.items()}
    if all(map(values.is_valid_member, escaped)):
        return Value(map_value=MapValue(fields={name: values.text(value) for name, value in escaped.items()}))
    return Value(bytes_value=_json(escaped))


_ENCODERS: Final[dict[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("id", "nonce", "fingerprint", "digest", "result"), _bytes),
    **dict.fromkeys(("scope", "key", "owner", "state"), values.text),
    **dict.fromkeys(_NULLABLE, _text_or_null),
    **dict.fromkeys(("token", "cycle", "attempt", "after_crash", "max_attempts", "slide", "min_reader"), values.number),
    **dict.fromkeys(
        ("created_at", "claimed_at", "updated_at", "renewed_at", "lease_until", "retry_at", "valid_until"), values.time
    ),
    **dict.fromkeys(("ask_first", "released", "stored", "final"), _flag),
    **dict.fromkeys(("arguments", "note"), _mapping_value),
}


_TIMES: Final = tuple(name for name, encode in _ENCODERS.items() if encode is values.time)


class Records:
    """Converts records to documents of one layout, and back."""

    def __init__(self, layout: Layout) -> None:
        self.paths = layout.paths()
        self.expiry: Path = (layout.expiry,)
        self._notes = layout.notes

    def path(self, field: str) -> str:
        """Return the field path for a query."""
        return ".".join(self.paths[field])

    # ── writing ──

    def changes(self, before: Record | None, after: Record) -> Changes:
        """Return what to write so that the document holds `after` instead of `before`."""
        changes: Changes = {}
        if before is not None and before.token == FOREIGN_TOKEN:
            before = None  # the document lacks most fields
        for field, path in self.paths.items():
            value = getattr(after, field)
            if before is None or value != getattr(before, field):
                changes[path] = _ENCODERS[field](self._others(value) if field == "note" else value)
        if before is None or before.note != after.note:
            for name in self._notes:
                changes[name,] = _text_or_null(after.note.get(name, ""))
        end = expiry_of(after)
        if before is None or end != expiry_of(before):
            changes[self.expiry] = values.time(end)
        if before is not None and after.state is RecordState.FREE and after.token != before.token:
            changes[HISTORY] = NULL  # the key was forgotten
        return changes

    def _others(self, note: Mapping[str, str]) -> dict[str, str]:
        """Return the notes without their own field. Empty notes are included, because a null field means no note."""
        return {name: value for name, value in note.items() if name not in self._notes or not value}

    # ── reading ──

    def record(self, id: bytes, fields: Fields) -> Record:
        """Decode the record in a document. `id` is used if the document does not contain its id."""
        found = {field: plain_at(fields, path) for field, path in self.paths.items()}
        adopted = found["token"] is None
        known = {field: value for field, value in found.items() if value is not None}
        known.setdefault("id", id)
        try:
            return self._read(known, fields, adopted=adopted)
        except (TypeError, ValueError) as error:  # a MsgspecError is a ValueError
            return _newer_record(known, error)

    def _read(self, known: dict[str, Any], fields: Fields, *, adopted: bool) -> Record:
        for name in ("arguments", "note"):
            stored = known.get(name, {})
            known[name] = _mapping(stored) if isinstance(stored, bytes) else _as_texts(stored)
        for name in _TIMES:
            path = self.paths[name]
            if len(path) == 1 and path[0] in fields and _is_ambiguous_time(fields[path[0]]):
                raise TypeError(f"{path[0]} is a number, and may be seconds or milliseconds")
        for name in self._notes:
            shown = plain_at(fields, (name,))
            if shown is not None:
                known["note"] = {**known["note"], name: str(shown)}
        if adopted:
            known = {**known, "token": FOREIGN_TOKEN, "stored": False}
        return msgspec.convert({"scope": "", "key": "", **known}, Record, builtin_types=(bytes,))

    def record_for(self, id: bytes, request: AnyRequest | None, fields: Fields, store: str) -> Record:
        """Return the record that the document of a request contains."""
        record = self.record(id, fields)
        if not isinstance(request, ClaimRequest):
            return record
        if record.id != id:
            raise ConfigurationError(
                f"{store}: this content already has a record of {record.scope}, and a document can hold only one",
                key=request.key,
                hint="use a separate collection for each operation with content keys",
            )
        if record.token == FOREIGN_TOKEN:
            return replace(record, scope=request.scope, key=request.key)
        return record

    def id_in(self, fields: Fields) -> bytes | None:
        """Return the id of the record in a document, or None if it contains none."""
        id = value_at(fields, (REST, "id"))
        return None if id is None else bytes(id.bytes_value)


def _as_texts(notes: Any) -> Any:
    """Convert note values to text: another program may have written numbers."""
    return {name: str(value) for name, value in notes.items()} if isinstance(notes, dict) else notes


def _is_ambiguous_time(value: Any) -> bool:
    """Return whether a time is a number of unknown unit. Onceward writes numbers only outside a timestamp's range."""
    number = value.integer_value if value.WhichOneof("value_type") == "integer_value" else None
    return number is not None and values.MIN_TIME <= number <= values.MAX_TIME


def _newer_record(known: Mapping[str, Any], error: Exception) -> Record:
    """Return a placeholder for a record of a newer layout: PENDING without a lease, so that it is left alone."""
    min_reader, key = known.get("min_reader", 0), str(known.get("key", ""))
    if isinstance(min_reader, int) and min_reader > READER:
        token = known.get("token", 0)
        return Record(
            known["id"], str(known.get("scope", "")), key, RecordState.PENDING, token if isinstance(token, int) else 0,
            min_reader=min_reader,
        )  # fmt: skip
    raise RecordBroken("this document has invalid content", key=key, hint=EDITED) from error


def expiry_of(record: Record) -> int | None:
    """Return the time from which the record may be deleted: `transitions.purgeable`, plus the clock margin."""
    state = record.state
    if state is RecordState.FREE:
        end: int | None = record.token
    elif state is RecordState.PENDING:
        given_up = record.after_crash is AfterCrash.RERUN and not attempts_used_up(record.attempt, record.max_attempts)
        lapses = None if record.released or not given_up else record.lease_until
        end = None if lapses is None else lapses + KEEP_UNFINISHED
    else:
        end = None if state is RecordState.PARKED else record.valid_until
    return None if end is None else max(end, record.token + CLOCK_MARGIN + 1)
