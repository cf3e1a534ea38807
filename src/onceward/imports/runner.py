"""One import from its claim to its end: the file is claimed by its content, and every batch commits with its progress.

1. Claim: this content under this name. Completed before: nothing is done. Begun before: it goes on where it stopped.
   Another content was begun under the name: the file was edited since, and that is told.
2. Batch by batch, in one transaction each: move the progress on, take the rows in, write the rejects down, count.
3. Complete, if the file still is what was claimed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from onceward.errors import AlreadyRunning, RetryTransaction, SourceEdited

from . import ledger
from .batch import ImportBatch
from .columns import Columns, Fitted
from .ledger import COMPLETED, ImportClaim, LedgerEntry
from .progress import Progress
from .reject_file import Rejects
from .rows import Read, Reader
from .scan import Scan
from .summary import Summary
from .target import Taking, Target

BATCH: Final = 1_000
"""Rows a transaction: few enough to be short, enough to share its costs."""

HEAVY: Final = 4 << 20
"""Bytes a transaction, roughly: rows may be long, and the memory is not to grow with them."""

ATTEMPTS: Final = 8
"""Of one batch: other writers are in the way once in a while, not always."""

NDJSON_COLUMNS: Final = ("row",)
"""In the reject file, where every row has names of its own: the row as it was."""

Tell = Callable[[Progress], None]


class ImportPlan(Struct, frozen=True, kw_only=True):
    """What is to be imported, and how."""

    file: Path
    seen: Scan
    format: str
    columns: Columns
    name: str
    source: str
    rejects: Path
    largest_row: int | None = None
    batch: int = BATCH
    restart: bool = False
    again: bool = False
    is_trial: bool = False
    on_progress: Tell | None = None


class Import:
    """One run of it."""

    def __init__(self, plan: ImportPlan, reader: Reader, target: Target) -> None:
        self.plan = plan
        self.reader = reader
        self.target = target
        self._claim = ImportClaim(plan.name, plan.seen.sha256, self._choices())
        self._fitted = Fitted(plan.columns, reader.columns, target.fields)
        self.overlooked = self._fitted.overlooked

    def _choices(self) -> str:
        """Who says it, and how the file is read: as it is done, whether it was given or found out."""
        plan, delimiter = self.plan, getattr(self.reader, "delimiter", None)
        encoding = plan.seen.encoding.removesuffix("-sig")
        return plan.columns.digest(plan.source, plan.format, encoding, delimiter, plan.largest_row)

    def run(self) -> Summary:
        self.target.prepare()
        with self.target.transaction() as tx:
            entry = self._claimed(tx)
        if entry.state == COMPLETED:
            return _summary(entry, replayed=True)
        done = self._work(entry)
        return replace(_summary(done), resumed_at=entry.done)

    def _claimed(self, tx: Taking) -> LedgerEntry:
        """COMPLETED: it was done before. PENDING: it is ours to do, from the row behind `done` on."""
        entry = None
        while entry is None:  # if another one claims at the same time, what it has claimed is looked at
            entry = self._found_or_claimed(tx, ledger.find(tx, self.plan.name))
        return entry

    def _found_or_claimed(self, tx: Taking, before: LedgerEntry | None) -> LedgerEntry | None:
        if before is None:
            same = ledger.same_content(tx, self._claim)
            if same is not None and not self.plan.again:
                return same
        elif self._claim.holds(before) and not (self.plan.again if before.state == COMPLETED else self.plan.restart):
            return before
        elif before.state != COMPLETED and not self.plan.restart:
            raise self._edited(before)
        return ledger.claim(tx, before, self._claim, str(self.plan.rejects))

    def _edited(self, before: LedgerEntry) -> SourceEdited:
        same = before.content == self._claim.content
        what = "is imported with other choices" if same else "was edited"
        return SourceEdited(
            f"{self.plan.file.name} {what} since its import stopped behind row {before.done:,}",
            key=self.plan.name,
            hint="bring back what it was and go on, or restart: rows that are unchanged are skipped",
        )

    # ── the work ──

    def _work(self, entry: LedgerEntry) -> LedgerEntry:
        if self.plan.is_trial:  # a reject file of its own, with the rows that it goes through
            entry = replace(entry, rejects=str(self.plan.rejects), rejects_size=0)
        elif not entry.rejects_size:
            entry = replace(entry, rejects=str(self.plan.rejects))  # another place may have been named since
        rejects = Rejects(Path(entry.rejects), self.reader.columns or NDJSON_COLUMNS)
        rejects.check(entry.rejects_size)
        batch = ImportBatch(self._fitted, self.reader.columns, self.plan.source, again=self.plan.again)
        reads = iter(self.reader)
        for _ in islice(reads, entry.done):
            pass  # an earlier run has done these
        pace = Pace(self.plan, self.reader, entry.done)
        try:
            for some in self._batches(reads):
                entry = self._batch(entry, batch, rejects, some)
                if self.plan.on_progress is not None:
                    self.plan.on_progress(pace.progress(entry.done))
            self._complete(entry)
            rejects.finish(entry.rejects_size)
        finally:
            rejects.close()
        return entry

    def _batch(self, entry: LedgerEntry, batch: ImportBatch, rejects: Rejects, reads: list[Read]) -> LedgerEntry:
        """Repeated if another transaction was in its way: nothing of it is left then, but in the reject file."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with self.target.transaction() as tx:
                    return self._taken(tx, entry, batch, rejects, reads)
            except RetryTransaction:
                if attempt == ATTEMPTS:
                    raise
        raise AssertionError  # the last attempt has answered or raised

    def _taken(
        self, tx: Taking, entry: LedgerEntry, batch: ImportBatch, rejects: Rejects, reads: list[Read]
    ) -> LedgerEntry:
        done = entry.done + len(reads)
        if not ledger.move_on(tx, entry, done):
            raise AlreadyRunning(
                f"another import of {self.plan.file.name} went on behind row {entry.done:,}; this one stops",
                key=self.plan.name,
                retry_after=None,
                hint="let it end; to import again afterwards changes nothing",
            )
        taken = batch.take(tx, entry, reads)
        size = rejects.add(taken.rejects, entry.rejects_size)
        after = replace(entry, done=done, counts=entry.counts + taken.counts, rejects_size=size)
        ledger.count(tx, after)
        return after

    def _batches(self, reads: Iterator[Read]) -> Iterator[list[Read]]:
        """So many rows, or so many bytes, whichever comes first."""
        batch: list[Read] = []
        begin = self.reader.position()
        for read in reads:
            batch.append(read)
            if len(batch) == self.plan.batch or self.reader.position() - begin > HEAVY:
                yield batch
                batch, begin = [], self.reader.position()
        if batch:
            yield batch

    def _complete(self, entry: LedgerEntry) -> None:
        if self.reader.digest() != self._claim.content:
            raise SourceEdited(
                f"{self.plan.file.name} was edited while it was imported: {entry.done:,} rows of it are in",
                key=self.plan.name,
                hint="restart: rows that are unchanged are skipped",
            )
        with self.target.transaction() as tx:
            ledger.complete(tx, entry)


class Pace:
    """What progress is measured from."""

    def __init__(self, plan: ImportPlan, reader: Reader, resumed_at: int) -> None:
        self._plan = plan
        self._reader = reader
        self._resumed_at = resumed_at
        self._begun_at = reader.position() if resumed_at else 0
        self._began = time.monotonic()

    def progress(self, done: int) -> Progress:
        return Progress(
            self._plan.file.name,
            done,
            self._reader.position(),
            self._plan.seen.size,
            time.monotonic() - self._began,
            done - self._resumed_at,
            self._begun_at,
        )


def _summary(entry: LedgerEntry, *, replayed: bool = False) -> Summary:
    return Summary(
        name=entry.name,
        counts=entry.counts,
        sha256=entry.content,
        replayed=replayed,
        rejects=entry.rejects if entry.rejects_size else None,
    )
