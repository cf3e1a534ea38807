"""Split a person: undo a wrong merge, and remember that the results are different people.

Contributions are stored unchanged, so each of the resulting people is merged again from its own contributions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from msgspec import Struct

from onceward.errors import ConfigurationError

from . import queries
from . import tables as sql
from .fields import Preset
from .ingest import refresh
from .match_types import SPLIT
from .person import Contribution
from .preparation import InvalidRecord, prepare_stored
from .tables import Tables


class Group(Struct):
    """Contributions that stay together, and the strong keys that they have."""

    numbers: list[int]
    keys: set[str]


def split(tables: Tables, preset: Preset, wanted: str, leaving: frozenset[int], audit: tuple[str, int]) -> list[str]:
    """Split a person and return the resulting ids. `audit` has the author and the time.

    The first result keeps the id. A person who had been merged into it gets the former id back.
    """
    tables.lock_all()
    person = queries.existing(tables, wanted, "`onceward review` lists the pairs")
    single = [Group([one.number], _keys(preset, one)) for one in person.contributions]
    groups = _groups_by_numbers(person.id, single, leaving) if leaving else groups_by_keys(single, person.id)
    if len(groups) == 1:
        raise ConfigurationError(
            f"all records of {person.id} share strong keys, so the keys do not show where to split",
            hint=f"name the records to move out: onceward review {person.id} --split --record NUMBER",
        )
    who, now = audit
    ids = [person.id, *(_person_id_for(tables, group, now) for group in groups[1:])]
    tables.run(sql.SET_UNIT, person.id, person.id)  # each result is one unit
    tables.run(sql.SET_UNIT_OF_KEYS, person.id, person.id)
    for new, group in zip(ids[1:], groups[1:], strict=True):
        tables.run_many(sql.SPLIT_CONTRIBUTION, [(new, new, SPLIT, number) for number in sorted(group.numbers)])
        tables.run_many(sql.SPLIT_KEY, [(new, new, key, person.id) for key in sorted(group.keys - groups[0].keys)])
    refresh(tables, preset, sorted(ids), now)
    pairs = combinations(sorted(ids), 2)
    tables.run_many(sql.SET_ANSWER, [(one, other, "different", now, now, who) for one, other in pairs])
    return ids


def groups_by_keys(single: Iterable[Group], person: str) -> list[Group]:
    """Combine groups that share a key, directly or transitively.

    The group that created the person comes first, then by age.
    """
    groups: list[Group] = []
    for one in single:
        joined = [group for group in groups if group.keys & one.keys]
        groups = [group for group in groups if group not in joined]
        numbers = [number for group in (*joined, one) for number in group.numbers]
        groups.append(Group(sorted(numbers), one.keys.union(*(group.keys for group in joined))))
    return sorted(groups, key=lambda group: (person not in map(own_id, group.numbers), group.numbers))


def own_id(number: int) -> str:
    """Return the id of the person that a new record with this number creates."""
    return f"p{number}"


def _groups_by_numbers(person: str, single: Sequence[Group], leaving: frozenset[int]) -> list[Group]:
    known = {number for group in single for number in group.numbers}
    if leaving - known or leaving == known:
        numbers = ", ".join(map(str, sorted(known)))
        raise ConfigurationError(
            f"{person} has the records {numbers}: name some of these, but not all",
            hint=f"onceward review {person} lists them",
        )
    found = []
    for numbers_of_group in (known - leaving, leaving):
        members = [group for group in single if numbers_of_group.issuperset(group.numbers)]
        found.append(Group(sorted(numbers_of_group), set().union(*(group.keys for group in members))))
    return found


def _keys(preset: Preset, one: Contribution) -> set[str]:
    try:
        return set(prepare_stored(preset, one.source, one.record, one.fields).keys)
    except InvalidRecord:  # it has no usable key under today's rules
        return set()


def _person_id_for(tables: Tables, group: Group, now: int) -> str:
    """Return the id that these records had before they were merged, or a new one."""
    names = list(map(own_id, group.numbers))
    redirects = {row[0]: row[-1] for row in tables.run(sql.PEOPLE, names)}
    for name in names:
        if redirects.get(name) is not None:
            tables.run(sql.SET_REDIRECT, None, now, name)
            return name
    own = names[0] if names[0] not in redirects else own_id(tables.allocate_numbers(1)[0])  # that id is already used
    tables.run_many(sql.ADD_PERSON, [(own, "{}", "[]", 0, 0, now, now)])
    return own
