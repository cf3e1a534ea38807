"""`AsyncPeople`: the same for an event loop. What takes time happens in a thread; the loop stays free."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Self

from .people import People
from .person import Person
from .review import Review
from .source import Decision, SourceRecord


class AsyncPeople:
    """As `People`, awaited. Records are taken in one batch after the other: hand over many at once."""

    def __init__(self, url: str | None = None, **settings: Any) -> None:
        self.people = People(url, **settings)

    async def add(self, record: SourceRecord) -> Decision:
        """Whose record is this? It becomes part of that person, or of a new one. The same again changes nothing."""
        return await asyncio.to_thread(self.people.add, record)

    async def add_many(self, records: Iterable[SourceRecord]) -> list[Decision]:
        """Thousands in one transaction: a decision each, in input order. One that cannot be read stops no other."""
        return await asyncio.to_thread(self.people.add_many, records)

    async def get(self, person: str) -> Person | None:
        """The person of this id; an id of somebody who turned out to be another one leads to that one."""
        return await asyncio.to_thread(self.people.get, person)

    async def find(self, **key: Any) -> Person | None:
        """The person with this strong key: `await people.find(email="Anna@Example.com")`."""
        return await asyncio.to_thread(self.people.find, **key)

    async def find_many(self, **keys: Any) -> dict[Any, Person]:
        """Those with these strong keys, one question for all: `await people.find_many(email=addresses)`."""
        return await asyncio.to_thread(self.people.find_many, **keys)

    async def reviews(self, limit: int = 100) -> list[Review]:
        """Pairs that may be one person, the likeliest first, with the evidence."""
        return await asyncio.to_thread(self.people.reviews, limit)

    async def accept(self, one: str, other: str, *, who: str | None = None) -> Person:
        """These two are one person: merged, and the younger id leads to the older one from now on."""
        return await asyncio.to_thread(self.people.accept, one, other, who=who)

    async def reject(self, one: str, other: str, *, who: str | None = None) -> None:
        """These two are different people: they are not asked about again, and never merged by likeness or keys."""
        await asyncio.to_thread(self.people.reject, one, other, who=who)

    async def split(self, person: str, numbers: Iterable[int] = (), *, who: str | None = None) -> list[Person]:
        """This one is several: taken apart into those who share no strong key, and kept apart from now on."""
        return await asyncio.to_thread(self.people.split, person, numbers, who=who)

    async def without_records(self, limit: int = 100) -> list[Person]:
        """Those whose records are all of somebody else by now: they stay as they were last known."""
        return await asyncio.to_thread(self.people.without_records, limit)

    async def close(self) -> None:
        await asyncio.to_thread(self.people.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
