"""Convert records to the parameters of PostgreSQL statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from onceward.protocol.record import Record
from onceward.stores.sql import FIELDS, row_from_record

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


def columns_of(records: Sequence[Record]) -> list[list[Any]]:
    """Return the records as lists of column values."""
    return [list(column) for column in zip(*map(row_from_record, records), strict=True)]
