"""`People`: one record per person, however often and from wherever it arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, Self, TypeVar

from onceward.client.audit_identity import who as somebody
from onceward.errors import ConfigurationError, RetryTransaction
from onceward.protocol.ports import Clock
from onceward.stores.clock import WallClock

from . import reading, review, split
from . import tables as sql
from .databases import open_database
from .fields import ACCEPTED, PERSON, REVIEWED, Field, declaration, preset
from .intake import take_in
from .person import Person
from .policy import NEWEST, MergePolicy
from .reindex import reindex
from .review import Review
from .similarity import Similarity
from .source import Decision, SourceRecord
from .tables import Row, Tables

T = TypeVar("T")

DEFAULT: Final = "sqlite:///people.db"
ATTEMPTS: Final = 10
"""At a transaction in whose way others come: each time, one of those has gone on."""


class Within:
    """An open transaction on the people's database: what is done here is committed together, or not at all."""

    def __init__(self, people: People, tables: Tables, connection: Any) -> None:
        self._people = people
        self.tables = tables
        """For what keeps tables of its own beside them, on every database."""
        self.connection = connection
        """The driver's own, so that `claim.complete_in` and `once.within` can join this transaction."""

    def add_many(self, records: Iterable[SourceRecord]) -> list[Decision]:
        """As `People.add_many`, in this transaction."""
        return self._people.take_in(self.tables, records)

    def execute(self, statement: str, *values: Any) -> list[Row]:
        """A statement of your own, with `?` for each value on every database; its rows, if it has any."""
        return self.tables.execute(statement, values)


class RolledBack(Exception):
    """Ends a trial."""


