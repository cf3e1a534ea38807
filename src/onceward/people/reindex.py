"""The index made anew from the contributions as they came: when other fields are declared, or normalisers changed."""

from __future__ import annotations

from itertools import chain
from typing import Final

import msgspec

from . import tables as sql
from .fields import Preset, declaration
from .merge import as_mapping
from .prepare import Invalid, prepared, sketched
from .source import SourceRecord
from .tables import Row, Tables

AT_ONCE: Final = 1000
EMPTY: Final = "DELETE FROM {t}onceward_likeness"
NEXT: Final = """
SELECT number, person, source, record, fields FROM {t}onceward_contributions WHERE number > ? ORDER BY number LIMIT ?
"""
NEW_FORM: Final = "UPDATE {t}onceward_contributions SET form = ? WHERE number = ?"

_encode = msgspec.json.Encoder().encode


def reindex(tables: Tables, preset: Preset, now: int) -> int:
    """Nobody is merged by it: two people whose keys are one by the new rules become a question. How many records."""
    tables.claim_all()
    tables.rows(EMPTY)
    count = last = 0
    while rows := tables.rows(NEXT, last, AT_ONCE):
        _indexed(tables, preset, rows, now)
        last = rows[-1][0]
        count += len(rows)
    tables.rows(sql.NOTE, "preset", preset.digest)
    tables.rows(sql.NOTE, "declared", declaration(preset))
    return count


def _indexed(tables: Tables, preset: Preset, rows: list[Row], now: int) -> None:
    forms: list[Row] = []
    blocks: list[Row] = []
    keys: list[tuple[str, str, str, str]] = []
    for number, person, source, record, fields in rows:
        values = as_mapping(fields)
        try:
            one = prepared(preset, sketched(SourceRecord(source, values, record)), values)
        except Invalid:  # by these rules it says nothing: it stays where it is, and is found by nobody
            forms.append((_encode(preset.nothing).decode(), number))
            continue
        forms.append((_encode(one.form).decode(), number))
        blocks += [(block, number) for block in chain(*one.blocks)]
        keys += [(key, person, source, record) for key in one.keys]
    tables.many(NEW_FORM, forms)
    tables.many(sql.ADD_BLOCK, blocks)
    owners: dict[str, str] = dict(tables.rows(sql.KEYS, list({key for key, *_ in keys}))) if keys else {}
    for key, person, source, record in keys:
        owner = owners.setdefault(key, person)
        if owner != person:
            tables.many(sql.ASK, [(*sorted((owner, person)), source, record, 1.0, "[]", now)])
    known: dict[str, str] = dict(tables.rows(sql.KEYS, list(owners))) if owners else {}
    tables.many(sql.ADD_KEY, [(key, person) for key, person in sorted(owners.items()) if key not in known])
