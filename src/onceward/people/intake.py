"""Taking a batch of source records in: read what is known around it, decide one by one, write what changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from zlib import crc32

import msgspec

from . import tables as sql
from .blocking import blocks_of
from .decide import Decider, Taken, unchanged
from .fields import Preset
from .known import Known
from .merge import MergedPerson, Part, merged
from .prepare import Invalid, Prepared, Sketch, prepared, sketched
from .similarity import Similarity
from .source import Decision, SourceRecord
from .tables import Row, Tables

_encode = msgspec.json.Encoder().encode


def take_in(
    tables: Tables, preset: Preset, likeness: Similarity, records: Iterable[SourceRecord], now: int
) -> list[Decision]:
    """A decision each, in input order. The caller's transaction makes it all or nothing."""
    decisions: dict[int, Decision] = {}
    decider = Decider(preset, likeness, Known())
    batch = _changed(tables, decider, list(records), decisions)
    if batch:
        _read(tables, decider, batch)
        for (place, record), fresh in zip(batch.items(), tables.numbers(len(batch)), strict=True):
            decisions[place] = decider.decide(record, fresh)
    if decider.taken:
        _write(tables, preset, decider, now)
    return [decisions[place] for place in sorted(decisions)]


def _changed(
    tables: Tables, decider: Decider, records: Sequence[SourceRecord], decisions: dict[int, Decision]
) -> dict[int, Prepared]:
    """Those that are to be decided upon. What came before, unchanged, and what cannot be read has its decision here."""
    sketches: dict[int, Sketch] = {}
    for place, record in enumerate(records):
        try:
            sketches[place] = sketched(record)
        except Invalid as error:
            decisions[place] = _rejected(error)
    known = decider.known
    known.read_contributions(tables, sketches.values())
    names = Counter((sketch.source, sketch.record) for sketch in sketches.values())
    batch: dict[int, Prepared] = {}
    for place, sketch in sketches.items():
        name = sketch.source, sketch.record
        stored = known.contributions.get(name)
        if stored is not None and stored.fingerprint == sketch.fingerprint and names[name] == 1:
            decisions[place] = unchanged(stored.person)
            continue
        try:
            batch[place] = prepared(decider.preset, sketch, records[place].fields)
        except Invalid as error:
            decisions[place] = _rejected(error)
    return batch


def _rejected(error: Invalid) -> Decision:
    return Decision("rejected", None, "invalid", str(error))


def _read(tables: Tables, decider: Decider, batch: dict[int, Prepared]) -> None:
    """What is known around the batch."""
    known = decider.known
    if tables.claim(chain.from_iterable(_claimed(one) for one in batch.values())):
        known.read_contributions(tables, batch.values())  # somebody may have been faster
    changed = batch.values()
    known.read_keys(tables, changed)
    by_likeness = decider.preset.likeness
    unknown = [one for one in changed if by_likeness and not any(key in known.keys for key in one.keys)]
    known.read_near(tables, unknown)
    near = {one.person for record in unknown for one in decider.shortlist(record)}
    if any(any(one.blocks) for one in unknown):
        known.read_forms(tables, near.union(known.keys.values()))  # owners too: others of the batch may be like them
    known.read_apart(tables, near)


def _claimed(one: Prepared) -> Iterator[int]:
    """All that another writer could decide about at the same time; equal things have equal numbers everywhere."""
    yield crc32(f"{one.source}\0{one.record}".encode())
    yield from (crc32(key.encode()) for key in one.keys)
    yield from one.blocks.rare
    yield from one.blocks.common


# ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _write(tables: Tables, preset: Preset, decider: Decider, now: int) -> None:
    known = decider.known
    taken = list(decider.taken.values())
    tables.hold(_existing(decider, taken))
    _write_contributions(tables, preset, decider, taken, now)
    tables.many(sql.ADD_KEY, [(key, known.current(person)) for key, person in sorted(decider.new_keys.items())])
    _create_people(tables, preset, decider, taken, now)
    for loser, survivor in known.merged.items():
        redirect(tables, loser, known.current(survivor), now)
    _refresh_people(tables, preset, decider, taken, now)
    questions = []
    for asked in decider.asked:
        one, other = sorted((known.current(asked.new), known.current(asked.candidate)))
        if one != other and not known.are_apart(one, other):
            evidence = _encode(asked.evidence).decode()
            questions.append(
                (one, other, asked.prepared.source, asked.prepared.record, asked.confidence, evidence, now)
            )
    tables.many(sql.ASK, questions)


