"""Read people with their keys and contributions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from onceward.errors import ConfigurationError
from onceward.protocol.instants import moment

from . import tables as sql
from .blocking import role_block
from .fields import Field, Preset
from .merge import as_mapping
from .normalise.placeholders import is_of_a_role
from .person import Contribution, Person
from .preparation import index_text
from .source import decode_evidence
from .tables import Tables

BATCH_SIZE: Final = 500
AFTER: Final = "SELECT id FROM {t}onceward_people WHERE id > ? AND merged_into IS NULL ORDER BY id LIMIT ?"
WITHOUT_RECORDS: Final = """
SELECT p.id FROM {t}onceward_people AS p WHERE p.merged_into IS NULL
AND NOT EXISTS (SELECT 1 FROM {t}onceward_contributions AS c WHERE c.person = p.id) ORDER BY p.id LIMIT ?
"""
PEOPLE_OF_BLOCK: Final = """
SELECT DISTINCT c.person FROM {t}onceward_blocking AS b JOIN {t}onceward_contributions AS c ON c.number = b.number
WHERE b.block = ? LIMIT 2
"""
COUNT: Final = "SELECT count(*) FROM {t}onceward_people WHERE merged_into IS NULL"


def people(tables: Tables, ids: Sequence[str]) -> Iterator[Person]:
    """Yield people in the order of the ids. A merged id yields the person that it redirects to."""
    wanted = list(ids)
    if not wanted:
        return
    rows = {row[0]: row for row in tables.run(sql.PEOPLE, wanted)}
    redirects = {row[0]: row[-1] for row in rows.values() if row[-1] is not None}
    while missing := set(redirects.values()) - rows.keys():
        more = {row[0]: row for row in tables.run(sql.PEOPLE, list(missing))}
        rows |= more
        redirects |= {row[0]: row[-1] for row in more.values() if row[-1] is not None}
    found = list(dict.fromkeys(_follow(redirects, id) for id in wanted if id in rows))
    keys: dict[str, list[str]] = {}
    for person, key in tables.run(sql.KEYS_OF, found):
        keys.setdefault(person, []).append(key)
    parts: dict[str, list[Contribution]] = {}
    for person, number, source, record, fields, at, rule, confidence, why in tables.run(sql.CONTRIBUTIONS_OF, found):
        evidence = decode_evidence(why) if why else ()
        part = Contribution(source, record, as_mapping(fields), moment(at), rule, confidence, number, evidence)
        parts.setdefault(person, []).append(part)
    for id in found:
        _, fields, sources, *times, _ = rows[id]
        yield Person(
            id,
            as_mapping(fields),
            msgspec.json.decode(sources, type=tuple[str, ...]),
            tuple(keys.get(id, ())),
            tuple(parts.get(id, ())),
            *map(moment, times),
        )


def one(tables: Tables, person: str) -> Person | None:
    return next(people(tables, [person]), None)


def existing(tables: Tables, person: str, hint: str) -> Person:
    """Return the person. Raise if there is none."""
    found = one(tables, person)
    if found is None:
        raise ConfigurationError(f"there is no person {person!r}", hint=hint)
    return found


def _follow(redirects: Mapping[str, str], person: str) -> str:
    while person in redirects:
        person = redirects[person]
    return person


def by_keys(tables: Tables, preset: Preset, name: str, values: Iterable[Any]) -> dict[Any, Person]:
    """Return the people with these strong keys, by the key as the caller passed it. Invalid keys find no one."""
    strong = [known for known, field in preset.fields.items() if field.strong]
    if name not in strong:
        raise ConfigurationError(f"{name!r} is not a strong key", hint=f"use one of: {', '.join(strong)}")
    wanted: dict[Any, str] = {}
    for value in values:
        with suppress(ValueError):
            wanted[value] = f"{name}:{index_text(preset.fields[name].kind.normalise(str(value)))}"
    if not wanted:
        return {}
    owners = {key: person for key, person, _ in tables.run(sql.KEYS, sorted(set(wanted.values())))}
    owners |= _owners_of_roles(tables, preset.fields[name], set(wanted.values()).difference(owners))
    found = {person.id: person for person in people(tables, list(dict.fromkeys(owners.values())))}
    return {value: found[owners[key]] for value, key in wanted.items() if key in owners}


def _owners_of_roles(tables: Tables, field: Field, keys: Iterable[str]) -> dict[str, str]:
    """Return the only person who has this address of a role. If several have it, it belongs to no one of them."""
    found: dict[str, str] = {}
    for key in keys if field.kind.name == "email" else ():
        address = key.partition(":")[2]
        people = tables.run(PEOPLE_OF_BLOCK, role_block(address)) if is_of_a_role(address) else []
        if len(people) == 1:
            found[key] = people[0][0]
    return found


def after(tables: Tables, person: str) -> Iterator[Person]:
    return people(tables, [id for (id,) in tables.run(AFTER, person, BATCH_SIZE)])


def without_records(tables: Tables, limit: int) -> Iterator[Person]:
    return people(tables, [id for (id,) in tables.run(WITHOUT_RECORDS, limit)])


def count(tables: Tables) -> int:
    return int(tables.run(COUNT)[0][0])
