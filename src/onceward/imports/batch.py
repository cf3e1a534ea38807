"""Import one batch: skip unchanged rows, pass the others to the people, and collect the rejected rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

from onceward.people.people import JoinedPeople
from onceward.people.source import Decision, SourceRecord

from . import ledger
from .columns import ColumnMapping
from .known_rows import KeyRows, fingerprint, record_id
from .ledger import LedgerEntry
from .locale import Locale
from .rows import AnyRow, BadRow, SourceRow
from .summary import Counts

Reject = tuple[int, str, Sequence[str]]


class BatchResult(Struct, frozen=True):
    """The result of a batch."""

    counts: Counts
    rejects: list[Reject]


class KeyedRow(NamedTuple):
    """A row with its key and its fingerprint."""

    row: SourceRow
    fields: dict[str, str]
    key: str
    digest: str


class Change(NamedTuple):
    """One record for the people, and the rows (usually one) with that content. `row_index`: see `KeyRows.assign`."""

    key: str
    row_index: int
    fields: dict[str, str]
    rows: list[SourceRow]


class ImportBatch:
    """The rows of one transaction."""

    def __init__(
        self, mapping: ColumnMapping, columns: Sequence[str], source: str, *, again: bool, locale: Locale
    ) -> None:
        self._mapping = mapping
        self._columns = columns
        self._source = source
        self._again = again
        self._locale = locale
        self.ignored: Counter[str] = Counter()
        """Values that could not be read, by field."""

    def apply(self, tx: JoinedPeople, entry: LedgerEntry, rows: Sequence[AnyRow]) -> BatchResult:
        rejects: list[Reject] = [(row.line, row.reason, row.cells) for row in rows if isinstance(row, BadRow)]
        keyed, refused = self._keyed([row for row in rows if isinstance(row, SourceRow)])
        changes, touched = self._changes(ledger.known_rows(tx.tables, entry, [one.key for one in keyed]), keyed)
        decisions = tx.add_many([self._record(entry, change) for change in changes]) if changes else []
        for change, decision in zip(changes, decisions, strict=True):
            self.ignored.update(problem.partition(":")[0] for problem in decision.ignored)
            if decision.action == "rejected":
                touched[change.key].clear(change.row_index)
                refused += [(row.line, decision.reason, self._cells(row)) for row in change.rows]
        ledger.save_rows(tx.tables, entry, touched)
        rejects = sorted(rejects + refused, key=lambda reject: reject[0])
        return BatchResult(_counts(len(rows), decisions, len(rejects)), rejects)

    def _changes(
        self, known: Mapping[str, KeyRows], keyed: Sequence[KeyedRow]
    ) -> tuple[list[Change], dict[str, KeyRows]]:
        """Return what the rows change. Several rows with the same content are one change."""
        touched: dict[str, KeyRows] = {}
        changes: dict[tuple[str, str], Change] = {}
        for row, fields, key, digest in keyed:
            key_rows = touched.get(key)
            if key_rows is None:
                key_rows = touched[key] = known.get(key) or KeyRows([])
            changed = key_rows.assign(digest)
            if (key, digest) in changes:
                changes[key, digest].rows.append(row)
            elif changed is not None or self._again:
                changes[key, digest] = Change(key, key_rows.fingerprints.index(digest), fields, [row])
        return list(changes.values()), touched

    def _record(self, entry: LedgerEntry, change: Change) -> SourceRecord:
        return SourceRecord(self._source, change.fields, id=record_id(entry.name, change.key, change.row_index))

    def _keyed(self, rows: Sequence[SourceRow]) -> tuple[list[KeyedRow], list[Reject]]:
        keyed: list[KeyedRow] = []
        refused: list[Reject] = []
        for row in rows:
            try:
                fields = self._locale.apply(self._mapping.fields(row))
            except ValueError as error:
                refused.append((row.line, str(error), self._cells(row)))
            else:
                keyed.append(KeyedRow(row, fields, self._mapping.key(row, fields), fingerprint(fields)))
        return keyed, refused

    def _cells(self, row: SourceRow) -> list[str]:
        if self._columns:
            return [row.values.get(column, "") for column in self._columns]
        return [msgspec.json.encode(row.values).decode()]


def _counts(rows: int, decisions: Sequence[Decision], rejected: int) -> Counts:
    actions = Counter(decision.action for decision in decisions)
    changed = actions["created"] + actions["updated"] + actions["to_review"]
    return Counts(actions["created"], actions["updated"], rows - changed - rejected, rejected, actions["to_review"])
