"""Convert records to rows and back, for every SQL store. The columns are the fields of `Record`.

Most records hold the usual values, so those are stored as NULL, which takes no space: `NULL_MEANS` and
`NULL_MEANS_SAME_AS` are the whole rule. SQL that decides by such a column uses `coalesce` or `IS`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from onceward.errors import RecordBroken
from onceward.protocol.record import NO_OWNER, READER, AfterCrash, Record, RecordState
from onceward.protocol.transitions import CLOCK_MARGIN

Row = tuple[Any, ...]

FIELDS: Final = Record.__struct_fields__
COLUMNS: Final = ", ".join(FIELDS)

NULL_MEANS: Final[dict[str, Any]] = {
    "state": RecordState.COMPLETED,
    "nonce": NO_OWNER,
    "attempt": 1,
    "after_crash": AfterCrash.RERUN,
    "max_attempts": 0,
    "fingerprint": b"",
    "arguments": {},
    "owner": "",
    "note": {},
    "ask_first": False,
    "released": False,
    "digest": b"",
    "stored": True,
    "error_type": "",
    "error": "",
    "final": False,
    "slide": 0,
    "min_reader": 1,
}
"""The value of each column that is stored as NULL."""

NULL_MEANS_SAME_AS: Final = {
    "cycle": "token",
    "created_at": "token",
    "claimed_at": "token",
    "renewed_at": "claimed_at",
}
"""Columns that are NULL if they equal another one: a token is the time of its claim, unless the clock was set back."""

PURGEABLE_FROM: Final = f"(valid_until, token + {CLOCK_MARGIN + 1})"
"""The time from which a record with an end may be purged is the greater of these two (`transitions.purgeable`).

Purge reads candidates from an index on exactly this expression, so it visits no other record.
"""

_ID, _SCOPE, _KEY, _STATE, _TOKEN, _CYCLE = map(FIELDS.index, ("id", "scope", "key", "state", "token", "cycle"))
_VALID_UNTIL, _MIN_READER = map(FIELDS.index, ("valid_until", "min_reader"))

STATES: Final[dict[str | None, RecordState]] = {
    None: RecordState.COMPLETED,
    **{state.value: state for state in RecordState},
}
"""The state for each value of the column `state`."""

_AFTER_CRASHES: Final[dict[int | None, AfterCrash]] = {
    None: AfterCrash.RERUN,
    **{int(choice.value): choice for choice in AfterCrash},
}
_mapping = msgspec.json.Decoder(dict[str, str]).decode
_json = msgspec.json.Encoder().encode


# fmt: off
def row_from_record(record: Record) -> Row:
    """Return the values of all columns: plain integers, texts and bytes, or None for NULL. Written out, as below."""
    token, claimed_at, state = record.token, record.claimed_at, record.state
    return (
        record.id, record.scope, record.key,
        None if state is RecordState.COMPLETED else state.value,
        token,
        record.nonce or None,
        None if record.cycle == token else record.cycle,
        None if record.attempt == 1 else record.attempt,
        None if record.created_at == token else record.created_at,
        None if claimed_at == token else claimed_at,
        record.updated_at,
        None if record.renewed_at == claimed_at else record.renewed_at,
        record.lease_until,
        record.after_crash.value or None,
        record.max_attempts or None,
        record.fingerprint or None,
        json_text(record.arguments) if record.arguments else None,
        record.owner or None,
        json_text(record.note) if record.note else None,
        1 if record.ask_first else None,
        1 if record.released else None,
        record.result,
        record.digest or None,
        None if record.stored else 0,
        record.error_type or None,
        record.error or None,
        1 if record.final else None,
        record.retry_at,
        record.valid_until,
        record.slide or None,
        None if record.min_reader == 1 else record.min_reader,
    )


def record_from_row(row: Row) -> Record:
    """Return the record for a row of `SELECT COLUMNS`. Flags may be numbers. Written out, because most calls use it."""
    (
        id, scope, key, state, token, nonce, cycle, attempt, created_at, claimed_at, updated_at, renewed_at,
        lease_until, after_crash, max_attempts, fingerprint, arguments, owner, note, ask_first, released,
        result, digest, stored, error_type, error, final, retry_at, valid_until, slide, min_reader,
    ) = row
    if claimed_at is None:
        claimed_at = token
    try:
        return Record(
            id, scope, key, STATES[state], token, nonce or NO_OWNER,
            token if cycle is None else cycle,
            1 if attempt is None else attempt,
            token if created_at is None else created_at,
            claimed_at, updated_at,
            claimed_at if renewed_at is None else renewed_at,
            lease_until, _AFTER_CRASHES[after_crash], max_attempts or 0, fingerprint or b"",
            {} if arguments is None else _mapping(arguments), owner or "", {} if note is None else _mapping(note),
            ask_first == 1, released == 1, result, digest or b"", stored is None or stored == 1,
            error_type or "", error or "", final == 1, retry_at, valid_until, slide or 0,
            1 if min_reader is None else min_reader,
        )
    except (KeyError, msgspec.DecodeError) as decode_error:
        return _unknown_layout(row, decode_error)
# fmt: on


def _unknown_layout(row: Row, error: Exception) -> Record:
    """Return a placeholder for a record of a newer layout, or raise RecordBroken.

    Nothing changes a record with a newer `min_reader`. PENDING without a lease makes it count as owned.
    """
    min_reader = 1 if row[_MIN_READER] is None else row[_MIN_READER]
    if min_reader > READER:
        return Record(row[_ID], row[_SCOPE], row[_KEY], RecordState.PENDING, row[_TOKEN], min_reader=min_reader)
    raise RecordBroken(
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
        except RecordBroken:
            unreadable.append(str(row[_KEY]))
    return found, tuple(unreadable)


def record_or_stub(row: Row) -> Record:
    """Return the record; if it cannot be decoded, only the fields that are needed to remove it."""
    try:
        return record_from_row(row)
    except RecordBroken:
        return Record(
            id=row[_ID],
            scope=row[_SCOPE],
            key=row[_KEY],
            state=STATES.get(row[_STATE], RecordState.COMPLETED),
            token=row[_TOKEN],
            cycle=row[_TOKEN] if row[_CYCLE] is None else row[_CYCLE],
            after_crash=AfterCrash.PARK,
            valid_until=row[_VALID_UNTIL],
        )


def json_text(mapping: dict[str, str]) -> str | None:
    if not mapping:
        return None
    try:
        return _json(mapping).decode()
    except UnicodeEncodeError:  # lone surrogates are escaped, as in every other text
        return _json({escape_surrogates(name): escape_surrogates(text) for name, text in mapping.items()}).decode()


def escape_surrogates(text: str) -> str:
    """Replace lone surrogates by escapes: no database accepts them, and an error message may contain any text."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
