"""Records as rows of PostgreSQL and back. One place knows the columns: the fields of `Record`, in their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import astuple

from onceward.errors import StoreBroken
from onceward.model.record import READER, AfterCrash, Record, State

Row = tuple[Any, ...]

FIELDS: Final = Record.__struct_fields__
COLUMNS: Final = ", ".join(FIELDS)

_NUMBERS = ("token", "cycle", "attempt", "created_at", "claimed_at", "updated_at", "renewed_at", "lease_until",
            "after_crash", "max_attempts", "retry_at", "valid_until", "slide", "min_reader")  # fmt: skip
_FLAGS = ("ask_first", "released", "stored", "final")
_BYTES = ("id", "nonce", "fingerprint", "digest", "result")
TYPES: Final = {
    **dict.fromkeys(FIELDS, "text"),
    **dict.fromkeys(_NUMBERS, "bigint"),
    **dict.fromkeys(_FLAGS, "boolean"),
    **dict.fromkeys(_BYTES, "bytea"),
}

_ID, _SCOPE, _KEY, _STATE, _TOKEN, _CYCLE, _VALID_UNTIL, _MIN_READER = map(
    FIELDS.index, ("id", "scope", "key", "state", "token", "cycle", "valid_until", "min_reader")
)

_STATES: Final = {str(state.value): state for state in State}
_AFTER_CRASHES: Final = {int(choice.value): choice for choice in AfterCrash}
_mapping = msgspec.json.Decoder(dict[str, str]).decode
_json = msgspec.json.Encoder().encode


# fmt: off
def record_of(row: Row, own_result: bytes | None = None) -> Record:
    """The record that `SELECT COLUMNS` gave. `own_result`: what we have just written is not sent back to us."""
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
            ask_first, released, result if own_result is None else own_result, digest, stored, error_type, error,
            final, retry_at, valid_until, slide, min_reader,
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


def text_of(mapping: dict[str, str]) -> str | None:
    if not mapping:
        return None
    try:
        return _json(mapping).decode()
    except UnicodeEncodeError:  # lone surrogates: spelled out, as in every other text
        return _json({_spelled_out(name): _spelled_out(text) for name, text in mapping.items()}).decode()


def _spelled_out(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _value(member: State | AfterCrash) -> str | int:
    return member._value_


_BOUND: Final[dict[str, Callable[[Any], Any]]] = {
    "state": _value,
    "after_crash": _value,
    "arguments": text_of,
    "note": text_of,
}


def columns_of(records: Sequence[Record]) -> list[list[Any]]:
    """The records column by column, as they are bound."""
    columns = [list(column) for column in zip(*map(astuple, records), strict=True)]
    for name, bound in _BOUND.items():
        place = FIELDS.index(name)
        columns[place] = [bound(value) for value in columns[place]]
    return columns
