"""Learning records: statements and CSV files about the same users, each stored once, however often they arrive.

Users are `People`. Statements are rows of a warehouse, each with a digest of everything that makes two of them equal.
A message stores its users first, then merges all of its statements. It may be interrupted anywhere: both steps are
idempotent, so a message that was not acknowledged is simply delivered again.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from examples.learning import tables
from examples.learning.lenient import check_leniently
from examples.learning.tables import STATEMENTS, USER_KEYS, USERS
from examples.learning.users import UserTables, teams_of, user_id
from examples.learning.xapi import (
    Invalid,
    User,
    as_returned,
    check,
    digest,
    identifier,
    instant,
    microseconds,
    related_agents,
    users_of,
)
from examples.learning.xapi.shape import VOIDED
from onceward.errors import StoreError
from onceward.imports import Summary, import_file
from onceward.people import People, Person, SourceRecord
from onceward.warehouse import ComparesRows, Lookup, Merged

MERGE_CHARACTERS = 4 * 1024 * 1024  # limit per merge, because statements differ in size
DEFAULT_VERSION = "2.0.0"  # for statements from a queue, which have no version header
UUID_TEXT = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
logger = logging.getLogger("examples.learning")


class IncomingStatement(Struct, frozen=True):
    """A valid statement, and the values by which it is compared."""

    id: str
    content: dict[str, Any]
    digest: str
    given_at: int | None
    user: User | None


def parse_statement(
    content: Any,
    *,
    id: str | None = None,
    version: str = DEFAULT_VERSION,
    authority: Any = None,
    lenient: bool = False,
) -> IncomingStatement:
    """Validate a statement or raise `Invalid`. `id` is used if it has none; `authority` is its sender.

    With `lenient`, any text is accepted as the id, and parts may be missing.
    """
    lenient_digest = check_leniently(content, version) if lenient else ""
    if not lenient:
        check(content, version)
    own = str(content.get("id") or id)
    own = own.lower() if UUID_TEXT.fullmatch(own) else own
    given = instant(content["timestamp"]) if "timestamp" in content else None
    kept = {"version": "1.0.0" if version.startswith("1.") else version, **as_returned(content), "id": own}
    if authority is not None:
        kept["authority"] = authority
    milliseconds = None if given is None else microseconds(given) // 1_000
    try:
        content_digest = lenient_digest or digest(content)
        return IncomingStatement(own, kept, content_digest, milliseconds, identifier(content["actor"]))
    except RecursionError as error:  # JSON may be nested deeper than Python's recursion limit
        raise Invalid("its extensions are nested too deeply") from error


class Learning:
    """Stores statements, and imports and publishes users."""

    def __init__(
        self, people: People, house: ComparesRows, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.people = people
        self.house = house
        self._now = clock
        self._tables = UserTables(people, house)
        self.users: Lookup[str, Person] = Lookup(self._find_users, on_failure="continue")
        self.known: Lookup[str, tuple[Any, ...]] = Lookup(self._find_stored, on_failure="continue")
        """This early check only saves work. If it fails, processing continues, because the merge still protects."""

        for table in (STATEMENTS, USERS, USER_KEYS):
            house.prepare(table)

    # ── statements ──

    def store(self, statements: Sequence[IncomingStatement], *, whole: bool = False) -> Merged:
        """Store statements and return a verdict for each, in order. If this raises, all of them are delivered again.

        The users of a statement whose id is already stored are not recorded: such a statement must change nothing.
        Users are copied to the warehouse before their statements, so a stored statement always has its user there.
        """
        known = self.known.many(one.id for one in statements)
        fresh = [one for one in statements if known.get(one.id) != (one.digest, one.given_at)]
        if not fresh:
            return _logged(statements, Merged(["same" for _ in statements]))
        refused = whole and any(contradicts(one, known[one.id]) for one in fresh if one.id in known)
        try:
            users = {} if refused else self._add_users([one for one in fresh if one.id not in known])
            rows = self._rows(fresh, users)
            parts = [rows] if whole else split_rows(rows)
            merged = [self.house.merge(STATEMENTS, part, whole=whole) for part in parts]
        except StoreError:
            logger.exception("%d statements were not merged and must be delivered again", len(fresh))
            raise
        verdicts = chain.from_iterable(part.verdicts for part in merged)
        again = {id(one) for one in statements} - {id(one) for one in fresh}
        return _logged(statements, Merged(tuple("same" if id(one) in again else next(verdicts) for one in statements)))

    def _find_stored(self, ids: Sequence[str]) -> dict[str, tuple[Any, ...]]:
        return self.house.found(STATEMENTS, ids, ("digest", "given_at"))

    def _add_users(self, statements: Sequence[IncomingStatement]) -> dict[str, Person]:
        """Return the users by their keys. Add users that are unknown, or not known by this name, one record each."""
        mentioned: dict[str, User] = {}
        for user in (user for one in statements for user in users_of(one.content["actor"])):
            if user.name or user.key not in mentioned:
                mentioned[user.key] = user
        found = self.users.many(mentioned)
        new = {key: user for key, user in mentioned.items() if not is_recorded(found.get(key), user)}
        if new:
            self.people.add_many([SourceRecord("xapi", user.fields, id=record_id(user)) for user in new.values()])
            self.users.forget(*new)
            found |= self.users.many(new)
        self._tables.publish(found, lambda: self._find_users(list(mentioned)))
        return found

    def _rows(self, statements: Sequence[IncomingStatement], users: Mapping[str, Person]) -> Iterator[dict[str, Any]]:
        now = self._now()
        stored = now.isoformat()
        for one in statements:
            content = {"timestamp": stored, **one.content, "stored": stored}
            person = None if one.user is None else users.get(one.user.key)
            verb, target = content.get("verb", {}).get("id"), content.get("object", {})
            yield {
                "statement_id": one.id,
                "digest": one.digest,
                "given_at": one.given_at,
                "actor": None if one.user is None else one.user.key,
                "user_id": user_id(person) or (one.user and one.user.key),
                "verb": verb,
                "object": target.get("id"),
                "agents": related_agents(content["actor"], target),
                "registration": content.get("context", {}).get("registration", "").lower() or None,
                "voids": target["id"].lower() if verb == VOIDED else None,
                "timestamp": instant(content["timestamp"]),
                "stored": now,
                "stored_us": microseconds(now),
                "teams": teams_of(person),
                "statement": msgspec.json.encode(content).decode(),
            }

    def get(self, id: str, *, voided: bool = False) -> dict[str, Any] | None:
        """Return the statement with this id: a voided one only with `voided=True`, which returns no other."""
        found = self.house.query(tables.ONE, (id.lower() if UUID_TEXT.fullmatch(id) else id, voided))
        return msgspec.json.decode(found[0][0]) if found else None

    # ── users ──

    def _find_users(self, keys: Sequence[str]) -> dict[str, Person]:
        """Find users with one query per kind of identifier."""
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
        """Copy all users to the warehouse and return how many rows changed. A known `load_id` changes nothing."""
        return self._tables.publish_all(load_id)


def split_rows(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Split the rows into lists that a merge can process with little memory, whatever their size."""
    part: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        part.append(row)
        size += len(row["statement"])
        if size >= MERGE_CHARACTERS:
            yield part
            part, size = [], 0
    if part:
        yield part


def contradicts(one: IncomingStatement, stored: tuple[Any, ...]) -> bool:
    """Return whether a statement differs from the stored one. A missing timestamp matches any, as in the table."""
    digest, given_at = stored
    return one.digest != digest or (None not in (one.given_at, given_at) and one.given_at != given_at)


def _logged(statements: Sequence[IncomingStatement], merged: Merged) -> Merged:
    for one, verdict in zip(statements, merged.verdicts, strict=True):
        if verdict == "same":
            logger.info("Statement %s already exists, skipping duplicate", one.id)
    return merged


def record_id(user: User) -> str:
    """Return the id of what a statement says about a user: another statement that says less does not replace it."""
    said = hashlib.sha256(msgspec.json.encode(user.fields, order="sorted")).hexdigest()
    return f"{user.key}#{said[:16]}"


def is_recorded(person: Person | None, user: User) -> bool:
    """Return whether an earlier statement already recorded all of this, so that nothing needs to be written."""
    recorded = person.of("xapi") if person is not None else []
    return any(user.fields.items() <= part.items() for part in recorded)
