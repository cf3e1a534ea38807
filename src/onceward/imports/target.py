"""Where an import goes: people, and a transaction on their database that the import's own progress joins."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from onceward.people.source import Decision, SourceRecord

from .ledger import ImportTransaction


class Taking(ImportTransaction, Protocol):
    """One transaction: rows of the ledger, and people."""

    def add(self, records: Sequence[SourceRecord]) -> list[Decision]:
        """One decision a record, in their order."""
        ...


class Target(Protocol):
    """The database of people, as an import sees it."""

    fields: Collection[str]
    """The known fields of a person."""

    def prepare(self) -> None:
        """Make the ledger's tables if they are not there."""
        ...

    def transaction(self) -> AbstractContextManager[Taking]:
        """Commits at its end, unless something was raised."""
        ...
