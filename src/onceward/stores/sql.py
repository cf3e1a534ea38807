"""Records as rows of a table and back, the same for every SQL store: the columns are the fields of `Record`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from onceward.errors import StoreBroken
from onceward.protocol.record import READER, AfterCrash, Record, RecordState

Row = tuple[Any, ...]

FIELDS: Final = Record.__struct_fields__
COLUMNS: Final = ", ".join(FIELDS)

_ID, _SCOPE, _KEY, _STATE, _TOKEN, _CYCLE, _VALID_UNTIL, _MIN_READER = map(
    FIELDS.index, ("id", "scope", "key", "state", "token", "cycle", "valid_until", "min_reader")
)
_STATES: Final = {str(state.value): state for state in RecordState}
_AFTER_CRASHES: Final = {int(choice.value): choice for choice in AfterCrash}
_mapping = msgspec.json.Decoder(dict[str, str]).decode


# fmt: off
def record_of(row: Row) -> Record:
    """The record that `SELECT COLUMNS` gave; flags may be numbers. Spelled out, because most calls make one."""
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
            ask_first == 1, released == 1, result, digest, stored == 1,
            error_type, error, final == 1, retry_at, valid_until, slide, min_reader,
        )
    except (KeyError, msgspec.DecodeError) as error_of_ours:
        return _stranger(row, error_of_ours)
# fmt: on


def _stranger(row: Row, error: Exception) -> Record:
    """A newer layout may hold what we cannot read. It is left alone anyway; PENDING without a lease means held."""
    if row[_MIN_READER] > READER:
        return Record(row[_ID], row[_SCOPE], row[_KEY], RecordState.PENDING, row[_TOKEN], min_reader=row[_MIN_READER])
    raise StoreBroken(
        "a record holds what no Onceward of its version writes", key=str(row[_KEY]), hint="was it edited by hand?"
    ) from error


def records_of(rows: Iterable[Row]) -> tuple[list[Record], tuple[str, ...]]:
    """Those that can be read, and the keys of the others."""
    found: list[Record] = []
    unreadable: list[str] = []
    for row in rows:
        try:
            found.append(record_of(row))
        except StoreBroken:
            unreadable.append(str(row[_KEY]))
    return found, tuple(unreadable)


def salvaged(row: Row) -> Record:
    """What can be told of a row whether it can be read or not: enough to remove it, and no more than that."""
    try:
        return record_of(row)
    except StoreBroken:
        return Record(
            id=row[_ID],
            scope=row[_SCOPE],
            key=row[_KEY],
            state=_STATES.get(row[_STATE], RecordState.COMPLETED),
            token=row[_TOKEN],
            cycle=row[_CYCLE],
            after_crash=AfterCrash.PARK,
            valid_until=row[_VALID_UNTIL],
        )


def value_of(member: RecordState | AfterCrash) -> str | int:
    return member._value_


def spelled_out(text: str) -> str:
    """Lone surrogates by their numbers: no database takes them, and an error's text may hold anything."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