class People:
    """Takes records of sources in, and tells whose they are. May be used by several threads and processes at once."""

    def __init__(
        self,
        url: str | None = None,
        *,
        fields: Mapping[str, Field] = PERSON,
        policies: Mapping[str, MergePolicy] | None = None,
        default_policy: MergePolicy = NEWEST,
        accept: float = ACCEPTED,
        ask: float = REVIEWED,
        likeness: bool = True,
        clock: Clock | None = None,
    ) -> None:
        self.preset = preset(
            fields, policies=policies, default_policy=default_policy, accept=accept, ask=ask, likeness=likeness
        )
        self._likeness = Similarity(self.preset)
        self._database = open_database(url or DEFAULT)
        self._clock = clock or WallClock()
        self._is_checked = False

    @property
    def url(self) -> str:
        """Without a password."""
        return self._database.name

    # ── taking in ───────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, record: SourceRecord) -> Decision:
        """Whose record is this? It becomes part of that person, or of a new one. The same again changes nothing."""
        return self.add_many([record])[0]

    def add_many(self, records: Iterable[SourceRecord]) -> list[Decision]:
        """Thousands in one transaction: a decision each, in input order. One that cannot be read stops no other."""
        batch = list(records)
        return self._repeated(lambda tables: self.take_in(tables, batch))

    def add_in(self, connection: Any, record: SourceRecord) -> Decision:
        """As `add`, in your own transaction on the same database."""
        return self.add_many_in(connection, [record])[0]

    def add_many_in(self, connection: Any, records: Iterable[SourceRecord]) -> list[Decision]:
        """As `add_many`, in your own transaction on the same database: nothing is committed here."""
        with self._database.joined(connection) as tables:
            return self.take_in(tables, records)

    @contextmanager
    def transaction(self, *, trial: bool = False) -> Iterator[Within]:
        """A transaction on the people's database, for what is to be committed together with records.

        Rolled back if the block raises. As a `trial` it is always rolled back: what would happen, without it happening.
        """
        try:
            with self._database.transaction() as tables:
                yield Within(self, tables, self._database.connection)
                if trial:
                    raise RolledBack  # noqa: TRY301 (the way to roll back)
        except RolledBack:
            pass

    @contextmanager
    def reading(self) -> Iterator[Within]:
        """For questions of your own: all that is read is of one moment, and no writer is waited for or held up."""
        with self._database.reading() as tables:
            yield Within(self, tables, self._database.connection)

    def take_in(self, tables: Tables, records: Iterable[SourceRecord]) -> list[Decision]:
        """For transactions that are open."""
        self._check(tables)
        return take_in(tables, self.preset, self._likeness, records, self._clock.now())

    def _check(self, tables: Tables) -> None:
        """An index that was made by other rules would find nobody, and make everybody anew."""
        if self._is_checked:
            return
        noted = tables.rows(sql.META, "preset")
        if noted and noted[0][0] != self.preset.digest:
            raise ConfigurationError(
                f"{self.url} was filled with other fields or by an older Onceward: its index does not fit these",
                hint="declare the fields as before, or call people.reindex()",
            )
        if not noted:
            tables.rows(sql.NOTE, "preset", self.preset.digest)
            tables.rows(sql.NOTE, "declared", declaration(self.preset))
        else:
            self._is_checked = True  # not before it is committed

    def reindex(self) -> int:
        """Make the index anew, by the fields as they are declared here; in one transaction. How many records it has."""
        count = self._repeated(lambda tables: reindex(tables, self.preset, self._clock.now()))
        self._is_checked = True
        return count

    def _repeated(self, work: Callable[[Tables], T]) -> T:
        """In a transaction of our own; again, if another one came in between."""
        for _ in range(ATTEMPTS - 1):
            with suppress(RetryTransaction), self._database.transaction() as tables:
                return work(tables)
        with self._database.transaction() as tables:
            return work(tables)

    # ── reviewing ───────────────────────────────────────────────────────────────────────────────────────────────

    def reviews(self, limit: int = 100) -> list[Review]:
        """Pairs that may be one person, the likeliest first, with the evidence."""
        with self._database.reading() as tables:
            return review.questions(tables, limit)

    def accept(self, one: str, other: str, *, who: str | None = None) -> Person:
        """These two are one person: merged, and the younger id leads to the older one from now on."""
        signed = who or somebody()
        survivor = self._repeated(
            lambda tables: review.same(tables, self.preset, (one, other), signed, self._clock.now())
        )
        found = self.get(survivor)
        assert found is not None  # noqa: S101 (people are never deleted)
        return found

    def reject(self, one: str, other: str, *, who: str | None = None) -> None:
        """These two are different people: they are not asked about again, and never merged by likeness or keys."""
        signed = who or somebody()
        self._repeated(lambda tables: review.different(tables, (one, other), signed, self._clock.now()))

    def split(self, person: str, numbers: Iterable[int] = (), *, who: str | None = None) -> list[Person]:
        """This one is several: taken apart into those who share no strong key, and kept apart from now on.

        With the `numbers` of contributions, just these leave, together. The first of those who result keeps the id.
        """
        signed, leaving = who or somebody(), frozenset(numbers)
        ids = self._repeated(
            lambda tables: split.split(tables, self.preset, person, leaving, (signed, self._clock.now()))
        )
        with self._database.reading() as tables:
            return list(reading.people(tables, ids))

    # ── looking ─────────────────────────────────────────────────────────────────────────────────────────────────

    def get(self, person: str) -> Person | None:
        """The person of this id; an id of somebody who turned out to be another one leads to that one."""
        with self._database.reading() as tables:
            return next(reading.people(tables, [person]), None)

    def find(self, **key: Any) -> Person | None:
        """The person with this strong key: `people.find(email="Anna@Example.com")`."""
        name, value = _one(key)
        return self.find_many(**{name: [value]}).get(value)

    def find_many(self, **keys: Iterable[Any]) -> dict[Any, Person]:
        """Those with these strong keys, one question for all: `people.find_many(email=addresses)`.

        By the key as it was given; a key that leads to nobody is missing.
        """
        name, values = _one(keys)
        if isinstance(values, str):
            raise ConfigurationError(f"find_many takes several of {name}", hint=f"find({name}=…) takes one")
        with self._database.reading() as tables:
            return reading.by_keys(tables, self.preset, name, values)

    def without_records(self, limit: int = 100) -> list[Person]:
        """Those whose records are all of somebody else by now: they stay as they were last known."""
        with self._database.reading() as tables:
            return list(reading.without_records(tables, limit))

    def __iter__(self) -> Iterator[Person]:
        """Everybody, in the order of ids, read in batches."""
        after = ""
        while True:
            with self._database.reading() as tables:
                some = list(reading.after(tables, after))
            if not some:
                return
            yield from some
            after = some[-1].id

    def __len__(self) -> int:
        with self._database.reading() as tables:
            return reading.count(tables)

    # ── opening and closing ─────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<People on {self.url}>"


def _one(key: Mapping[str, T]) -> tuple[str, T]:
    if len(key) != 1:
        raise ConfigurationError("one strong key finds a person", hint='such as email="anna@example.com"')
    return next(iter(key.items()))