def redirect(tables: Tables, loser: str, survivor: str, now: int) -> None:
    """All that led to one person leads to the other."""
    tables.rows(sql.MOVE_KEYS, survivor, loser)
    tables.rows(sql.MOVE_CONTRIBUTIONS, survivor, loser)
    tables.rows(sql.REDIRECT, survivor, now, loser)
    tables.rows(sql.REDIRECT_OTHERS, survivor, loser)
    tables.rows(sql.CARRIED_OVER, *[survivor] * 4, *[loser] * 3, survivor)
    tables.rows(sql.SUPERSEDED, loser, loser)


def _write_contributions(tables: Tables, preset: Preset, decider: Decider, taken: Sequence[Taken], now: int) -> None:
    added: list[Row] = []
    changed: list[Row] = []
    for one in taken:
        record, decision = one.prepared, one.decision
        at = now if record.at is None else record.at
        values = (
            decider.known.current(one.person),
            record.fields.decode(),
            record.fingerprint,
            at,
            int(record.at is not None),
            decision.rule,
            decision.confidence,
            _encode(decision.evidence).decode() if decision.evidence else None,
            _encode(record.form).decode(),
        )
        if one.before is None:
            added.append((one.number, record.source, record.record, *values))
        else:
            changed.append((*values, one.number))
    tables.many(sql.ADD_CONTRIBUTION, added)
    tables.many(sql.CHANGE_CONTRIBUTION, changed)
    replaced = [one for one in taken if one.before is not None]
    tables.many(
        sql.DROP_BLOCK,
        [
            (block, one.number)
            for one in replaced
            if one.before is not None
            for block in chain(*blocks_of(preset, one.before.form))
        ],
    )
    tables.many(sql.ADD_BLOCK, [(block, one.number) for one in taken for block in chain(*one.prepared.blocks)])


def _create_people(tables: Tables, preset: Preset, decider: Decider, taken: Sequence[Taken], now: int) -> None:
    """Also those who turned out to be somebody else within the batch: their ids have been told, and lead there."""
    known = decider.known
    parts: dict[str, list[Part]] = {person: [] for person in decider.created}
    for one in taken:
        person = known.current(one.person)
        if person in parts:
            record = one.prepared
            at = now if record.at is None else record.at
            parts[person].append(Part(one.number, record.source, record.fields, at))
    rows: list[Row] = []
    for person, theirs in parts.items():
        columns = merged(preset, theirs)
        rows.append((person, columns.fields, columns.sources, columns.first_seen, columns.last_seen, now, now))
    tables.many(sql.ADD_PERSON, rows)


def _refresh_people(tables: Tables, preset: Preset, decider: Decider, taken: Sequence[Taken], now: int) -> None:
    """Who was created in this batch is up to date, unless they got somebody else's contributions by a merge."""
    known = decider.known
    touched = {known.current(one) for one in _existing(decider, taken)}
    touched |= {known.current(one) for one in known.merged}
    if touched:
        refresh(tables, preset, sorted(touched), now)


def _existing(decider: Decider, taken: Sequence[Taken]) -> list[str]:
    """Who was there before this batch and is touched by it."""
    touched = {one.person for one in taken} | {one.before.person for one in taken if one.before is not None}
    touched |= decider.known.merged.keys() | set(decider.known.merged.values())
    return sorted(touched - set(decider.created))


def refresh(tables: Tables, preset: Preset, people: list[str], now: int) -> None:
    """Merge these people anew. Only what differs is written: an identical repeat changes no column."""
    parts: dict[str, list[Part]] = {person: [] for person in people}
    for person, number, source, _, fields, at, *_ in tables.rows(sql.SAID, people):
        parts[person].append(Part(number, source, fields, at))
    changes: list[Row] = []
    for person, fields, sources, first_seen, last_seen, *_ in tables.rows(sql.PEOPLE, people):
        if not parts[person]:  # its records are of somebody else now: it stays as it was last known
            continue
        new = merged(preset, parts[person])
        if new != MergedPerson(fields, sources, first_seen, last_seen):
            changes.append((new.fields, new.sources, new.first_seen, new.last_seen, now, person))
    tables.many(sql.CHANGE_PERSON, changes)
