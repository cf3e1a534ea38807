"""Learning records: statements and CSV files about the same users, each stored once, however often they arrive.

Users are `People`; statements are rows of a warehouse, each with a digest of all that makes two statements equal. What
a message asks for is done in an order that may be cut anywhere: users first, then one merge of all statements. Neither
does anything twice, so a message that was not acknowledged is simply delivered again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from examples.learning import tables
from examples.learning.tables import STATEMENTS, USER_KEYS, USERS
from examples.learning.xapi import (
    Invalid,
    User,
    as_returned,
    check,
    concerned,
    digest,
    identifier,
    instant,
    microseconds,
    users_of,
)
from examples.learning.xapi.shape import VOIDED
from onceward.imports import Summary, import_file
from onceward.people import People, Person, SourceRecord
from onceward.warehouse import ComparesRows, Lookup, MergeResult

AT_ONCE = 5_000
TOGETHER = 4 * 1024 * 1024  # characters of statements in one merge: few large ones are as many as many small ones
UNSAID = "2.0.0"  # the version of a statement that came without one, over a queue


class Incoming(Struct, frozen=True):
    """A valid statement, and what is compared of it."""

    id: str
    told: dict[str, Any]
    digest: str
    given_at: int | None
    user: User | None


def incoming(told: Any, *, id: str | None = None, version: str = UNSAID, authority: Any = None) -> Incoming:
    """Raises `Invalid`. `id` is for a statement that has none; `authority` is who has sent it."""
    check(told, version)
    own = str(told.get("id") or id).lower()
    given = instant(told["timestamp"]) if "timestamp" in told else None
    kept = {"version": "1.0.0" if version.startswith("1.") else version, **as_returned(told), "id": own}
    if authority is not None:
        kept["authority"] = authority
    milliseconds = None if given is None else microseconds(given) // 1_000
    try:
        return Incoming(own, kept, digest(told), milliseconds, identifier(told["actor"]))
    except RecursionError as error:  # JSON may be nested deeper than what walks through it
        raise Invalid("its extensions are nested too deeply") from error


class Learning:
    """What the seed's processor, user service and CSV import do together."""

    def __init__(
        self, people: People, house: ComparesRows, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.people = people
        self.house = house
        self._now = clock
        self.users: Lookup[str, Person] = Lookup(self._find, on_failure="go_on")
        self.known: Lookup[str, tuple[Any, ...]] = Lookup(self._stored, on_failure="go_on")
        """The early check only saves work. If it fails, the merge still protects: so we go on."""

        for table in (STATEMENTS, USERS, USER_KEYS):
            house.prepare(table)

    # ── statements ──

    def store(self, statements: Sequence[Incoming], *, whole: bool = False) -> MergeResult:
        """If this raises, nothing is acknowledged, and all of it is delivered again. A verdict each, in their order.

        Nothing is learnt of the users of a statement whose id is known: whatever it says, it is to change nothing.
        """
        known = self.known.many(one.id for one in statements)
        fresh = [one for one in statements if known.get(one.id) != (one.digest, one.given_at)]
        if not fresh:
            return MergeResult(["same" for _ in statements])
        refused = whole and any(contradicts(one, known[one.id]) for one in fresh if one.id in known)
        users = {} if refused else self._learn_of([one for one in fresh if one.id not in known])
        rows = self._rows(fresh, users)
        parts = [rows] if whole else parted(rows)
        merged = [self.house.merge(STATEMENTS, part, whole=whole) for part in parts]
        verdicts = chain.from_iterable(part.verdicts for part in merged)
        again = {id(one) for one in statements} - {id(one) for one in fresh}
        return MergeResult(tuple("same" if id(one) in again else next(verdicts) for one in statements))

    def _stored(self, ids: Sequence[str]) -> dict[str, tuple[Any, ...]]:
        return self.house.found(STATEMENTS, ids, ("digest", "given_at"))

    def _learn_of(self, statements: Sequence[Incoming]) -> dict[str, Person]:
        """The users by their keys. Those whom nobody knows yet, or not by this name, are taken in: a record a user."""
        told: dict[str, User] = {}
        for user in (user for one in statements for user in users_of(one.told["actor"])):
            if user.name or user.key not in told:
                told[user.key] = user
        found = self.users.many(told)
        new = {key: user for key, user in told.items() if not is_told(found.get(key), user)}
        if new:
            self.people.add_many([SourceRecord("xapi", user.fields, id=key) for key, user in new.items()])
            self.users.forget(*new)
            found |= self.users.many(new)
        return found

    def _rows(self, statements: Sequence[Incoming], users: Mapping[str, Person]) -> Iterator[dict[str, Any]]:
        now = self._now()
        stored = now.isoformat()
        for one in statements:
            told = {"timestamp": stored, **one.told, "stored": stored}
            person = None if one.user is None else users.get(one.user.key)
            verb, target = told["verb"]["id"], told["object"]
            yield {
                "statement_id": one.id,
                "digest": one.digest,
                "given_at": one.given_at,
                "actor": None if one.user is None else one.user.key,
                "user_id": user_id(person) or (one.user and one.user.key),
                "verb": verb,
                "object": target.get("id"),
                "agents": concerned(told["actor"], target),
                "registration": told.get("context", {}).get("registration", "").lower() or None,
                "voids": target["id"].lower() if verb == VOIDED else None,
                "at": instant(told["timestamp"]),
                "stored": now,
                "stored_us": microseconds(now),
                "teams": teams_of(person),
                "statement": msgspec.json.encode(told).decode(),
            }

    def get(self, id: str, *, voided: bool = False) -> dict[str, Any] | None:
        """The statement of this id; of a voided one only if voided ones are asked for, and then only of such."""
        found = self.house.query(tables.ONE, (id.lower(), voided))
        return msgspec.json.decode(found[0][0]) if found else None

    # ── users ──

    def _find(self, keys: Sequence[str]) -> dict[str, Person]:
        """One question for each kind of identifier."""
        found: dict[str, Person] = {}
        for field in tables.IDENTIFIERS:
            values = [key.partition(":")[2] for key in keys if key.startswith(f"{field}:")]
            if values:
                some = self.people.find_many(**{field: values})
                found |= {f"{field}:{value}": person for value, person in some.items()}
        return found

    def import_users(self, file: Path, **choices: Any) -> Summary:
        summary = import_file(file, self.people, **choices)
        self.users.forget()
        return summary

    def publish_users(self, load_id: str) -> int:
        """All users as rows of the warehouse, for joins; how many rows changed. Under a known `load_id`: nothing."""
        everybody = iter(self.people)
        changed = number = 0
        while some := list(islice(everybody, AT_ONCE)):
            number += 1
            keys = [{"key": key, "user_id": user_id(person)} for person in some for key in person.keys]
            for table, rows in ((USERS, [as_row(person) for person in some]), (USER_KEYS, keys)):
                loaded = self.house.load(f"{load_id}/{table.name}/{number}", table, rows, fingerprint="none")
                changed += loaded.inserted + loaded.updated
        if merged := dict(self.house.query(tables.MERGED)):
            gone = [{"user_id": old, "merged_into": now} for old, now in sorted(merged.items())]
            changed += self.house.load(f"{load_id}/merged", USERS, gone, fingerprint="none").updated
        return changed


def parted(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """In lists of as many as a merge can take without much memory, however large each of them is."""
    part: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        part.append(row)
        size += len(row["statement"])
        if size >= TOGETHER:
            yield part
            part, size = [], 0
    if part:
        yield part


def contradicts(one: Incoming, stored: tuple[Any, ...]) -> bool:
    """As the table compares: a timestamp that was not given agrees with any."""
    digest, given_at = stored
    return one.digest != digest or (None not in (one.given_at, given_at) and one.given_at != given_at)


def is_told(person: Person | None, user: User) -> bool:
    """Whether a statement has said all of this before: then nothing has to be written."""
    said = person.of("xapi") if person is not None else []
    return any(user.fields.items() <= part.items() for part in said)


def user_id(person: Person | None) -> str | None:
    """The e-mail in its normal form, from wherever it is known; else another key of theirs."""
    if person is None:
        return None
    return person.fields.get("email") or min(person.keys, default=person.id)


def teams_of(person: Person | None) -> list[str] | None:
    told = [part.get("Team") for part in (person.of("csv") if person is not None else [])]
    return sorted({team for team in told if team}) or None


def as_row(person: Person) -> dict[str, Any]:
    return {
        "user_id": user_id(person),
        "email": person.fields.get("email"),
        "name": person.fields.get("name"),
        "sources": list(person.sources),
        "csv_data": person.of("csv"),
        "first_seen": person.first_seen,
        "last_seen": person.last_seen,
        "merged_into": None,
    }
