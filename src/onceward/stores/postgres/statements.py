"""Load the statements in `statements/`. Each is an attribute named like its file; casts give the parameter types."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

from onceward.protocol.record import READER
from onceward.stores.sql import COLUMNS, FIELDS, PURGEABLE_FROM

from .rows import TYPES
from .values import ENCODERS, Encode

NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
"""The server's clock in µs since 1970 at this moment: now() would be the start of the transaction."""

_PARAMETER = re.compile(r"\$(\d+)::(\w+(?:\[\])?)")


class Statement:
    """One statement: its text, and the encoders of its parameters."""

    __slots__ = ("encoders", "name", "raw", "text")

    def __init__(self, text: str) -> None:
        types = {int(number): kind for number, kind in _PARAMETER.findall(text)}
        self.text = text
        self.raw = text.encode()
        self.encoders: list[Encode] = [ENCODERS[types[number]] for number in range(1, len(types) + 1)]
        # Named by content: behind a pooler, another version of Onceward may find a statement that we prepared.
        self.name = b"onceward_" + hashlib.sha256(self.raw).hexdigest()[:24].encode()

    def encode(self, values: Sequence[Any]) -> list[bytes | None]:
        return [None if value is None else encode(value) for encode, value in zip(self.encoders, values, strict=True)]


class Statements:
    """All statements, for the tables in one schema. Each is in the file of its name."""

    def __init__(self, schema: str) -> None:
        self.prefix = f'"{schema}".' if schema else ""
        for name in type(self).__annotations__:
            setattr(self, name, Statement(self.fill(_text(f"statements/{name}.sql"))))

    claim: Statement
    claim_one: Statement
    complete: Statement
    renew: Statement
    read: Statement
    lock: Statement
    write: Statement
    delete: Statement
    purgeable: Statement
    counts: Statement
    audit_insert: Statement
    audit_raise_count: Statement
    audit_purge: Statement
    advisory_lock: Statement
    insert_one: Statement
    notify: Statement
    latest: Statement
    latest_lookup: Statement
    latest_lock: Statement
    latest_upsert: Statement
    latest_update: Statement
    latest_insert_marks: Statement
    latest_expire: Statement
    latest_entities: Statement
    latest_marks: Statement
    counters_read: Statement
    counters_save: Statement
    counters_expire: Statement
    history_lock: Statement
    history_append: Statement
    history_trim: Statement
    history_read: Statement
    history_delete: Statement

    def fill(self, text: str) -> str:
        for name, value in _placeholders().items():
            text = text.replace(f"{{{name}}}", value)
        return text.replace("{schema}", self.prefix)


@cache
def statements(schema: str) -> Statements:
    return Statements(schema)


@cache
def _placeholders() -> dict[str, str]:
    """Return the values of the placeholders in the texts: column names and numbers."""
    own_columns = ", ".join(f"mine.{name}" for name in FIELDS)
    return {
        "now": NOW,
        "purgeable_from": PURGEABLE_FROM,
        "reader": str(READER),
        "columns_of_mine": own_columns,
        "columns": COLUMNS,
        "columns_without_result": COLUMNS.replace(" result,", " NULL::bytea AS result,"),
        "every_array": ", ".join(f"${number}::{TYPES[name]}[]" for number, name in enumerate(FIELDS, 1)),
        "every_value": ", ".join(f"${number}::{TYPES[name]}" for number, name in enumerate(FIELDS, 1)),
        "after_every": str(len(FIELDS) + 1),
        "after_that": str(len(FIELDS) + 2),
        "at_last": str(len(FIELDS) + 3),
        "assignments": ",\n    ".join(f"{name} = given.{name}" for name in FIELDS if name not in ("id", "result")),
    }


def _text(path: str) -> str:
    """Return the text of a file without its comments: the server need not read them."""
    lines = files("onceward.stores.postgres").joinpath(path).read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("--"))


def migration(number: int) -> str:
    return _text(f"migrations/{number:04}.sql")
