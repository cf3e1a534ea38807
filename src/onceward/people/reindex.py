"""Rebuild the index from the stored contributions, after the declared fields or the normalisers have changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Final

import msgspec

from . import tables as sql
from .fields import Preset, declaration
from .ingest import relink_batch
from .merge import as_mapping
from .preparation import InvalidRecord, PreparedRecord, prepare_stored
from .similarity import Similarity
from .tables import Row, Tables

BATCH_SIZE: Final = 1000
DELETE_LINKS: Final = "DELETE FROM {t}onceward_links"
DELETE_BLOCKS: Final = "DELETE FROM {t}onceward_blocking"
NEXT_CONTRIBUTIONS: Final = """
SELECT number, unit, person, source, record, fields FROM {t}onceward_contributions
WHERE number > ? ORDER BY number LIMIT ?
"""
SET_FORM: Final = "UPDATE {t}onceward_contributions SET form = ?, has_keys = ? WHERE number = ?"

_encode = msgspec.json.Encoder().encode


def reindex(tables: Tables, preset: Preset, now: int) -> int:
    """Rebuild the index and return the number of records.

    This merges no one: if two people have the same key under the new rules, the pair becomes a question to review.
    """
    tables.lock_all()
    tables.run(DELETE_BLOCKS)
    count = last = 0
    while rows := tables.run(NEXT_CONTRIBUTIONS, last, BATCH_SIZE):
        _index_rows(tables, preset, rows, now)
        last = rows[-1][0]
        count += len(rows)
    store_declaration(tables, preset)
    return count


def store_declaration(tables: Tables, preset: Preset) -> None:
    """Store the settings as those of the database."""
    tables.run(sql.SET_META, "preset", preset.digest)
    tables.run(sql.SET_META, "declared", declaration(preset))


def relink(
    tables: Tables,
    preset: Preset,
    similarity: Similarity,
    now: int,
    *,
    find: Callable[[int, PreparedRecord], Sequence[int] | None] = lambda _number, _record: None,
    progress: Callable[[int], None] = lambda _count: None,
) -> int:
    """Delete the links, compare all records again, and divide them into people. Return the number of records.

    `find` returns the numbers of the records to compare a record with, or None: then the index is searched. It is
    called in the order of the numbers. `progress` is called with the number of records that are done.
    """
    tables.lock_all()
    tables.run(DELETE_LINKS)
    count = 0
    for batch in stored_records(tables, preset):
        found = {(one.source, one.record): find(number, one) for number, one in batch}
        known = {name: numbers for name, numbers in found.items() if numbers is not None}
        relink_batch(tables, preset, similarity, [one for _, one in batch], now, known=known)
        count += len(batch)
        progress(count)
    return count


def stored_records(tables: Tables, preset: Preset) -> Iterator[list[tuple[int, PreparedRecord]]]:
    """Yield all stored records that can be compared, with their numbers, in batches and in order."""
    last = 0
    while rows := tables.run(NEXT_CONTRIBUTIONS, last, BATCH_SIZE):
        batch = []
        for number, _, _, source, record, fields in rows:
            with suppress(InvalidRecord):
                batch.append((number, prepare_stored(preset, source, record, as_mapping(fields))))
        yield batch
        last = rows[-1][0]


def _index_rows(tables: Tables, preset: Preset, rows: list[Row], now: int) -> None:
    forms: list[Row] = []
    blocks: list[Row] = []
    keys: list[tuple[str, tuple[str, str], str, str]] = []
    for number, unit, person, source, record, fields in rows:
        try:
            one = prepare_stored(preset, source, record, as_mapping(fields))
        except InvalidRecord:  # no usable value under the new rules: it stays with its person, and matches nothing
            forms.append((_encode(preset.empty_form).decode(), 0, number))
            continue
        forms.append((_encode(one.form).decode(), int(bool(one.keys)), number))
        blocks += [(block, number) for block in chain(*one.blocks)]
        keys += [(key, (person, unit), source, record) for key in one.keys]
    tables.run_many(SET_FORM, forms)
    tables.run_many(sql.ADD_BLOCK, blocks)
    owners = {key: (person, unit) for key, person, unit in tables.run(sql.KEYS, list({key for key, *_ in keys}))}
    known = set(owners)
    for key, place, source, record in keys:
        owner = owners.setdefault(key, place)
        if owner[0] != place[0]:
            tables.run_many(sql.ADD_REVIEW, [(*sorted((owner[1], place[1])), source, record, 1.0, "[]", now)])
    tables.run_many(sql.ADD_KEY, [(key, *owner) for key, owner in sorted(owners.items()) if key not in known])
