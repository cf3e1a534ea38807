"""People as the target of an import; for a dry run, people who are not really there.

A dry run does all that the real one does, so that its counts are the same: on a copy of a SQLite file, so that nobody
waits for it; elsewhere in one transaction that is rolled back.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

from onceward.errors import ConfigurationError
from onceward.people.people import People, Within
from onceward.people.source import Decision, SourceRecord
from onceward.stores.sqlite.connection import MEMORY
from onceward.stores.sqlite.url import name_of, parse

from .ledger import MAKE
from .target import Taking, Target

MAKING = 0x696D706F727473
"""Claimed by those who make the ledger's tables, so that two do it one after the other."""

THERE = {
    "sqlite": "SELECT 1 FROM sqlite_master WHERE name = 'onceward_import_rows'",
    "postgresql": "SELECT 1 WHERE to_regclass('{t}onceward_import_rows') IS NOT NULL",
}


@contextmanager
def target_of(into: People | str, *, dry_run: bool) -> Iterator[Target]:
    """The people, or a trial of them. What was opened here is closed here."""
    given: object = into
    if not isinstance(given, People | str):
        raise ConfigurationError(
            f"an import goes into people, not into {type(given).__name__}",
            hint='give a People, or the URL of their database: "sqlite:///people.db"',
        )
    people = People(into) if isinstance(into, str) else into
    try:
        if not dry_run:
            yield Real(people)
        elif (path := _file_of(people)) is not None:
            with _copied(people, path) as copy:
                yield Real(copy)
        else:
            with people.transaction(trial=True) as within:
                within.tables.lock_all()  # else batch by batch: two could wait for each other in a circle
                yield Trial(people, within)
    finally:
        if people is not into:
            people.close()


class PeopleTaking:
    """The transaction of people, with the statements of the ledger."""

    def __init__(self, within: Within) -> None:
        self._tables = within.tables  # the ledger is at home beside the tables of people
        self.add_many = within.add_many

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._tables.run(statement, *values)

    def many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        self._tables.run_many(statement, rows)

    def add(self, records: Sequence[SourceRecord]) -> list[Decision]:
        return self.add_many(records)

    def make(self, people: People) -> None:
        """Only if they are not there: whoever may not make tables may import once somebody else has made them."""
        there = THERE["sqlite" if people.url.startswith("sqlite:") else "postgresql"]
        if not self.rows(there):
            self._tables.lock_keys([MAKING])
            for statement in MAKE:
                self.rows(statement)


class Real:
    """People to whom it really happens."""

    def __init__(self, people: People) -> None:
        self._people = people
        self.fields: Collection[str] = tuple(people.preset.fields)

    def prepare(self) -> None:
        with self._people.transaction() as within:
            PeopleTaking(within).make(self._people)

    @contextmanager
    def _transaction(self) -> Iterator[Taking]:
        with self._people.transaction() as within:
            yield PeopleTaking(within)

    def transaction(self) -> AbstractContextManager[Taking]:
        return self._transaction()


class Trial:
    """One transaction for everything, which its owner rolls back."""

    def __init__(self, people: People, within: Within) -> None:
        self._people = people
        self._taking = PeopleTaking(within)
        self.fields: Collection[str] = tuple(people.preset.fields)

    def prepare(self) -> None:
        self._taking.make(self._people)

    @contextmanager
    def _transaction(self) -> Iterator[Taking]:
        yield self._taking

    def transaction(self) -> AbstractContextManager[Taking]:
        return self._transaction()


def _file_of(people: People) -> Path | None:
    """Of a SQLite file; None for anything else."""
    if not people.url.startswith("sqlite:"):
        return None
    path, _ = parse(people.url)
    return None if path == MEMORY else Path(path)


@contextmanager
def _copied(people: People, path: Path) -> Iterator[People]:
    """The same people with the same choices in a file of their own, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="onceward-trial-") as folder:
        copy = Path(folder) / "people.db"
        if path.exists():
            source = f"{path.absolute().as_uri()}?mode=ro"
            with closing(sqlite3.connect(source, uri=True)) as real, closing(sqlite3.connect(copy)) as trial:
                real.backup(trial)
        chosen = people.preset
        with People(
            f"{name_of(str(copy))}?synchronous=NORMAL",
            fields=chosen.fields,
            policies=chosen.policies,
            default_policy=chosen.default_policy,
            accept=chosen.accept,
            ask=chosen.ask,
            similarity=chosen.use_similarity,
        ) as trial_people:
            yield trial_people
