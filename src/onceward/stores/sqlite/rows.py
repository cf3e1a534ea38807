"""Records as rows of SQLite and back. One place knows the columns: they are the fields of `Record`, in their order."""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress
from operator import is_not
from typing import Any, Final

import msgspec
from msgspec.structs import astuple

from onceward.errors import StoreBroken
from onceward.model.record import READER, AfterCrash, Record, State

Row = tuple[Any, ...]
Columns = tuple[int, ...]

FIELDS: Final = Record.__struct_fields__
COLUMNS: Final = ", ".join(FIELDS)
WITHOUT_DECLARED_TYPES: Final = ", ".join(f"+{name}" for name in FIELDS)
"""On a connection of the user's: `+` hides the declared type, so that no converter of theirs is applied."""

LIGHT: Final = COLUMNS.replace(" result,", " NULL,")
"""For decisions that need no result: those may be large."""

_STATE, _AFTER_CRASH, _ARGUMENTS, _NOTE, _MIN_READER = map(
    FIELDS.index, ("state", "after_crash", "arguments", "note", "min_reader")
)
_ID, _SCOPE, _KEY, _TOKEN, _CYCLE, _VALID_UNTIL = map(
    FIELDS.index, ("id", "scope", "key", "token", "cycle", "valid_until")
)

CLAIMED: Final = _NOTE + 1
"""A new claim writes the fields before this one; the others keep their defaults until the claim is settled."""

_STATES: Final = {str(state.value): state for state in State}
_AFTER_CRASHES: Final = {int(choice.value): choice for choice in AfterCrash}
_mapping = msgspec.json.Decoder(dict[str, str]).decode
_json = msgspec.json.Encoder().encode

LARGEST: Final = 2**63 - 1
"""SQLite's integers end here. In µs that is the year 294,247: as good as never."""


# fmt: off
def record_of(row: Row) -> Record:
    """The record that `SELECT COLUMNS` gave. Spelled out, because every call to a store makes one."""
    (
        id, scope, key, state, token, nonce, cycle, attempt, created_at, claimed_at, updated_at, renewed_at,
        lease_until, after_crash, max_attempts, fingerprint, arguments, owner, note, ask_first, released,
        result, digest, stored, error_type, error, final, retry_at, valid_until, slide, min_reader,
    ) = row
    try:
        return Record(
            id, scope, key, _STATES[state], token, nonce, cycle, attempt, created_at, claimed_at, updated_at,
            renewed_at, lease_until, _AFTER_CRASHES[after_crash], max_attempts, fingerprint,
            {} if arguments is None else _mapping(arguments), owner, {} if note is None else _mapping(note),
            ask_first == 1, released == 1, result, digest, stored == 1, error_type, error, final == 1,
            retry_at, valid_until, slide, min_reader,
        )
    except (KeyError, msgspec.DecodeError) as error_of_ours:
        return _stranger(row, error_of_ours)
# fmt: on


def _stranger(row: Row, error: Exception) -> Record:
    """A newer layout may hold what we cannot read. It is left alone anyway; PENDING without a lease means held."""
    if row[_MIN_READER] > READER:
        return Record(row[_ID], row[_SCOPE], row[_KEY], State.PENDING, row[_TOKEN], min_reader=row[_MIN_READER])
    raise StoreBroken(
        "a record holds what no Onceward of its version writes", key=str(row[_KEY]), hint="was it edited by hand?"
    ) from error


def salvaged(row: Row) -> Record:
    """What can be told of a row whether it can be read or not: enough to remove it, and no more than that."""
    try:
        return record_of(row)
    except StoreBroken:
        return Record(
            id=row[_ID],
            scope=row[_SCOPE],
            key=row[_KEY],
            state=_STATES.get(row[_STATE], State.COMPLETED),
            token=row[_TOKEN],
            cycle=row[_CYCLE],
            after_crash=AfterCrash.PARK,
            valid_until=row[_VALID_UNTIL],
        )


class Glimpse(msgspec.Struct, frozen=True, gc=False):
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
    state: State = State.COMPLETED


GLIMPSE: Final = f"SELECT {', '.join(Glimpse.__struct_fields__)} FROM onceward_records WHERE id = ?"  # noqa: S608 (names of fields)


def glimpse_of(row: Row) -> Glimpse | None:
    return Glimpse(*row[:-1]) if row[-1] == "COMPLETED" else None


def _value(member: State | AfterCrash) -> str | int:
    return member._value_


def note_text(mapping: dict[str, str]) -> str | None:
    return _json(mapping).decode() if mapping else None


_BOUND: Final[dict[int, Callable[[Any], Any]]] = {
    _STATE: _value,
    _AFTER_CRASH: _value,
    _ARGUMENTS: note_text,
    _NOTE: note_text,
    **{FIELDS.index(name): int for name in ("ask_first", "released", "stored", "final")},
}
"""How the fields are bound that are not what SQLite knows. Plain str and int only: else it looks for an adapter."""

_PLACES: Final = range(len(FIELDS))
_DEFAULTS: Final = astuple(Record(id=b"", scope="", key="", state=State.FREE, token=0))[CLAIMED:]


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
        if isinstance(value, str) and not isinstance(value, State):
            changes[name] = _spelled_out(value)
        elif isinstance(value, dict):
            changes[name] = {_spelled_out(word): _spelled_out(text) for word, text in value.items()}
        elif isinstance(value, int) and value > LARGEST:
            changes[name] = LARGEST
    return msgspec.structs.replace(record, **changes)


def _spelled_out(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
