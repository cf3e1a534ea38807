"""`People`: one record per person, however often and from wherever it arrives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

from onceward.errors import ConfigurationError
from onceward.ports import Clock
from onceward.stores.clock import WallClock

from . import reading
from . import tables as sql
from .databases import open_database
from .fields import ACCEPTED, PERSON, REVIEWED, Field, preset
from .intake import take_in
from .likeness import Likeness
from .person import Person
from .policy import NEWEST, MergePolicy
from .source import Decision, SourceRecord
from .tables import Row, Tables

DEFAULT = "sqlite:///people.db"


class Within:
    """An open transaction on the people's database: what is done here is committed together, or not at all."""

    def __init__(self, people: People, tables: Tables) -> None:
        self._people = people
        self._tables = tables

    def add_many(self, records: Iterable[SourceRecord]) -> list[Decision]:
        """As `People.add_many`, in this transaction."""
        return self._people.take_in(self._tables, records)

    def execute(self, statement: str, *values: Any) -> list[Row]:
        """A statement of your own, with `?` for each value on every database; its rows, if it has any."""
        return self._tables.execute(statement, values)


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
        review: float = REVIEWED,
        clock: Clock | None = None,
    ) -> None:
        self.preset = preset(fields, policies=policies, default_policy=default_policy, accept=accept, review=review)
        self._likeness = Likeness(self.preset)
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
        with self._database.transaction() as tables:
            return self.take_in(tables, records)

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
                yield Within(self, tables)
                if trial:
                    raise RolledBack  # noqa: TRY301 (the way to roll back)
        except RolledBack:
            pass

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
        else:
            self._is_checked = True  # not before it is committed

    # ── looking ─────────────────────────────────────────────────────────────────────────────────────────────────

    def get(self, person: str) -> Person | None:
        """The person of this id; an id of somebody who turned out to be another one leads to that one."""
        with self._database.reading() as tables:
            return next(reading.people(tables, [person]), None)

    def find(self, **key: Any) -> Person | None:
        """The person with this strong key: `people.find(email="Anna@Example.com")`."""
        with self._database.reading() as tables:
            found = reading.by_key(tables, self.preset, key)
            return next(reading.people(tables, found), None)

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
