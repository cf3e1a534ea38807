"""Learning records: statements and CSV files about the same users, each stored once, however often they arrive.

Users are `People` in SQLite; statements are plain rows in a warehouse. What a message asks for is done in an order that
may be cut anywhere: people first, then the load. Neither does anything twice, so a message that was not acknowledged is
simply delivered again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from onceward import StoreError
from onceward.identity import People, Person, SourceRecord, normalise
from onceward.imports import Summary, import_file
from onceward.warehouse import Loaded, Lookup, Table, Warehouse

STATEMENTS = Table(
    name="statements",
    columns={
        "statement_id": "text",
        "user_id": "text",
        "verb": "text",
        "object": "text",
        "at": "time",
        "teams": "json",
    },
    key=("statement_id",),
)
USERS = Table(
    name="users",
    columns={
        "user_id": "text",
        "email": "text",
        "name": "text",
        "sources": "json",
        "csv_data": "json",
        "first_seen": "time",
        "last_seen": "time",
    },
    key=("user_id",),
    on_match="replace",
)
ENRICHED = """
SELECT s.statement_id, s.user_id, s.verb, s.object, u.csv_data
FROM statements AS s LEFT JOIN users AS u ON u.user_id = s.user_id ORDER BY s.statement_id
"""
"""CSV data enriches statements, also those that came before the file."""

AT_ONCE = 5_000
logger = logging.getLogger(__name__)
Statement = Mapping[str, Any]


class Learning:
    """What the seed's processor, user service and CSV import do together."""

    def __init__(self, people: People, house: Warehouse) -> None:
        self.people = people
        self.house = house
        self.users: Lookup[str, Person] = Lookup(self._find, on_failure="go_on")
        house.prepare(STATEMENTS)
        house.prepare(USERS)

    # ── statements ──

    def receive(self, load_id: str, statements: Sequence[Statement]) -> Loaded:
        """A batch of messages. If this raises, none is acknowledged, and all are delivered again."""
        known = self._known([statement["id"] for statement in statements])
        fresh = [statement for statement in statements if statement["id"] not in known]
        if not fresh:
            logger.info("%s: all statements are known", load_id)
            return Loaded(load_id, len(statements), len(statements), 0, 0, 0, replayed=True)
        self._learn_of(fresh)
        loaded = self.house.load(load_id, STATEMENTS, self._rows(fresh), fingerprint="none")
        return replace(loaded, rows=len(statements), duplicates=loaded.duplicates + len(statements) - len(fresh))

    def _known(self, ids: Sequence[str]) -> set[str]:
        """The early check only saves work: if it fails, the merge still protects."""
        try:
            return self.house.known(STATEMENTS, ids)
        except StoreError as error:
            logger.warning("the duplicate check failed, going on: %s", error)
            return set()

    def _learn_of(self, statements: Sequence[Statement]) -> None:
        """One record a user, however many statements they send."""
        actors = {user_of(statement): statement["actor"] for statement in statements}
        records = [
            SourceRecord("xapi", {"email": email, "name": actor.get("name")}, id=email)
            for email, actor in actors.items()
        ]
        self.people.add_many(records)
        self.users.forget(*actors)

    def _rows(self, statements: Sequence[Statement]) -> list[dict[str, Any]]:
        """One question for all users of the batch that the cache does not know."""
        users = self.users.many(map(user_of, statements))
        return [
            {
                "statement_id": statement["id"],
                "user_id": email,
                "verb": statement.get("verb"),
                "object": statement.get("object"),
                "at": statement.get("timestamp"),
                "teams": teams_of(users.get(email)),
            }
            for statement, email in ((statement, user_of(statement)) for statement in statements)
        ]

    def _find(self, emails: Sequence[str]) -> dict[str, Person]:
        return self.people.find_many(email=emails)

    # ── users ──

    def import_users(self, file: Path, **choices: Any) -> Summary:
        summary = import_file(file, self.people, **choices)
        self.users.forget()
        return summary

    def publish_users(self, load_id: str) -> int:
        """All users as rows of the warehouse, for joins; how many rows changed."""
        rows = filter(None, map(as_row, self.people))
        changed = 0
        for number in count(1):
            batch = list(islice(rows, AT_ONCE))
            if not batch:
                break
            loaded = self.house.load(f"{load_id}/{number}", USERS, batch, fingerprint="none")
            changed += loaded.inserted + loaded.updated
        return changed


def user_of(statement: Statement) -> str:
    """The user id: the e-mail in its normal form, from wherever it comes."""
    return normalise.email(statement["actor"]["mbox"])


def teams_of(person: Person | None) -> list[str] | None:
    told = [part.get("Team") for part in (person.of("csv") if person is not None else [])]
    return sorted({team for team in told if team}) or None


def as_row(person: Person) -> dict[str, Any] | None:
    email = person.fields.get("email")
    if email is None:
        return None
    return {
        "user_id": email,
        "email": email,
        "name": person.fields.get("name"),
        "sources": list(person.sources),
        "csv_data": person.of("csv"),
        "first_seen": person.first_seen,
        "last_seen": person.last_seen,
    }
