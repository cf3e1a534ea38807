"""Taking a batch of source records in: read what is known around it, decide one by one, write what changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from zlib import crc32

import msgspec

from . import tables as sql
from .blocks import blocks_of
from .decide import Decider, Taken
from .fields import Preset
from .known import Known
from .likeness import Likeness
from .merge import Merged, Part, merged
from .prepare import Invalid, Prepared, prepared
from .source import Decision, SourceRecord
from .tables import Row, Tables

_encode = msgspec.json.Encoder().encode


def take_in(
    tables: Tables, preset: Preset, likeness: Likeness, records: Iterable[SourceRecord], now: int
) -> list[Decision]:
    """A decision each, in input order. The caller's transaction makes it all or nothing."""
    decisions: dict[int, Decision] = {}
    batch: dict[int, Prepared] = {}
    for place, record in enumerate(records):
        try:
            batch[place] = prepared(preset, record)
        except Invalid as error:
            decisions[place] = Decision("rejected", None, "invalid", str(error))
    decider = Decider(preset, likeness, Known())
    known, fresh = decider.known, _read(tables, decider, batch)
    numbers = iter(tables.numbers(len(fresh)) if fresh else ())
    for place, record in batch.items():
        is_fresh = place in fresh and (record.source, record.record) not in known.contributions
        decisions[place] = decider.decide(record, next(numbers) if is_fresh else 0)
    if decider.taken:
        _write(tables, preset, decider, now)
    return [decisions[place] for place in sorted(decisions)]


def _read(tables: Tables, decider: Decider, batch: dict[int, Prepared]) -> set[int]:
    """What is known around the batch; tells which of its records are seen for the first time."""
    known = decider.known
    tables.claim(chain.from_iterable(_claimed(one) for one in batch.values()))
    known.read_contributions(tables, list(batch.values()))
    changed: list[Prepared] = []
    fresh: set[int] = set()
    for place, one in batch.items():
        stored = known.contributions.get((one.source, one.record))
        if stored is None:
            fresh.add(place)
        if stored is None or stored.fingerprint != one.fingerprint:
            changed.append(one)
    if changed:
        known.read_keys(tables, changed)
        unknown = [one for one in changed if not any(key in known.keys for key in one.keys)]
        known.read_near(tables, unknown)
        near = {person for one in unknown for person in decider.shortlist(one)}
        known.read_forms(tables, near)
        known.read_apart(tables, near)
    return fresh


def _claimed(one: Prepared) -> Iterator[int]:
    """All that another writer could decide about at the same time; equal things have equal numbers everywhere."""
    yield crc32(f"{one.source}\0{one.record}".encode())
    yield from (crc32(key.encode()) for key in one.keys)
    yield from one.blocks


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
        [(block, one.number) for one in replaced if one.before for block in blocks_of(preset, one.before.form)],
    )
    tables.many(sql.ADD_BLOCK, [(block, one.number) for one in taken for block in one.prepared.blocks])


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
        if new != Merged(fields, sources, first_seen, last_seen):
            changes.append((new.fields, new.sources, new.first_seen, new.last_seen, now, person))
    tables.many(sql.CHANGE_PERSON, changes)
