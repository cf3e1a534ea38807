"""One import, from its claim to its end: the file is claimed by its content, and every batch commits with its progress.

1. Claim this content under this name. If it was completed before, nothing is done. If it was begun before, the import
   continues where it stopped. If another content was begun under the name, the file was edited: `SourceEdited`.
2. For each batch, in one transaction: advance the progress, import the rows, write the rejects, save the counts.
3. Complete, if the file is still what was claimed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from onceward.errors import AlreadyRunning, RetryTransaction, SourceEdited
from onceward.people.people import JoinedPeople

from . import ledger
from .batch import ImportBatch
from .columns import ColumnChoices, ColumnMapping
from .editions import earlier_edition
from .ledger import COMPLETED, ImportClaim, LedgerEntry
from .locale import locale_of
from .people import Target
from .progress import Progress
from .reject_file import RejectFile
from .rows import AnyRow, RowReader, SourceRow
from .scan import FileScan
from .summary import Summary

BATCH: Final = 1_000
"""Rows per transaction: few enough to keep it short, and enough to share its cost."""

BATCH_BYTES: Final = 4 << 20
"""Bytes per transaction, approximately: memory must stay bounded even if rows are long."""

ATTEMPTS: Final = 8
"""Attempts per batch: conflicts with other writers are occasional."""

NDJSON_COLUMNS: Final = ("row",)
"""The column of the reject file if every row has its own columns: it holds the original row."""

OnProgress = Callable[[Progress], None]


class ImportPlan(Struct, frozen=True, kw_only=True):
    """The file to import, and the options."""

    file: Path
    scan: FileScan
    format: str
    columns: ColumnChoices
    name: str
    source: str
    rejects: Path
    largest_row: int | None = None
    batch: int = BATCH
    restart: bool = False
    again: bool = False
    dry_run: bool = False
    on_progress: OnProgress | None = None
    dates: str | None = None
    country: str | None = None


class Import:
    """One run of an import."""

    def __init__(self, plan: ImportPlan, reader: RowReader, target: Target, sampled: Sequence[SourceRow] = ()) -> None:
        self.plan = plan
        self.reader = reader
        self.target = target
        self._mapping = ColumnMapping(plan.columns, reader.columns, tuple(target.preset.fields))
        self.overlooked = self._mapping.overlooked
        self.locale = locale_of(target.preset, self._mapped(sampled), plan.dates, plan.country)
        self._claim = ImportClaim(plan.name, plan.scan.sha256, self._options_digest())
        self.ignored: Mapping[str, int] = {}
        self.earlier_edition: str | None = None

    def _mapped(self, rows: Iterable[SourceRow]) -> Iterator[dict[str, str]]:
        for row in rows:
            with suppress(ValueError):  # the row is rejected when it is imported
                yield self._mapping.fields(row)

    def _options_digest(self) -> str:
        """Return a digest of the source and of how the file is read, whether given or detected."""
        plan, delimiter = self.plan, getattr(self.reader, "delimiter", None)
        encoding = plan.scan.encoding.removesuffix("-sig")
        more = [one for one in (self.locale.dates, self.locale.country) if one is not None]
        return plan.columns.digest(plan.source, plan.format, encoding, delimiter, plan.largest_row, *more)

    def run(self) -> Summary:
        self.target.prepare()
        with self.target.transaction() as tx:
            self.earlier_edition = earlier_edition(self.plan.name, ledger.names(tx.tables))
            entry = self._find_or_claim(tx)
        if entry.state == COMPLETED:
            return _summary(entry, replayed=True)
        done = self._run_batches(entry)
        return replace(_summary(done), resumed_at=entry.done)

    def _find_or_claim(self, tx: JoinedPeople) -> LedgerEntry:
        """Return the entry. If it is COMPLETED, it was imported before; if PENDING, this run continues after `done`."""
        entry = None
        while entry is None:  # another process claimed at the same time: read its claim
            entry = self._try_claim(tx, ledger.find(tx.tables, self.plan.name))
        return entry

    def _try_claim(self, tx: JoinedPeople, before: LedgerEntry | None) -> LedgerEntry | None:
        if before is None:
            same = ledger.same_content(tx.tables, self._claim)
            if same is not None and not self.plan.again:
                return same
        elif self._claim.matches(before) and not (self.plan.again if before.state == COMPLETED else self.plan.restart):
            return before
        elif before.state != COMPLETED and not self.plan.restart:
            raise self._edited(before)
        return ledger.claim(tx.tables, before, self._claim, str(self.plan.rejects))

    def _edited(self, before: LedgerEntry) -> SourceEdited:
        same = before.content == self._claim.content
        what = "has other import options" if same else "was edited"
        return SourceEdited(
            f"{self.plan.file.name} {what} since its import stopped after row {before.done:,}",
            key=self.plan.name,
            hint="restore it to continue, or restart: unchanged rows are skipped",
        )

    # ── batches ──

    def _run_batches(self, entry: LedgerEntry) -> LedgerEntry:
        if self.plan.dry_run:  # a dry run has a reject file of its own
            entry = replace(entry, rejects=str(self.plan.rejects), rejects_size=0)
        elif not entry.rejects_size:
            entry = replace(entry, rejects=str(self.plan.rejects))  # the caller may have chosen another path since
        rejects = RejectFile(Path(entry.rejects), self.reader.columns or NDJSON_COLUMNS)
        rejects.check(entry.rejects_size)
        batch = ImportBatch(
            self._mapping, self.reader.columns, self.plan.source, again=self.plan.again, locale=self.locale
        )
        self.ignored = batch.ignored
        rows = iter(self.reader)
        for _ in islice(rows, entry.done):
            pass  # an earlier run has imported these
        resumed_at, began = entry.done, time.monotonic()
        begun_at = self.reader.position() if resumed_at else 0
        try:
            for chunk in self._batches(rows):
                entry = self._import_batch(entry, batch, rejects, chunk)
                if self.plan.on_progress is not None:
                    seconds, fresh = time.monotonic() - began, entry.done - resumed_at
                    position, size = self.reader.position(), self.plan.scan.size
                    name = self.plan.file.name
                    self.plan.on_progress(Progress(name, entry.done, position, size, seconds, fresh, begun_at))
            self._complete(entry)
            rejects.finish(entry.rejects_size)
        finally:
            rejects.close()
        return entry

    def _import_batch(
        self, entry: LedgerEntry, batch: ImportBatch, rejects: RejectFile, rows: list[AnyRow]
    ) -> LedgerEntry:
        """Import one batch. Repeat it after a conflict with another transaction: only the reject file keeps a trace."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with self.target.transaction() as tx:
                    return self._apply(tx, entry, batch, rejects, rows)
            except RetryTransaction:
                if attempt == ATTEMPTS:
                    raise
        raise AssertionError  # the last attempt returned or raised

    def _apply(
        self, tx: JoinedPeople, entry: LedgerEntry, batch: ImportBatch, rejects: RejectFile, rows: list[AnyRow]
    ) -> LedgerEntry:
        done = entry.done + len(rows)
        if not ledger.advance(tx.tables, entry, done):
            raise AlreadyRunning(
                f"another import of {self.plan.file.name} continued after row {entry.done:,}; this one stops",
                key=self.plan.name,
                retry_after=None,
                hint="let it finish; importing the file again afterwards changes nothing",
            )
        result = batch.apply(tx, entry, rows)
        size = rejects.add(result.rejects, entry.rejects_size)
        after = replace(entry, done=done, counts=entry.counts + result.counts, rejects_size=size)
        ledger.save_counts(tx.tables, after)
        return after

    def _batches(self, rows: Iterator[AnyRow]) -> Iterator[list[AnyRow]]:
        """Yield batches of `plan.batch` rows, or of BATCH_BYTES, whichever is reached first."""
        batch: list[AnyRow] = []
        begin = self.reader.position()
        for row in rows:
            batch.append(row)
            if len(batch) == self.plan.batch or self.reader.position() - begin > BATCH_BYTES:
                yield batch
                batch, begin = [], self.reader.position()
        if batch:
            yield batch

    def _complete(self, entry: LedgerEntry) -> None:
        if self.reader.digest() != self._claim.content:
            raise SourceEdited(
                f"{self.plan.file.name} was edited while it was imported: {entry.done:,} rows are already imported",
                key=self.plan.name,
                hint="restart: unchanged rows are skipped",
            )
        with self.target.transaction() as tx:
            ledger.complete(tx.tables, entry)


def _summary(entry: LedgerEntry, *, replayed: bool = False) -> Summary:
    return Summary(
        name=entry.name,
        counts=entry.counts,
        sha256=entry.content,
        replayed=replayed,
        rejects=entry.rejects if entry.rejects_size else None,
    )
