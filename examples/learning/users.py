"""Users in the warehouse: a row for each user and for each of their keys, copied from `People` as they change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final
from uuid import uuid4

import msgspec

from examples.learning import tables
from examples.learning.tables import USER_KEYS, USERS
from onceward.people import People, Person
from onceward.warehouse import ComparesRows

USERS_PER_LOAD: Final = 5_000
MAX_REMEMBERED: Final = 50_000
"""Users whose published row is remembered, so that an unchanged user is not written again."""

Users = Mapping[str, Person]


class UserTables:
    """The tables `users` and `user_keys`. A row replaces the earlier one, so copying a user again is harmless."""

    def __init__(self, people: People, house: ComparesRows) -> None:
        self._people = people
        self._house = house
        self._published: dict[str, bytes] = {}

    def publish(self, users: Users, read_again: Callable[[], Users]) -> None:
        """Copy these users, except those whose row is known to be up to date.

        Another process may copy an older version of a user at the same time. So the users are read again afterwards,
        and copied again if they have changed: the last writer always leaves the latest version.
        """
        while changed := self._changed(users.values()):
            self._load(f"users as they arrive/{uuid4()}", changed)
            self._mark_merged(changed)
            for person in changed:
                self._published[person.id] = fingerprint(person)
            users = read_again()

    def publish_all(self, load_id: str) -> int:
        """Copy all users and return how many rows changed. A known `load_id` changes nothing."""
        users = iter(self._people)
        changed = number = 0
        while some := list(islice(users, USERS_PER_LOAD)):
            number += 1
            changed += self._load(f"{load_id}/{number}", some)
        if merged := dict(self._house.query(tables.MERGED)):
            gone = [{"user_id": old, "merged_into": now} for old, now in sorted(merged.items())]
            changed += self._house.load(f"{load_id}/merged", USERS, gone, fingerprint="none").updated
        return changed

    def _changed(self, users: Iterable[Person]) -> list[Person]:
        if len(self._published) > MAX_REMEMBERED:
            self._published.clear()
        different = {one.id: one for one in users if self._published.get(one.id) != fingerprint(one)}
        return list(different.values())

    def _load(self, load_id: str, users: Sequence[Person]) -> int:
        keys = [{"key": key, "user_id": user_id(person)} for person in users for key in person.keys]
        changed = 0
        for table, rows in ((USERS, [as_row(person) for person in users]), (USER_KEYS, keys)):
            loaded = self._house.load(f"{load_id}/{table.name}", table, rows, fingerprint="none")
            changed += loaded.inserted + loaded.updated
        return changed

    def _mark_merged(self, users: Sequence[Person]) -> None:
        """Mark the rows under which these users were published before they turned out to be one."""
        now = {old: user_id(one) for one in users for old in former_ids(one) if old != user_id(one)}
        there = self._house.found(USERS, list(now), ("merged_into",)) if now else {}
        gone = [{"user_id": old, "merged_into": now[old]} for old, (into,) in sorted(there.items()) if into != now[old]]
        if gone:
            self._house.load(f"users that were merged/{uuid4()}", USERS, gone, fingerprint="none")


def fingerprint(person: Person) -> bytes:
    """Return what a user's rows depend on."""
    return msgspec.json.encode([as_row(person), sorted(person.keys)], order="deterministic")


def former_ids(person: Person) -> set[str]:
    """Return every id that the user can have been published under: any key, or an address without its prefix."""
    return {id for key in person.keys for id in (key, key.removeprefix("email:"))}


def user_id(person: Person | None) -> str | None:
    """Return the normalised email from any source, or another key of the user."""
    if person is None:
        return None
    return person.fields.get("email") or min(person.keys, default=person.id)


def csv_rows(person: Person | None) -> list[dict[str, Any]]:
    """Return the rows of the files about a user. The same row in a copy of a file counts once."""
    rows: list[dict[str, Any]] = []
    for row in person.of("csv") if person is not None else ():
        if row not in rows:
            rows.append(dict(row))
    return rows


def teams_of(person: Person | None) -> list[str] | None:
    return sorted({row["Team"] for row in csv_rows(person) if row.get("Team")}) or None


def as_row(person: Person) -> dict[str, Any]:
    return {
        "user_id": user_id(person),
        "email": person.fields.get("email"),
        "name": person.fields.get("name"),
        "sources": list(person.sources),
        "csv_data": csv_rows(person),
        "first_seen": person.first_seen,
        "last_seen": person.last_seen,
        "merged_into": None,
    }
