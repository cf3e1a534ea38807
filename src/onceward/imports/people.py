"""People as the target of an import, or of a dry run.

A dry run does everything that an import does, so that its counts are the same. For a SQLite file it uses a copy, so
that it blocks no other writer. For other databases it uses one transaction that is rolled back.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path

from onceward.errors import ConfigurationError
from onceward.people.people import JoinedPeople, People
from onceward.stores.sqlite.connection import MEMORY
from onceward.stores.sqlite.url import name_of, parse

from .ledger import CREATE_TABLES, LEDGER_TABLE, LedgerEntry, find, names

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
            yield Target(people)
        elif (path := _file_of(people)) is not None:
            with _temporary_copy(people, path) as copy:
                yield Target(copy)
        else:
            with people.transaction(trial=True) as within:
                within.tables.lock_all()  # with a lock per batch, two dry runs could deadlock
                yield Target(people, within)
    finally:
        if people is not into:
            people.close()


class Target:
    """The people of an import, with one transaction per batch. A dry run has only one, which `target_of` rolls back."""

    def __init__(self, people: People, trial: JoinedPeople | None = None) -> None:
        self.preset = people.preset
        self._people = people
        self._trial = trial

    def transaction(self) -> AbstractContextManager[JoinedPeople]:
        """Open a transaction that commits at its end, unless an exception was raised."""
        return self._people.transaction() if self._trial is None else nullcontext(self._trial)

    def prepare(self) -> None:
        """Create the ledger's tables if they do not exist. If they exist, no privilege to create them is needed."""
        with self.transaction() as tx:
            if not tx.tables.has_table(LEDGER_TABLE):
                tx.tables.lock_keys([TABLES_LOCK])
                for statement in CREATE_TABLES:
                    tx.tables.run(statement)


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
        with People(f"{name_of(str(copy))}?synchronous=NORMAL", **people.preset.settings()) as trial_people:
            yield trial_people


def imports_of(people: People) -> list[LedgerEntry]:
    """Return the progress of each import, sorted by name, for operators. The list is empty if there are none."""
    with people.reading() as within:
        tables = within.tables
        found = [find(tables, name) for name in names(tables)] if tables.has_table(LEDGER_TABLE) else []
    return [entry for entry in found if entry is not None]
