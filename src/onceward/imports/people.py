"""People as the target of an import, or of a dry run.

A dry run does everything that an import does, so that its counts are the same. For a SQLite file it uses a copy, so
that it blocks no other writer. For other databases it uses one transaction that is rolled back.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

from onceward.errors import ConfigurationError
from onceward.people.people import TABLE_EXISTS, JoinedPeople, People
from onceward.people.source import Decision, SourceRecord
from onceward.stores.sqlite.connection import MEMORY
from onceward.stores.sqlite.url import name_of, parse

from .ledger import CREATE_TABLES
from .target import Target, TargetTransaction

TABLES_LOCK = 0x696D706F727473
"""The key of the lock under which the ledger's tables are created, so that only one process creates them at a time."""


@contextmanager
def target_of(into: People | str, *, dry_run: bool) -> Iterator[Target]:
    """Open the target of an import, or of a dry run, and close what was opened here."""
    checked: object = into
    if not isinstance(checked, People | str):
        raise ConfigurationError(
            f"the target of an import must be people, not {type(checked).__name__}",
            hint='pass a People, or the URL of their database: "sqlite:///people.db"',
        )
    people = People(into) if isinstance(into, str) else into
    try:
        if not dry_run:
            yield DirectTarget(people)
        elif (path := _file_of(people)) is not None:
            with _temporary_copy(people, path) as copy:
                yield DirectTarget(copy)
        else:
            with people.transaction(trial=True) as within:
                within.tables.lock_all()  # with a lock per batch, two dry runs could deadlock
                yield DryRunTarget(people, within)
    finally:
        if people is not into:
            people.close()


class PeopleTransaction:
    """The transaction of people, with the statements of the ledger."""

    def __init__(self, within: JoinedPeople) -> None:
        self._tables = within.tables  # the ledger is in the same schema as the people
        self.add_many = within.add_many

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._tables.run(statement, *values)

    def many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        self._tables.run_many(statement, rows)

    def add(self, records: Sequence[SourceRecord]) -> list[Decision]:
        return self.add_many(records)

    def create_tables(self, people: People) -> None:
        """Create the ledger's tables if they do not exist. Without the privilege, an import works once they exist."""
        statement = TABLE_EXISTS["sqlite" if people.url.startswith("sqlite:") else "postgresql"]
        if not self.rows(statement):
            self._tables.lock_keys([TABLES_LOCK])
            for statement in CREATE_TABLES:
                self.rows(statement)


class DirectTarget:
    """The target of an import: one transaction per batch."""

    def __init__(self, people: People) -> None:
        self._people = people
        self.preset = people.preset
        self.fields: Collection[str] = tuple(people.preset.fields)

    def prepare(self) -> None:
        with self._people.transaction() as within:
            PeopleTransaction(within).create_tables(self._people)

    @contextmanager
    def _transaction(self) -> Iterator[TargetTransaction]:
        with self._people.transaction() as within:
            yield PeopleTransaction(within)

    def transaction(self) -> AbstractContextManager[TargetTransaction]:
        return self._transaction()


class DryRunTarget:
    """The target of a dry run: one transaction for all batches. `target_of` rolls it back."""

    def __init__(self, people: People, within: JoinedPeople) -> None:
        self._people = people
        self._transaction_of_all = PeopleTransaction(within)
        self.preset = people.preset
        self.fields: Collection[str] = tuple(people.preset.fields)

    def prepare(self) -> None:
        self._transaction_of_all.create_tables(self._people)

    @contextmanager
    def _transaction(self) -> Iterator[TargetTransaction]:
        yield self._transaction_of_all

    def transaction(self) -> AbstractContextManager[TargetTransaction]:
        return self._transaction()


def _file_of(people: People) -> Path | None:
    """Return the path of a SQLite file; None for other databases."""
    if not people.url.startswith("sqlite:"):
        return None
    path, _ = parse(people.url)
    return None if path == MEMORY else Path(path)


@contextmanager
def _temporary_copy(people: People, path: Path) -> Iterator[People]:
    """Copy the people, with the same options, into a temporary file. Delete it afterwards."""
    with tempfile.TemporaryDirectory(prefix="onceward-trial-") as folder:
        copy = Path(folder) / "people.db"
        if path.exists():
            source = f"{path.absolute().as_uri()}?mode=ro"
            with closing(sqlite3.connect(source, uri=True)) as real, closing(sqlite3.connect(copy)) as trial:
                real.backup(trial)
        preset = people.preset
        with People(
            f"{name_of(str(copy))}?synchronous=NORMAL",
            fields=preset.fields,
            policies=preset.policies,
            default_policy=preset.default_policy,
            accept=preset.accept,
            ask=preset.ask,
            similarity=preset.use_similarity,
            rules=preset.rules,
            trust=preset.trust,
        ) as trial_people:
            yield trial_people
