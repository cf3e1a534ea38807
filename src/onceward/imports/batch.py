"""One batch: what is unchanged is skipped, the rest goes to the people, and what they refuse is rejected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

from onceward.people.source import Decision, SourceRecord

from . import ledger
from .columns import Fitted
from .known_rows import Places, fingerprint, record_id
from .ledger import LedgerEntry
from .rows import Bad, Read, Row
from .summary import Counts
from .target import Taking

Reject = tuple[int, str, Sequence[str]]


class Taken(Struct, frozen=True):
    """What became of a batch."""

    counts: Counts
    rejects: list[Reject]


class Named(NamedTuple):
    """A row with its key and its fingerprint."""

    row: Row
    fields: dict[str, str]
    key: str
    mark: str


class Change(NamedTuple):
    """What goes to the people: the rows (usually one) that say it, and the place of the key where it stands."""

    key: str
    place: int
    fields: dict[str, str]
    rows: list[Row]


class ImportBatch:
    """The rows of one transaction."""

    def __init__(self, fitted: Fitted, columns: Sequence[str], source: str, *, again: bool) -> None:
        self._fitted = fitted
        self._columns = columns
        self._source = source
        self._again = again

    def take(self, tx: Taking, entry: LedgerEntry, reads: Sequence[Read]) -> Taken:
        rejects: list[Reject] = [(read.line, read.reason, read.cells) for read in reads if isinstance(read, Bad)]
        named, refused = self._named([read for read in reads if isinstance(read, Row)])
        changes, touched = self._changes(ledger.known_rows(tx, entry, [one.key for one in named]), named)
        decisions = tx.add([self._record(entry, change) for change in changes]) if changes else []
        for change, decision in zip(changes, decisions, strict=True):
            if decision.action == "rejected":
                touched[change.key].vacate(change.place)
                refused += [(row.line, decision.reason, self._cells(row)) for row in change.rows]
        ledger.keep_rows(tx, entry, touched)
        rejects = sorted(rejects + refused, key=lambda reject: reject[0])
        return Taken(_counts(len(reads), decisions, len(rejects)), rejects)

    def _changes(self, known: Mapping[str, Places], named: Sequence[Named]) -> tuple[list[Change], dict[str, Places]]:
        """What the rows change: one change for several rows that say the same."""
        touched: dict[str, Places] = {}
        changes: dict[tuple[str, str], Change] = {}
        for row, fields, key, mark in named:
            places = touched.get(key)
            if places is None:
                places = touched[key] = known.get(key) or Places([])
            place = places.take(mark)
            if (key, mark) in changes:
                changes[key, mark].rows.append(row)
            elif place is not None or self._again:
                changes[key, mark] = Change(key, places.fingerprints.index(mark), fields, [row])
        return list(changes.values()), touched

    def _record(self, entry: LedgerEntry, change: Change) -> SourceRecord:
        return SourceRecord(self._source, change.fields, id=record_id(entry.name, change.key, change.place))

    def _named(self, rows: Sequence[Row]) -> tuple[list[Named], list[Reject]]:
        named: list[Named] = []
        refused: list[Reject] = []
        for row in rows:
            try:
                fields = self._fitted.fields(row)
            except ValueError as error:
                refused.append((row.line, str(error), self._cells(row)))
            else:
                named.append(Named(row, fields, self._fitted.key(row, fields), fingerprint(fields)))
        return named, refused

    def _cells(self, row: Row) -> list[str]:
        if self._columns:
            return [row.values.get(column, "") for column in self._columns]
        return [msgspec.json.encode(row.values).decode()]


def _counts(rows: int, decisions: Sequence[Decision], rejected: int) -> Counts:
    told = Counter(decision.action for decision in decisions)
    acted = told["created"] + told["updated"] + told["to_review"]
    return Counts(told["created"], told["updated"], rows - acted - rejected, rejected, told["to_review"])
