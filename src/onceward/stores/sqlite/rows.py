"""What SQLite is given for the columns of a record, and what a look at one takes from them."""

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
"""On a connection of the user's: `+` hides the declared type, so that no converter of theirs is applied."""

LIGHT: Final = COLUMNS.replace(" result,", " NULL,")
"""For decisions that need no result: those may be large."""

_STATE, _AFTER_CRASH, _ARGUMENTS, _NOTE = map(FIELDS.index, ("state", "after_crash", "arguments", "note"))

CLAIMED: Final = _NOTE + 1
"""A new claim writes the fields before this one; the others keep their defaults until the claim is settled."""

_json = msgspec.json.Encoder().encode

LARGEST: Final = 2**63 - 1
"""SQLite's integers end here. In µs that is the year 294,247: as good as never."""


class CompletedRow(msgspec.Struct, frozen=True, gc=False):
    """As much of a COMPLETED row as its replay needs."""

    token: int
    attempt: int
    fingerprint: bytes
    result: bytes | None
    stored: bool  # 0 or 1 in fact
    valid_until: int | None
    slide: int
    owner: str
    min_reader: int
    state: RecordState = RecordState.COMPLETED


GLIMPSE: Final = f"SELECT {', '.join(CompletedRow.__struct_fields__)} FROM onceward_records WHERE id = ?"  # noqa: S608 (names of fields)


def glimpse_of(row: Row) -> CompletedRow | None:
    return CompletedRow(*row[:-1]) if row[-1] == "COMPLETED" else None


def note_text(mapping: dict[str, str]) -> str | None:
    return _json(mapping).decode() if mapping else None


_BOUND: Final[dict[int, Callable[[Any], Any]]] = {
    _STATE: enum_value,
    _AFTER_CRASH: enum_value,
    _ARGUMENTS: note_text,
    _NOTE: note_text,
    **{FIELDS.index(name): int for name in ("ask_first", "released", "stored", "final")},
}
"""How the fields are bound that are not what SQLite knows. Plain str and int only: else it looks for an adapter."""

_PLACES: Final = range(len(FIELDS))
_DEFAULTS: Final = astuple(Record(id=b"", scope="", key="", state=RecordState.FREE, token=0))[CLAIMED:]


def claimed(record: Record) -> Row | None:
    """What a new claim binds: the fields before CLAIMED. None if the record has more than those to write."""
    fields = astuple(record)
    if fields[CLAIMED:] != _DEFAULTS:
        return None
    return (
        *fields[:_STATE],
        record.state._value_,
        *fields[_STATE + 1 : _AFTER_CRASH],
        record.after_crash._value_,
        *fields[_AFTER_CRASH + 1 : _ARGUMENTS],
        note_text(record.arguments),
        record.owner,
        note_text(record.note),
    )


def bound(record: Record) -> Row:
    """All fields, as they are bound."""
    return tuple([_BOUND[n](value) if n in _BOUND else value for n, value in enumerate(astuple(record))])


def difference(before: Record, after: Record) -> tuple[Columns, list[Any]]:
    """Which fields differ, and what to bind for them: no index is touched in vain, and unknown columns survive."""
    was, now = astuple(before), astuple(after)
    columns = tuple([n for n in compress(_PLACES, map(is_not, was, now)) if was[n] != now[n]])
    return columns, [_BOUND[n](now[n]) if n in _BOUND else now[n] for n in columns]


def storable(record: Record) -> Record:
    """The same record without what SQLite cannot hold: lone surrogates are spelled out, endless times end in 294,247.

    An error's text may hold anything, and an effect that is done must be recorded all the same.
    """
    changes: dict[str, Any] = {}
    for name in FIELDS:
        value = getattr(record, name)
        if isinstance(value, str) and not isinstance(value, RecordState):
            changes[name] = escape_surrogates(value)
        elif isinstance(value, dict):
            changes[name] = {escape_surrogates(word): escape_surrogates(text) for word, text in value.items()}
        elif isinstance(value, int) and value > LARGEST:
            changes[name] = LARGEST
    return msgspec.structs.replace(record, **changes)
