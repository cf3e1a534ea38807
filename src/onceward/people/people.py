"""`People`: one record per person, however often and from whichever source the data arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Self, TypeVar

import msgspec

from onceward.client.audit_identity import user_and_host
from onceward.errors import ConfigurationError, RetryTransaction
from onceward.protocol.ports import Clock
from onceward.stores.clock import WallClock

from . import linking, queries, review, search, split, training
from . import tables as sql
from .base_database import open_database
from .erase import erase
from .fields import ACCEPTED, PERSON, REVIEWED, Field, MergeRule, preset
from .ingest import ingest
from .model import DEFAULT_MODEL, Model
from .person import Person
from .policy import NEWEST, MergePolicy
from .reindex import reindex, relink, store_declaration
from .review import Review, Seen
from .search import RecordLink
from .similarity import Similarity
from .source import Decision, SourceRecord
from .tables import Row, Tables
from .trust import Trust

T = TypeVar("T")

DEFAULT: Final = "sqlite:///people.db"
ATTEMPTS: Final = 10
"""Attempts at a transaction that conflicts with others. Each conflict means that another transaction committed."""


class JoinedPeople:
    """An open transaction on the people's database. All its changes are committed together, or none of them."""

    def __init__(self, people: People, tables: Tables, connection: Any) -> None:
        self._people = people
        self.tables = tables
        """For code that stores its own tables in the same database, on every kind of database."""
        self.connection = connection
        """The driver's connection, so that `claim.complete_in` and `once.within` can join this transaction."""

    def add_many(self, records: Iterable[SourceRecord]) -> list[Decision]:
        """Add `records` in this transaction. Return the decisions, as `People.add_many` does."""
        return self._people.ingest(self.tables, records)

    def execute(self, statement: str, *values: Any) -> list[Row]:
        """Execute your own statement, with `?` for each value on every database, and return its rows."""
        return self.tables.execute(statement, values)


class _TrialRollback(Exception):
    """Raised to roll back a trial."""


