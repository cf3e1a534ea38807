"""Convert records to the values that SQLite binds, and read the columns that a lookup needs."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from onceward.protocol.record import Record, RecordState
from onceward.stores.sql import COLUMNS, FIELDS, escape_surrogates

WITHOUT_DECLARED_TYPES: Final = ", ".join(f"+{name}" for name in FIELDS)
"""For the caller's connection: `+` hides the declared type, so that registered converters are not applied."""

COLUMNS_WITHOUT_RESULT: Final = COLUMNS.replace(" result,", " NULL,")
"""For decisions that do not need the result, which may be large."""

MAX_INTEGER: Final = 2**63 - 1
"""SQLite's largest integer. In µs this is the year 294,247: practically never."""


class CompletedRow(msgspec.Struct, frozen=True, gc=False):
    """The columns of a COMPLETED row that a replay needs."""

    stored: bool
    token: int
    cycle: int
    attempt: int
    fingerprint: bytes
    result: bytes | None
    valid_until: int | None
    slide: int
    owner: str
    min_reader: int
    state: RecordState = RecordState.COMPLETED


SELECT_COMPLETED: Final = """
SELECT stored, token, coalesce(cycle, token), coalesce(attempt, 1), coalesce(fingerprint, x''), result, valid_until,
    coalesce(slide, 0), coalesce(owner, ''), coalesce(min_reader, 1), state
FROM onceward_records WHERE id = ?
"""
"""The values of a `CompletedRow`. A NULL state means COMPLETED, and a NULL `stored` means that the result is stored."""

COMPARED: Final = ("id", "token", "nonce", "state", "updated_at", "lease_until", "released", "note")
"""What shows that a record is unchanged. Time alone is not enough: one microsecond may hold two writes."""


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
