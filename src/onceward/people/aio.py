"""`AsyncPeople`: `People` for asyncio. The work runs in a thread, so that it does not block the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Self

from .people import People
from .person import Person
from .review import Review, Seen
from .source import Decision, SourceRecord


class AsyncPeople:
    """`People` with awaitable methods. Batches run one after the other, so add many records per call.

    `url` and `settings` are those of `People`. `who` is the operator, for the audit trail; by default the user of the
    process. Methods raise what those of `People` raise.
    """

    def __init__(self, url: str | None = None, **settings: Any) -> None:
        self.people = People(url, **settings)

    async def add(self, record: SourceRecord) -> Decision:
        """Add a `record` to the person it belongs to, or to a new person. Return the decision.

        Adding the same record again changes nothing.
        """
        return await asyncio.to_thread(self.people.add, record)

    async def add_many(self, records: Iterable[SourceRecord]) -> list[Decision]:
        """Add many `records` in one transaction. Return one decision per record, in input order."""
        return await asyncio.to_thread(self.people.add_many, records)

    async def get(self, person: str) -> Person | None:
        """Return the `person` with this id, or None. A merged id returns the person it was merged into."""
        return await asyncio.to_thread(self.people.get, person)

    async def find(self, **key: Any) -> Person | None:
        """Return the person with this strong `key`, or None: `await people.find(email="Anna@Example.com")`."""
        return await asyncio.to_thread(self.people.find, **key)

    async def find_many(self, **keys: Any) -> dict[Any, Person]:
        """Return the people with these strong `keys`, in one query: `await people.find_many(email=addresses)`."""
        return await asyncio.to_thread(self.people.find_many, **keys)

    async def reviews(self, limit: int = 100) -> list[Review]:
        """Return up to `limit` pairs that may be one person, with the evidence, the likeliest first."""
        return await asyncio.to_thread(self.people.reviews, limit)

    async def accept(self, one: str, other: str, *, who: str | None = None, seen: Seen = None) -> Person:
        """Merge `one` and `other`, and return the person. The newer id redirects to the older. `seen`: see `reject`."""
        return await asyncio.to_thread(self.people.accept, one, other, who=who, seen=seen)

    async def reject(self, one: str, other: str, *, who: str | None = None, seen: Seen = None) -> None:
        """Record that `one` and `other` are two different people.

        They are never asked about again, and never merged automatically. `seen` has the `updated_at` of both. If they
        have changed since, or the pair has an answer, nothing is changed.
        """
        await asyncio.to_thread(self.people.reject, one, other, who=who, seen=seen)

    async def split(self, person: str, numbers: Iterable[int] = (), *, who: str | None = None) -> list[Person]:
        """Split a `person` into groups of records that share no strong key. Return the resulting, distinct people.

        With the `numbers` of contributions, move exactly these into one new person. The first of the resulting people
        keeps the id.
        """
        return await asyncio.to_thread(self.people.split, person, numbers, who=who)

    async def without_records(self, limit: int = 100) -> list[Person]:
        """Return up to `limit` people whose records all belong to others now. They keep the last known fields."""
        return await asyncio.to_thread(self.people.without_records, limit)

    async def close(self) -> None:
        """Close the connections to the database."""
        await asyncio.to_thread(self.people.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
