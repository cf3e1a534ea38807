"""Convert records to the parameters of PostgreSQL statements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import astuple

from onceward.protocol.record import Record
from onceward.stores.sql import FIELDS, enum_value, escape_surrogates

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

_json = msgspec.json.Encoder().encode


def json_text(mapping: dict[str, str]) -> str | None:
    if not mapping:
        return None
    try:
        return _json(mapping).decode()
    except UnicodeEncodeError:  # lone surrogates are escaped, as in every other text
        return _json({escape_surrogates(name): escape_surrogates(text) for name, text in mapping.items()}).decode()


_CONVERTERS: Final[dict[str, Callable[[Any], Any]]] = {
    "state": enum_value,
    "after_crash": enum_value,
    "arguments": json_text,
    "note": json_text,
}


def columns_of(records: Sequence[Record]) -> list[list[Any]]:
    """Return the records as lists of column values."""
    columns = [list(column) for column in zip(*map(astuple, records), strict=True)]
    for name, convert in _CONVERTERS.items():
        index = FIELDS.index(name)
        columns[index] = [convert(value) for value in columns[index]]
    return columns
