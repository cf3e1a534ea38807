"""Convert records to the values that SQLite binds, and read the columns that a lookup needs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress
from operator import is_not
from typing import Any, Final

import msgspec
from msgspec.structs import astuple

from onceward.protocol.record import Record, RecordState
from onceward.stores.sql import COLUMNS, FIELDS, Row, enum_value, escape_surrogates

Columns = tuple[int, ...]

WITHOUT_DECLARED_TYPES: Final = ", ".join(f"+{name}" for name in FIELDS)
"""For the caller's connection: `+` hides the declared type, so that registered converters are not applied."""

COLUMNS_WITHOUT_RESULT: Final = COLUMNS.replace(" result,", " NULL,")
"""For decisions that do not need the result, which may be large."""

_STATE, _AFTER_CRASH, _ARGUMENTS, _NOTE = map(FIELDS.index, ("state", "after_crash", "arguments", "note"))

CLAIM_FIELD_COUNT: Final = _NOTE + 1
"""A new claim writes this many leading fields; the others keep their defaults until the claim is settled."""

_json = msgspec.json.Encoder().encode

MAX_INTEGER: Final = 2**63 - 1
"""SQLite's largest integer. In µs this is the year 294,247: practically never."""


class CompletedRow(msgspec.Struct, frozen=True, gc=False):
    """The columns of a COMPLETED row that a replay needs."""

    token: int
    attempt: int
    fingerprint: bytes
    result: bytes | None
    stored: bool  # actually 0 or 1
    valid_until: int | None
    slide: int
    owner: str
    min_reader: int
    state: RecordState = RecordState.COMPLETED


SELECT_COMPLETED: Final = f"SELECT {', '.join(CompletedRow.__struct_fields__)} FROM onceward_records WHERE id = ?"  # noqa: S608 (names of fields)


def completed_row(row: Row) -> CompletedRow | None:
    return CompletedRow(*row[:-1]) if row[-1] == "COMPLETED" else None


def json_text(mapping: dict[str, str]) -> str | None:
    return _json(mapping).decode() if mapping else None


_CONVERTERS: Final[dict[int, Callable[[Any], Any]]] = {
    _STATE: enum_value,
    _AFTER_CRASH: enum_value,
    _ARGUMENTS: json_text,
    _NOTE: json_text,
    **{FIELDS.index(name): int for name in ("ask_first", "released", "stored", "final")},
}
"""Conversions for fields of other types. To plain str and int only, because sqlite3 searches adapters for others."""

_POSITIONS: Final = range(len(FIELDS))
_DEFAULTS: Final = astuple(Record(id=b"", scope="", key="", state=RecordState.FREE, token=0))[CLAIM_FIELD_COUNT:]


def claim_values(record: Record) -> Row | None:
    """Return the values that a new claim binds, or None if the record has other fields to write as well."""
    fields = astuple(record)
    if fields[CLAIM_FIELD_COUNT:] != _DEFAULTS:
        return None
    return (
        *fields[:_STATE],
        record.state._value_,
        *fields[_STATE + 1 : _AFTER_CRASH],
        record.after_crash._value_,
        *fields[_AFTER_CRASH + 1 : _ARGUMENTS],
        json_text(record.arguments),
        record.owner,
        json_text(record.note),
    )


def bind_values(record: Record) -> Row:
    """Return the values of all fields."""
    return tuple([_CONVERTERS[n](value) if n in _CONVERTERS else value for n, value in enumerate(astuple(record))])


def changed_values(before: Record, after: Record) -> tuple[Columns, list[Any]]:
    """Return the changed columns and their values. Writing only those spares indexes and keeps unknown columns."""
    old, new = astuple(before), astuple(after)
    columns = tuple([n for n in compress(_POSITIONS, map(is_not, old, new)) if old[n] != new[n]])
    return columns, [_CONVERTERS[n](new[n]) if n in _CONVERTERS else new[n] for n in columns]


def storable(record: Record) -> Record:
    """Return the record with values that SQLite can store: lone surrogates are escaped, integers are capped.

    An error message may contain anything, and an effect that has happened must be recorded in any case.
    """
    changes: dict[str, Any] = {}
    for name in FIELDS:
        value = getattr(record, name)
        if isinstance(value, str) and not isinstance(value, RecordState):
            changes[name] = escape_surrogates(value)
        elif isinstance(value, dict):
            changes[name] = {escape_surrogates(word): escape_surrogates(text) for word, text in value.items()}
        elif isinstance(value, int) and value > MAX_INTEGER:
            changes[name] = MAX_INTEGER
    return msgspec.structs.replace(record, **changes)
