"""Ingest a batch of source records: read the related rows, decide record by record, write what changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from zlib import crc32

import msgspec
from msgspec.structs import replace

from . import tables as sql
from .batch_state import BatchState
from .blocking import blocks_of
from .fields import Preset
from .match_types import Assignment, skip_unchanged
from .matching import Matcher
from .merge import MergedPerson, Part, merge_parts
from .preparation import EncodedRecord, InvalidRecord, PreparedRecord, encode_record, prepare_record
from .similarity import Similarity
from .source import Decision, SourceRecord
from .tables import Row, Tables

_encode = msgspec.json.Encoder().encode


def ingest(
    tables: Tables, preset: Preset, similarity: Similarity, records: Iterable[SourceRecord], now: int
) -> list[Decision]:
    """Ingest the records and return one decision per record, in input order.

    The caller's transaction makes this all or nothing.
    """
    decisions: dict[int, Decision] = {}
    matcher = Matcher(preset, similarity, BatchState())
    batch = _records_to_decide(tables, matcher, list(records), decisions)
    if batch:
        _read(tables, matcher, batch)
        for (position, record), new_number in zip(batch.items(), tables.allocate_numbers(len(batch)), strict=True):
            decisions[position] = matcher.decide(record, new_number)
    if matcher.assignments:
        _write(tables, preset, matcher, now)
    return [decisions[position] for position in sorted(decisions)]


Candidates = Mapping[tuple[str, str], Sequence[int]]
"""By source and record: the numbers of the records to compare it with."""


def relink_batch(
    tables: Tables,
    preset: Preset,
    similarity: Similarity,
    records: Sequence[PreparedRecord],
    now: int,
    *,
    known: Candidates = MappingProxyType({}),
) -> None:
    """Link stored records again and divide the people they belong to. Units and contents stay as they are.

    `known` has the candidates of records that need no search.
    """
    matcher = Matcher(preset, similarity, BatchState())
    batch = dict(enumerate(records))
    matcher.state.read_contributions(tables, batch.values())
    _read(tables, matcher, batch, known)
    numbers = [matcher.relink(record) for record in records]
    tables.lock_people(sorted(_changed_people(matcher, ())))
    _write_links(tables, matcher.state, numbers)
    _move_units(tables, matcher, now)
    _refresh_people(tables, preset, matcher, (), now)
    _write_reviews(tables, matcher, now)


def _records_to_decide(
    tables: Tables, matcher: Matcher, records: Sequence[SourceRecord], decisions: dict[int, Decision]
) -> dict[int, PreparedRecord]:
    """Return the records that need a decision, by position. Unchanged and invalid records are decided here."""
    encoded_records: dict[int, EncodedRecord] = {}
    for position, record in enumerate(records):
        try:
            encoded_records[position] = encode_record(record)
        except InvalidRecord as error:
            decisions[position] = _rejection(error)
    state = matcher.state
    state.read_contributions(tables, encoded_records.values())
    occurrences = Counter((encoded.source, encoded.record) for encoded in encoded_records.values())
    batch: dict[int, PreparedRecord] = {}
    for position, encoded in encoded_records.items():
        name = encoded.source, encoded.record
        stored = state.contributions.get(name)
        if stored is not None and stored.fingerprint == encoded.fingerprint and occurrences[name] == 1:
            decisions[position] = skip_unchanged(state.person_of(stored.unit))
            continue
        try:
            batch[position] = prepare_record(matcher.preset, encoded, records[position].fields)
        except InvalidRecord as error:
            decisions[position] = _rejection(error)
    return batch


def _rejection(error: InvalidRecord) -> Decision:
    return Decision("rejected", None, "invalid", str(error))


def _read(
    tables: Tables, matcher: Matcher, batch: dict[int, PreparedRecord], known: Candidates = MappingProxyType({})
) -> None:
    """Lock the keys of the batch, and read everything that its decisions depend on."""
    state = matcher.state
    if tables.lock_keys(chain.from_iterable(_lock_keys(one) for one in batch.values())):
        state.read_contributions(tables, batch.values())  # another writer may have changed them before we had the locks
    state.read_keys(tables, batch.values())
    people = {state.person_of(state.contributions[name].unit) for one in batch.values()
              if (name := (one.source, one.record)) in state.contributions}  # fmt: skip
    for one in batch.values():
        if matcher.needs_people(one):
            keys = (*one.keys, *one.claims)
            people |= {state.person_of(state.keys[key]) for key in keys if key in state.keys}
    if matcher.preset.use_similarity:
        compared = [one for one in batch.values() if any(one.blocks)]
        state.read_candidates(tables, [one for one in compared if (one.source, one.record) not in known])
        found_before = [one for one in compared if (one.source, one.record) in known]
        state.set_candidates(tables, found_before, [known[one.source, one.record] for one in found_before])
        people |= {found.person for one in compared for found in matcher.shortlist(one)}
    state.load_people(tables, people)
    state.read_distinct(tables)


def _lock_keys(one: PreparedRecord) -> Iterator[int]:
    """Yield a number for everything that two concurrent writers could both decide about.

    The numbers are the same in every process.
    """
    yield crc32(f"{one.source}\0{one.record}".encode())
    yield from (crc32(key.encode()) for key in (*one.keys, *one.claims))
    yield from one.blocks.complete
    yield from one.blocks.partial


# ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _write(tables: Tables, preset: Preset, matcher: Matcher, now: int) -> None:
    state = matcher.state
    assignments = list(matcher.assignments.values())
    tables.lock_people(sorted(_changed_people(matcher, assignments)))
    _write_contributions(tables, preset, matcher, assignments, now)
    _create_people(tables, preset, matcher, assignments, now)
    for unit, survivor in state.merged.items():
        merge_units(
            tables, (state.stored_person.get(unit), unit), (state.person_of(unit), state.current(survivor)), now
        )
    _move_units(tables, matcher, now)
    new_keys = [(key, state.person_of(unit), state.current(unit)) for key, unit in sorted(matcher.new_keys.items())]
    tables.run_many(sql.ADD_KEY, new_keys)
    _refresh_people(tables, preset, matcher, assignments, now)
    _write_reviews(tables, matcher, now)


def merge_units(tables: Tables, loser: tuple[str | None, str], survivor: tuple[str, str], now: int) -> None:
    """Move keys, contributions, redirects and reviews from one unit to another. Each is given with its person.

    The loser's person is None if no other transaction has seen it.
    """
    old_person, unit = loser
    person, new_unit = survivor
    if old_person is not None:
        tables.run(sql.MOVE_UNIT_KEYS, person, new_unit, old_person, unit)
        tables.run(sql.MOVE_UNIT, person, new_unit, old_person, unit)
    tables.run(sql.SET_REDIRECT, new_unit, now, unit)
    tables.run(sql.REDIRECT_OTHERS, new_unit, unit)
    tables.run(sql.COPY_REVIEWS, *[new_unit] * 4, *[unit] * 3, new_unit)
    tables.run(sql.DELETE_REVIEWS, unit, unit)


def _move_units(tables: Tables, matcher: Matcher, now: int) -> None:
    """Write which person each unit belongs to."""
    state = matcher.state
    for unit, person in state.person.items():
        before = state.stored_person.get(unit)
        if before is None:
            if person != unit:
                tables.run(sql.SET_REDIRECT, person, now, unit)
        elif before != person or before in state.merged:
            tables.run(sql.MOVE_UNIT_KEYS, person, unit, before, unit)
            tables.run(sql.MOVE_UNIT, person, unit, before, unit)
            tables.run(sql.SET_REDIRECT, None if person == unit else person, now, unit)


def _write_reviews(tables: Tables, matcher: Matcher, now: int) -> None:
    state = matcher.state
    reviews: dict[tuple[str, str], Row] = {}
    for request in matcher.review_requests:
        one, other = state.current(request.one), state.current(request.other)
        compared = request.evidence
        if one > other:
            one, other = other, one
            compared = tuple(replace(each, here=each.there, there=each.here) for each in compared)
        if one != other and state.person[one] != state.person[other] and not state.are_distinct(one, other):
            evidence = _encode(compared).decode()
            reviews.setdefault(
                (one, other), (one, other, request.source, request.record, request.confidence, evidence, now)
            )
    tables.run_many(sql.ADD_REVIEW, list(reviews.values()))


def _write_contributions(
    tables: Tables, preset: Preset, matcher: Matcher, assignments: Sequence[Assignment], now: int
) -> None:
    added: list[Row] = []
    changed: list[Row] = []
    for one in assignments:
        record, decision = one.prepared, one.decision
        at = now if record.at is None else record.at
        values = (
            matcher.state.person_of(one.unit),
            matcher.state.current(one.unit),
            record.fields.decode(),
            record.fingerprint,
            at,
            int(record.at is not None),
            decision.rule,
            decision.confidence,
            _encode(decision.evidence).decode() if decision.evidence else None,
            _encode(record.form).decode(),
            int(bool(record.keys)),
        )
        if one.before is None:
            added.append((one.number, record.source, record.record, *values))
        else:
            changed.append((*values, one.number))
    tables.run_many(sql.ADD_CONTRIBUTION, added)
    tables.run_many(sql.CHANGE_CONTRIBUTION, changed)
    replaced = [(one.number, one.before.form) for one in assignments if one.before is not None]
    old_blocks = [(block, number) for number, form in replaced for block in chain(*blocks_of(preset, form))]
    tables.run_many(sql.DROP_BLOCK, old_blocks)
    tables.run_many(
        sql.ADD_BLOCK, [(block, one.number) for one in assignments for block in chain(*one.prepared.blocks)]
    )
    drop_links(tables, [number for number, _ in replaced])
    _write_links(tables, matcher.state, [one.number for one in assignments])


def drop_links(tables: Tables, numbers: Sequence[int]) -> None:
    tables.run_many(sql.DROP_LINKS_TO, [(number, number) for number in numbers])
    tables.run_many(sql.DROP_LINKS, [(number,) for number in numbers])


def _write_links(tables: Tables, state: BatchState, numbers: Sequence[int]) -> None:
    """Write the links of these records, once for each of the two records."""
    pairs = [(one, other, sure) for one in numbers for other, sure in state.links.get(one, {}).items()]
    tables.run_many(sql.ADD_LINK, pairs)
    tables.run_many(sql.ADD_LINK, [(other, one, sure) for one, other, sure in pairs])


def _create_people(
    tables: Tables, preset: Preset, matcher: Matcher, assignments: Sequence[Assignment], now: int
) -> None:
    """Write the new people, including those merged within this batch: callers have their ids, which must redirect."""
    state = matcher.state
    parts: dict[str, list[Part]] = {person: [] for person in matcher.created}
    for one in assignments:
        person = state.person_of(one.unit)
        if person in parts:
            record = one.prepared
            at = now if record.at is None else record.at
            parts[person].append(Part(one.number, record.source, record.fields, at))
    rows: list[Row] = []
    for person, theirs in parts.items():
        columns = merge_parts(preset, theirs)
        rows.append((person, columns.fields, columns.sources, columns.first_seen, columns.last_seen, now, now))
    tables.run_many(sql.ADD_PERSON, rows)


def _refresh_people(
    tables: Tables, preset: Preset, matcher: Matcher, assignments: Sequence[Assignment], now: int
) -> None:
    """Merge affected people again. Those created in this batch need it only if a merge gave them contributions."""
    state = matcher.state
    stored = state.stored_person
    touched = _changed_people(matcher, assignments) | {state.person_of(one.unit) for one in assignments}
    touched |= {person for unit, before in stored.items() if (person := state.person_of(unit)) != before}
    created = set(matcher.created)
    fresh = {person for person in touched & created if all(unit in created for unit in state.units_of([person]))}
    if touched - fresh:
        refresh(tables, preset, sorted(touched - fresh), now)


def _changed_people(matcher: Matcher, assignments: Sequence[Assignment]) -> set[str]:
    """Return the people who existed before this batch and are changed by it."""
    state = matcher.state
    stored = state.stored_person
    units = {one.unit for one in assignments} | {one.before.unit for one in assignments if one.before is not None}
    units |= {unit for unit in stored if state.person_of(unit) != stored[unit]}
    touched = {stored[unit] for unit in units if unit in stored}
    touched |= {state.person_of(unit) for unit in units}
    return {one for one in touched.difference(matcher.created) if stored.get(one, one) == one}


def refresh(tables: Tables, preset: Preset, people: list[str], now: int) -> None:
    """Merge the contributions of these people again. Write only what differs: a repetition changes no column."""
    parts: dict[str, list[Part]] = {person: [] for person in people}
    for person, number, source, _, fields, at, *_ in tables.run(sql.CONTRIBUTIONS_OF, people):
        parts[person].append(Part(number, source, fields, at))
    changes: list[Row] = []
    for person, fields, sources, first_seen, last_seen, *_ in tables.run(sql.PEOPLE, people):
        if not parts[person]:  # other people have its records now: it keeps the last known fields
            continue
        new = merge_parts(preset, parts[person])
        if new != MergedPerson(fields, sources, first_seen, last_seen):
            changes.append((new.fields, new.sources, new.first_seen, new.last_seen, now, person))
    tables.run_many(sql.CHANGE_PERSON, changes)
