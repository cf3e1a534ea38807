"""The interface of an import's target: people, and a transaction on their database that includes the progress."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from onceward.people.fields import Preset
from onceward.people.source import Decision, SourceRecord

from .ledger import ImportTransaction


class TargetTransaction(ImportTransaction, Protocol):
    """One transaction that writes both to the ledger and to the people."""

    def add(self, records: Sequence[SourceRecord]) -> list[Decision]:
        """Add records to the people. Return a decision for each, in order."""
        ...


class Target(Protocol):
    """The database into which a file is imported."""

    fields: Collection[str]
    """The known fields of a person."""

    preset: Preset

    def prepare(self) -> None:
        """Create the ledger's tables if they do not exist."""
        ...

    def transaction(self) -> AbstractContextManager[TargetTransaction]:
        """Open a transaction that commits at its end, unless an exception was raised."""
        ...
