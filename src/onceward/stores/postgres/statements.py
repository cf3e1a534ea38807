"""The statements in `statements/`, each under the name of its file. A parameter's type is what the text casts it to."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

from onceward.protocol.record import READER
from onceward.stores.sql import COLUMNS, FIELDS

from .rows import TYPES
from .values import ENCODERS, Encode

NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
"""µs since 1970 on the server's own clock, at this very moment: now() would be the begin of the transaction."""

BINARY: Final = 1
_PARAMETER = re.compile(r"\$(\d+)::(\w+(?:\[\])?)")
_NAMES: Final = ("claim", "claim_one", "complete", "complete_one",
                 "renew", "read", "look", "look_one", "lock", "write", "delete", "purgeable", "counts", "sign",
                 "count_more", "purge_audit", "advise", "create_one", "notify",
                 "newest", "newest_look", "newest_hold", "newest_move", "newest_update", "newest_mark",
                 "newest_expire", "newest_entities", "newest_known", "counters", "counters_keep",
                 "counters_expire")  # fmt: skip


class Statement:
    """One statement: its text, and how its values are encoded."""

    __slots__ = ("encoders", "formats", "name", "raw", "text")

    def __init__(self, text: str) -> None:
        types = {int(number): kind for number, kind in _PARAMETER.findall(text)}
        self.text = text
        self.raw = text.encode()
        self.encoders: list[Encode] = [ENCODERS[types[number]] for number in range(1, len(types) + 1)]
        self.formats = [BINARY] * len(self.encoders)
        # By content: through a pooler, another version of us may meet what we have prepared.
        self.name = b"onceward_" + hashlib.sha256(self.raw).hexdigest()[:24].encode()

    def encoded(self, values: Sequence[Any]) -> list[bytes | None]:
        return [None if value is None else encode(value) for encode, value in zip(self.encoders, values, strict=True)]


class Statements:
    """All of them, for the tables in one schema."""

    def __init__(self, schema: str) -> None:
        self.prefix = f'"{schema}".' if schema else ""
        for name in _NAMES:
            setattr(self, name, Statement(self.filled(_text(f"statements/{name}.sql"))))

    claim: Statement
    claim_one: Statement
    complete: Statement
    complete_one: Statement
    renew: Statement
    read: Statement
    look: Statement
    look_one: Statement
    lock: Statement
    write: Statement
    delete: Statement
    purgeable: Statement
    counts: Statement
    sign: Statement
    count_more: Statement
    purge_audit: Statement
    advise: Statement
    create_one: Statement
    notify: Statement
    newest: Statement
    newest_look: Statement
    newest_hold: Statement
    newest_move: Statement
    newest_update: Statement
    newest_mark: Statement
    newest_expire: Statement
    newest_entities: Statement
    newest_known: Statement
    counters: Statement
    counters_keep: Statement
    counters_expire: Statement

    def filled(self, text: str) -> str:
        for name, value in _blanks().items():
            text = text.replace(f"{{{name}}}", value)
        return text.replace("{schema}", self.prefix)


@cache
def statements(schema: str) -> Statements:
    return Statements(schema)


@cache
def _blanks() -> dict[str, str]:
    """What the texts leave open: names of our own columns, and numbers."""
    of_mine = ", ".join(f"mine.{name}" for name in FIELDS)
    return {
        "now": NOW,
        "reader": str(READER),
        "columns_of_mine": of_mine,
        "columns": COLUMNS,
        "every_array": ", ".join(f"${number}::{TYPES[name]}[]" for number, name in enumerate(FIELDS, 1)),
        "every_value": ", ".join(f"${number}::{TYPES[name]}" for number, name in enumerate(FIELDS, 1)),
        "after_every": str(len(FIELDS) + 1),
        "after_that": str(len(FIELDS) + 2),
        "at_last": str(len(FIELDS) + 3),
        "assignments": ",\n    ".join(f"{name} = given.{name}" for name in FIELDS if name not in ("id", "result")),
    }


def _text(path: str) -> str:
    """Without the lines of comment on top: the server need not read them."""
    lines = files("onceward.stores.postgres").joinpath(path).read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("--"))


def migration(number: int) -> str:
    return _text(f"migrations/{number:04}.sql")
