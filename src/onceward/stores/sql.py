"""Convert records to rows and back, for every SQL store. The columns are the fields of `Record`."""

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
def record_from_row(row: Row) -> Record:
    """Return the record for a row of `SELECT COLUMNS`. Flags may be numbers. Written out, because most calls use it."""
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
    except (KeyError, msgspec.DecodeError) as decode_error:
        return _unknown_layout(row, decode_error)
# fmt: on


def _unknown_layout(row: Row, error: Exception) -> Record:
    """Return a placeholder for a record of a newer layout, or raise StoreBroken.

    Nothing changes a record with a newer `min_reader`. PENDING without a lease makes it count as owned.
    """
    if row[_MIN_READER] > READER:
        return Record(row[_ID], row[_SCOPE], row[_KEY], RecordState.PENDING, row[_TOKEN], min_reader=row[_MIN_READER])
    raise StoreBroken(
        "this record has invalid content",
        key=str(row[_KEY]),
        hint="was it edited by hand?",
    ) from error


def records_from_rows(rows: Iterable[Row]) -> tuple[list[Record], tuple[str, ...]]:
    """Return the records that can be decoded, and the keys of those that cannot."""
    found: list[Record] = []
    unreadable: list[str] = []
    for row in rows:
        try:
            found.append(record_from_row(row))
        except StoreBroken:
            unreadable.append(str(row[_KEY]))
    return found, tuple(unreadable)


def record_or_stub(row: Row) -> Record:
    """Return the record; if it cannot be decoded, only the fields that are needed to remove it."""
    try:
        return record_from_row(row)
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


def enum_value(member: RecordState | AfterCrash) -> str | int:
    return member._value_


def escape_surrogates(text: str) -> str:
    """Replace lone surrogates by escapes: no database accepts them, and an error message may contain any text."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