class People:
    """Stores the records of sources and decides which person each belongs to. Safe for threads and processes.

    `url` is a SQLite or PostgreSQL database. `policies` choose between the values of several records, by field;
    `default_policy` is for fields without one. A record joins the person that is similar enough (`accept`, a confidence
    from 0 to 1). Between `ask` and `accept`, it becomes a new person and a question for `onceward review`.
    `similarity=False` compares strong keys only. `rules` are your own: fields that identify a person together. `trust`
    limits what a source may do, by its name. `clock` is for tests. In methods, `who` is the operator (default: the user
    of the process). Fields and keys that do not exist raise `ConfigurationError`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        fields: Mapping[str, Field] = PERSON,
        policies: Mapping[str, MergePolicy] | None = None,
        default_policy: MergePolicy = NEWEST,
        accept: float = ACCEPTED,
        ask: float = REVIEWED,
        similarity: bool = True,
        rules: Sequence[MergeRule] = (),
        trust: Mapping[str, Trust] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.preset = preset(
            fields,
            policies=policies,
            default_policy=default_policy,
            accept=accept,
            ask=ask,
            similarity=similarity,
            rules=rules,
            trust=trust,
        )
        self.model = DEFAULT_MODEL
        """How likely each degree of agreement is. `train` replaces it."""

        self._similarity = Similarity(self.preset)
        self._database = open_database(url or DEFAULT)
        self._clock = clock or WallClock()
        self._is_checked = False

    @property
    def url(self) -> str:
        """The URL without its password."""
        return self._database.name

    # ── adding records ──────────────────────────────────────────────────────────────────────────────────────────

    def add(self, record: SourceRecord) -> Decision:
        """Add a `record` to its person or to a new one. Return the decision. Adding it again changes nothing."""
        return self.add_many([record])[0]

    def add_many(self, records: Iterable[SourceRecord]) -> list[Decision]:
        """Add many `records` in one transaction. Return one decision per record, in input order.

        An invalid record is rejected and does not affect the others.
        """
        batch = list(records)
        return self._run_with_retries(lambda tables: self.ingest(tables, batch))

    def add_in(self, connection: Any, record: SourceRecord) -> Decision:
        """Add a `record` in your own transaction on the same database (`connection`). Return the decision."""
        return self.add_many_in(connection, [record])[0]

    def add_many_in(self, connection: Any, records: Iterable[SourceRecord]) -> list[Decision]:
        """Add `records` in your own transaction (`connection`), without committing it. Return the decisions."""
        with self._database.joined(connection) as tables:
            return self.ingest(tables, records)

    @contextmanager
    def transaction(self, *, trial: bool = False) -> Iterator[JoinedPeople]:
        """Open a transaction on the people's database, to commit your own changes together with records.

        It is rolled back if the block raises. With `trial=True` it is always rolled back: the decisions show what would
        happen.
        """
        try:
            with self._database.transaction() as tables:
                yield JoinedPeople(self, tables, self._database.connection)
                if trial:
                    raise _TrialRollback  # noqa: TRY301 (the way to roll back)
        except _TrialRollback:
            pass

    @contextmanager
    def reading(self) -> Iterator[JoinedPeople]:
        """Open a read-only transaction for your own queries.

        They see one snapshot, and neither wait for nor block writers.
        """
        with self._database.reading() as tables:
            yield JoinedPeople(self, tables, self._database.connection)

    def ingest(self, tables: Tables, records: Iterable[SourceRecord]) -> list[Decision]:
        """Ingest records in an open transaction."""
        self._check(tables)
        return ingest(tables, self.preset, self._similarity, records, self._clock.now())

    def _check(self, tables: Tables) -> None:
        """Refuse an index that was built with other fields: it would find no one and create every person again.

        Load the trained model, if there is one.
        """
        if self._is_checked:
            return
        stored = tables.run(sql.GET_META, "preset")
        if stored and stored[0][0] != self.preset.digest:
            raise ConfigurationError(
                f"the index of {self.url} was built with other fields or by an older Onceward",
                hint="declare the fields as before, or call people.reindex()",
            )
        self._load_model(tables)
        if not stored:
            store_declaration(tables, self.preset)
        else:
            self._is_checked = True  # not set above: that write is not committed yet

    def declare(self) -> None:
        """Store the settings of this object as those of the database, for commands that know only the URL.

        If the fields have changed, the index is rebuilt.
        """

        def work(tables: Tables) -> bool:
            stored = tables.run(sql.GET_META, "preset")
            if stored and stored[0][0] != self.preset.digest:
                return True
            store_declaration(tables, self.preset)
            return False

        if self._run_with_retries(work):
            self.reindex()

    def _load_model(self, tables: Tables) -> None:
        """Use the model that was trained, if there is one."""
        trained = tables.run(sql.GET_META, "model")
        if trained:
            self._use_model(msgspec.json.decode(trained[0][0], type=Model))

    def _use_model(self, model: Model) -> None:
        if model != self.model:
            self.model = model
            self._similarity = Similarity(self.preset, model)

    def train(self) -> Model:
        """Estimate a model from the stored records and the answers of operators, use it from now on, and return it.

        It replaces the general estimates of how often fields agree, and of how frequent names are. Stored people stay
        as they are; call `relink` to divide them again. The new model is used by everyone who opens this database.
        """

        def work(tables: Tables) -> Model:
            self._check(tables)
            model = training.train(tables, self.preset)
            tables.run(sql.SET_META, "model", msgspec.json.encode(model).decode())
            return model

        self._use_model(self._run_with_retries(work))
        return self.model

    def relink(self) -> int:
        """Compare all records again and divide them into people, in one transaction. Return the number of records.

        Keys and answers of operators still decide first.
        """

        def work(tables: Tables) -> int:
            self._check(tables)
            return relink(tables, self.preset, self._similarity, self._clock.now())

        return self._run_with_retries(work)

    def link(self, backend: str = "duckdb", *, progress: Callable[[int], None] = lambda _count: None) -> int:
        """Compare all records again in one batch, and divide them into people. Return the number of records.

        The result is that of `relink`. Splink finds the pairs: on DuckDB, which uses all cores of this machine and
        writes to disk what does not fit into memory, or with `backend="spark"` on the Spark session of this process.
        `progress` is called with the number of records that are done. Running it again changes nothing.
        """
        self._run_with_retries(self._check)
        with linking.find_similar_pairs(self._database, self.preset, self.model, backend) as pairs:
            return self._run_with_retries(
                lambda tables: pairs.load(tables, self._similarity, self._clock.now(), progress)
            )

    def reindex(self) -> int:
        """Rebuild the index for the fields declared here, in one transaction. Return the number of records."""
        count = self._run_with_retries(lambda tables: reindex(tables, self.preset, self._clock.now()))
        self._is_checked = True
        return count

    def _run_with_retries(self, work: Callable[[Tables], T]) -> T:
        """Run `work` in its own transaction, and again if another transaction conflicted with it."""
        for _ in range(ATTEMPTS - 1):
            with suppress(RetryTransaction), self._database.transaction() as tables:
                return work(tables)
        with self._database.transaction() as tables:
            return work(tables)

    # ── reviewing ───────────────────────────────────────────────────────────────────────────────────────────────

    def reviews(self, limit: int = 100) -> list[Review]:
        """Return up to `limit` pairs that may be one person, with the evidence, the likeliest first."""
        with self._database.reading() as tables:
            return review.questions(tables, limit)

    def accept(self, one: str, other: str, *, who: str | None = None, seen: Seen = None) -> Person:
        """Merge `one` and `other`, and return the person. The newer id redirects to the older. `seen`: see `reject`."""
        said = who or user_and_host(), self._clock.now()
        survivor = self._run_with_retries(lambda tables: review.same(tables, self.preset, (one, other), said, seen))
        found = self.get(survivor)
        assert found is not None  # noqa: S101 (people are never deleted)
        return found

    def reject(self, one: str, other: str, *, who: str | None = None, seen: Seen = None) -> None:
        """Record that `one` and `other` are different: they are never asked about again, nor merged automatically.

        `seen` has the `updated_at` of both. If they have changed since, or the pair has an answer, nothing is changed.
        """
        said = who or user_and_host(), self._clock.now()
        self._run_with_retries(lambda tables: review.different(tables, (one, other), said, seen))

    def split(self, person: str, numbers: Iterable[int] = (), *, who: str | None = None) -> list[Person]:
        """Split a `person` into groups of records that share no strong key. Return the resulting, distinct people.

        With the `numbers` of contributions, move exactly these into one new person. The first of the resulting people
        keeps the id.
        """
        author, leaving = who or user_and_host(), frozenset(numbers)
        ids = self._run_with_retries(
            lambda tables: split.split(tables, self.preset, person, leaving, (author, self._clock.now()))
        )
        with self._database.reading() as tables:
            return list(queries.people(tables, ids))

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────

    def get(self, person: str) -> Person | None:
        """Return the person with this id. The id of a person who was merged into another one returns that one."""
        with self._database.reading() as tables:
            return queries.one(tables, person)

    def find(self, **key: Any) -> Person | None:
        """Return the person with this strong `key`, or None: `people.find(email="Anna@Example.com")`."""
        name, value = _one(key)
        return self.find_many(**{name: [value]}).get(value)

    def find_many(self, **keys: Iterable[Any]) -> dict[Any, Person]:
        """Return the people with these strong `keys`, in one query: `people.find_many(email=addresses)`.

        The result maps each key, as you passed it, to its person. Keys without a person are absent.
        """
        name, values = _one(keys)
        if isinstance(values, str):
            raise ConfigurationError(f"find_many takes a list of {name}", hint=f"to find one, call find({name}=…)")
        with self._database.reading() as tables:
            return queries.by_keys(tables, self.preset, name, values)

    def search(self, limit: int = 100, **fields: Any) -> list[Person]:
        """Return people whose merged `fields` contain these texts: `people.search(name="schmidt", city="berlin")`.

        Case, accents and punctuation do not matter. A single strong key is looked up in the index; otherwise all people
        are read. At most `limit` people are returned.
        """
        if not fields:
            raise ConfigurationError("pass at least one field to search for", hint='for example name="schmidt"')
        with self._database.reading() as tables:
            return search.search(tables, self.preset, fields, limit)

    def links(self, person: str) -> list[RecordLink]:
        """Return which records of a person similarity has joined, with the evidence for each pair."""
        with self._database.reading() as tables:
            self._load_model(tables)
            found = queries.one(tables, person)
            return [] if found is None else search.links_of(tables, self._similarity, found)

    def delete(self, person: str) -> int:
        """Erase a person: records, keys, ids, questions, and the import's memory of the rows. Return the record count.

        If a source still has the person, its next import adds the person again.
        """
        return self._run_with_retries(lambda tables: erase(tables, person))

    def without_records(self, limit: int = 100) -> list[Person]:
        """Return up to `limit` people whose records all belong to others now. They keep the last known fields."""
        with self._database.reading() as tables:
            return list(queries.without_records(tables, limit))

    def __iter__(self) -> Iterator[Person]:
        """Yield all people ordered by id, read in batches."""
        after = ""
        while True:
            with self._database.reading() as tables:
                batch = list(queries.after(tables, after))
            if not batch:
                return
            yield from batch
            after = batch[-1].id

    def __len__(self) -> int:
        with self._database.reading() as tables:
            return queries.count(tables)

    # ── opening and closing ─────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """Close the connections to the database."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<People on {self.url}>"


def _one(key: Mapping[str, T]) -> tuple[str, T]:
    if len(key) != 1:
        raise ConfigurationError("pass exactly one strong key", hint='for example email="anna@example.com"')
    return next(iter(key.items()))
