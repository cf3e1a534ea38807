"""Records as rows: one column a field, in the order of the fields; written with the id last."""

from __future__ import annotations

from typing import Any

import msgspec

from onceward.errors import StoreBroken
from onceward.model.record import READER, AfterCrash, Record, State

Row = tuple[Any, ...]

FIELDS = Record.__struct_fields__
COLUMNS = ", ".join(FIELDS)
WITHOUT_DECLARED_TYPES = ", ".join(f"+{name}" for name in FIELDS)
"""On a connection of the user's: `+` hides the declared type, so that no converter of theirs is applied."""

LIGHT = COLUMNS.replace(" result,", " NULL,")
"""For decisions that need no result: those may be large."""

WRITTEN = (*FIELDS[1:], "id")
"""What `values_of` gives, in order."""

_STATE, _AFTER_CRASH, _ARGUMENTS, _NOTE, _MIN_READER = map(
    FIELDS.index, ("state", "after_crash", "arguments", "note", "min_reader")
)
_ID, _SCOPE, _KEY, _TOKEN, _CYCLE, _VALID_UNTIL = map(
    FIELDS.index, ("id", "scope", "key", "token", "cycle", "valid_until")
)
_ASK_FIRST, _RELEASED, _STORED, _FINAL = map(FIELDS.index, ("ask_first", "released", "stored", "final"))

_STATES = {str(state.value): state for state in State}
_AFTER_CRASHES = {int(choice.value): choice for choice in AfterCrash}
_mapping = msgspec.json.Decoder(dict[str, str]).decode
_json = msgspec.json.Encoder().encode

LARGEST = 2**63 - 1
"""SQLite's integers end here. In µs that is the year 294,247: as good as never."""


def record_of(row: Row) -> Record:
    """The record that `SELECT COLUMNS` gave."""
    fields = list(row)
    try:
        fields[_STATE] = _STATES[row[_STATE]]
        fields[_AFTER_CRASH] = _AFTER_CRASHES[row[_AFTER_CRASH]]
        fields[_ARGUMENTS] = {} if row[_ARGUMENTS] is None else _mapping(row[_ARGUMENTS])
        fields[_NOTE] = {} if row[_NOTE] is None else _mapping(row[_NOTE])
    except (KeyError, msgspec.DecodeError) as error:
        return _stranger(row, error)
    fields[_ASK_FIRST] = row[_ASK_FIRST] == 1
    fields[_RELEASED] = row[_RELEASED] == 1
    fields[_STORED] = row[_STORED] == 1
    fields[_FINAL] = row[_FINAL] == 1
    return Record(*fields)


def _stranger(row: Row, error: Exception) -> Record:
    """A newer layout may hold what we cannot read. It is left alone anyway; PENDING without a lease means held."""
    if row[_MIN_READER] > READER:
        id, scope, key, _, token, *_ = row
        return Record(id, scope, key, State.PENDING, token, min_reader=row[_MIN_READER])
    raise StoreBroken(
        "a record holds what no Onceward of its version writes", key=str(row[2]), hint="was it edited by hand?"
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


def values_of(record: Record) -> Row:
    """What is bound, see WRITTEN. Plain str and int only: anything else makes the driver look for an adapter."""
    return (
        record.scope,
        record.key,
        record.state._value_,
        record.token,
        record.nonce,
        record.cycle,
        record.attempt,
        record.created_at,
        record.claimed_at,
        record.updated_at,
        record.renewed_at,
        record.lease_until,
        record.after_crash._value_,
        record.max_attempts,
        1 if record.ask_first else 0,
        1 if record.released else 0,
        record.fingerprint,
        _json(record.arguments).decode() if record.arguments else None,
        record.result,
        record.digest,
        1 if record.stored else 0,
        record.error_type,
        record.error,
        1 if record.final else 0,
        record.retry_at,
        record.valid_until,
        record.slide,
        record.owner,
        _json(record.note).decode() if record.note else None,
        record.min_reader,
        record.id,
    )


_DEFAULTS = values_of(Record(id=b"", scope="", key="", state=State.FREE, token=0))
UNWRITTEN: Row = (None, None, None, None, *_DEFAULTS[4:-2], None, None)
"""What a column holds that an INSERT leaves out; None for those that are always written."""


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
