"""A person taken apart: a merge that was wrong is undone, and the answer kept.

The contributions are kept as they came, so each of those who result is merged anew from its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from msgspec import Struct

from onceward.errors import ConfigurationError

from . import reading
from . import tables as sql
from .decide import SPLIT
from .fields import Preset
from .intake import refresh
from .person import Contribution
from .prepare import Invalid, prepared, sketched
from .source import SourceRecord
from .tables import Tables


class Group(Struct):
    """Contributions that stay together, and the strong keys that they have."""

    numbers: list[int]
    keys: set[str]


def split(tables: Tables, preset: Preset, wanted: str, leaving: frozenset[int], signed: tuple[str, int]) -> list[str]:
    """Who results: the first keeps the id, and whoever was merged into it gets the own one back."""
    tables.claim_all()
    person = next(reading.people(tables, [wanted]), None)
    if person is None:
        raise ConfigurationError(f"there is no person {wanted!r}", hint="`onceward review` lists the pairs")
    said = [Group([one.number], _keys(preset, one)) for one in person.contributions]
    groups = _chosen(person.id, said, leaving) if leaving else by_keys(said, person.id)
    if len(groups) == 1:
        raise ConfigurationError(
            f"the records of {person.id} share their keys, so these do not tell where to split it",
            hint=f"name the records that leave: onceward review {person.id} --split --record NUMBER",
        )
    who, now = signed
    ids = [person.id, *(_named(tables, person.id, group, now) for group in groups[1:])]
    for new, group in zip(ids[1:], groups[1:], strict=True):
        tables.many(sql.SPLIT_CONTRIBUTION, [(new, SPLIT, number) for number in sorted(group.numbers)])
        tables.many(sql.SPLIT_KEY, [(new, key, person.id) for key in sorted(group.keys - groups[0].keys)])
    refresh(tables, preset, sorted(ids), now)
    pairs = combinations(sorted(ids), 2)
    tables.many(sql.ANSWER, [(one, other, "different", now, now, who) for one, other in pairs])
    return ids


def by_keys(said: Iterable[Group], person: str) -> list[Group]:
    """Those who share a key are together, also by way of a third. First the one that made the person, then by age."""
    groups: list[Group] = []
    for one in said:
        joined = [group for group in groups if group.keys & one.keys]
        groups = [group for group in groups if group not in joined]
        numbers = [number for group in (*joined, one) for number in group.numbers]
        groups.append(Group(sorted(numbers), one.keys.union(*(group.keys for group in joined))))
    return sorted(groups, key=lambda group: (person not in map(own_id, group.numbers), group.numbers))


def own_id(number: int) -> str:
    """Of the person that a new record makes."""
    return f"p{number}"


def _chosen(person: str, said: Sequence[Group], leaving: frozenset[int]) -> list[Group]:
    known = {number for group in said for number in group.numbers}
    if leaving - known or leaving == known:
        numbers = ", ".join(map(str, sorted(known)))
        raise ConfigurationError(
            f"{person} has the records {numbers}: some of these may leave, and not all",
            hint=f"onceward review {person} lists them",
        )
    found = []
    for inside in (known - leaving, leaving):
        those = [group for group in said if inside.issuperset(group.numbers)]
        found.append(Group(sorted(inside), set().union(*(group.keys for group in those))))
    return found


def _keys(preset: Preset, one: Contribution) -> set[str]:
    try:
        return set(prepared(preset, sketched(SourceRecord(one.source, one.fields, one.record)), one.fields).keys)
    except Invalid:  # by the rules of today it says nothing
        return set()


def _named(tables: Tables, person: str, group: Group, now: int) -> str:
    """The id that these records had made before they were merged, if they had; else a new one."""
    names = list(map(own_id, group.numbers))
    led = {row[0]: row[-1] for row in tables.rows(sql.PEOPLE, names)}
    for name in names:
        if led.get(name) == person:
            tables.rows(sql.REVIVE, now, name)
            return name
    own = names[0] if names[0] not in led else own_id(tables.numbers(1)[0])  # else that is somebody by now
    tables.many(sql.ADD_PERSON, [(own, "{}", "[]", 0, 0, now, now)])
    return own
