"""`import_file`: a file into people. The file is claimed by its content; every batch commits with its progress."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from onceward.errors import AlreadyRunning, ConfigurationError, SourceEdited, SourceError

from . import ledger
from .columns import Columns, Fitted
from .ledger import COMPLETED, Entry
from .opening import format_of, open_rows
from .people import target_of
from .progress import Progress
from .rejected import Rejects
from .rows import Read, Reader
from .scan import Scan, scan
from .summary import Summary
from .taking import Batch
from .target import Target

BATCH: Final = 1_000
"""Rows a transaction: few enough to be short, enough to share its costs."""

HEAVY: Final = 4 << 20
"""Bytes a transaction, roughly: rows may be long, and the memory is not to grow with them."""

Tell = Callable[[Progress], None]


def import_file(
    path: str | os.PathLike[str],
    into: object,
    *,
    source: str = "csv",
    name: str | None = None,
    map: Mapping[str, str] | None = None,  # noqa: A002 (the word of the command line)
    ignore: Iterable[str] = (),
    id: str | Iterable[str] = (),
    format: str | None = None,  # noqa: A002 (as above)
    encoding: str | None = None,
    delimiter: str | None = None,
    largest_row: int | None = None,
    rejects: str | os.PathLike[str] | None = None,
    batch: int = BATCH,
    dry_run: bool = False,
    restart: bool = False,
    again: bool = False,
    tell: Tell | None = None,
) -> Summary:
    """Import a CSV, NDJSON or Parquet file into people (or the URL of their database), once per content.

    `map` leads from columns to fields. A row is known by the columns of `id` (else by its external id or e-mail) under
    `name` (the file's own): when it comes again, it replaces itself. Interrupted, the same call goes on where it
    stopped; if the file was edited since, that is a `SourceEdited`, unless `restart`. `again` imports what was
    imported before.
    """
    file = Path(path)
    if batch < 1:
        raise ConfigurationError(f"a batch of {batch} rows is none", hint=f"batch={BATCH} is the default")
    kind = format_of(file, format)
    seen = scan(file, encoding if kind == "csv" else "utf-8")
    chosen = Columns(dict(map or {}), tuple(ignore), (id,) if isinstance(id, str) else tuple(id))
    reader = open_rows(file, seen, kind, delimiter=delimiter, largest_row=largest_row)
    try:
        with target_of(into, dry_run=dry_run) as target:
            one = _Import(file, seen, reader, target, chosen, f"{source}/{name or file.name}", source)
            one.batch, one.again, one.tell = batch, again, tell
            one.rejects_path = _rejects_path(file, seen, rejects, dry_run=dry_run)
            summary = one.run(restart=restart)
    finally:
        reader.close()
    return replace(
        summary,
        dry_run=dry_run,
        encoding=seen.encoding if kind == "csv" else "",
        guessed=seen.guessed,
        delimiter=getattr(reader, "delimiter", ""),
    )


class _Import:
    """One import from its claim to its end."""

    batch = BATCH
    again = False
    tell: Tell | None = None
    rejects_path: Path

    def __init__(
        self, file: Path, seen: Scan, reader: Reader, target: Target, chosen: Columns, name: str, source: str
    ) -> None:
        self.file = file
        self.seen = seen
        self.reader = reader
        self.target = target
        self.name = name
        self.source = source
        self.digest = chosen.digest()
        self.fitted = Fitted(chosen, reader.columns, target.fields)

    def run(self, *, restart: bool) -> Summary:
        self.target.prepare()
        with self.target.transaction() as tx:
            before = ledger.find(tx, self.name)
            done = self._done_before(before) or (ledger.same_content(tx, self.seen.sha256, self.digest) if before is None else None)
            if done is not None and not self.again:
                return self._summary(done, replayed=True)
            entry = before if before is not None and self._is_this(before) else None
            if entry is None or entry.state == COMPLETED:
                if before is not None and before.state != COMPLETED and not restart:
                    raise self._edited(before)
                entry = ledger.claim(tx, before, self.name, self.seen.sha256, self.digest, str(self.rejects_path))
        return self._work(entry)

    def _is_this(self, entry: Entry) -> bool:
        return (entry.content, entry.columns) == (self.seen.sha256, self.digest)

    def _done_before(self, entry: Entry | None) -> Entry | None:
        return entry if entry is not None and entry.state == COMPLETED and self._is_this(entry) else None

    def _edited(self, before: Entry) -> SourceError:
        what = "was edited" if before.content != self.seen.sha256 else "is imported with other choices of columns"
        return SourceEdited(
            f"{self.file.name} {what} since its import stopped behind row {before.done:,}",
            key=self.name,
            hint="bring back what it was and go on, or restart: rows that are unchanged are skipped",
        )

    # ── the work ──

    def _work(self, entry: Entry) -> Summary:
        resumed_at = entry.done
        columns = self.reader.columns or ("row",)
        rejects = Rejects(Path(entry.rejects), columns, entry.rejects_size)
        rejects.check()
        taking = Batch(self.fitted, self.reader.columns, self.source, again=self.again)
        reads = iter(self.reader)
        for _ in islice(reads, resumed_at):
            pass
        pace = _Pace(self, resumed_at)
        try:
            for batch in self._batches(reads):
                entry = self._batch(entry, taking, rejects, batch)
                if self.tell is not None:
                    self.tell(pace.progress(entry.done))
            self._end(entry)
        finally:
            rejects.close()
        return replace(self._summary(entry), resumed_at=resumed_at)

    def _batch(self, entry: Entry, taking: Batch, rejects: Rejects, reads: list[Read]) -> Entry:
        done = entry.done + len(reads)
        with self.target.transaction() as tx:
            if not ledger.move_on(tx, entry, done):
                raise AlreadyRunning(
                    f"another import of {self.file.name} goes on behind row {entry.done:,}; this one stops",
                    key=self.name,
                    retry_after=None,
                    hint="let it end; to import again afterwards changes nothing",
                )
            taken = taking.take(tx, entry, reads)
            rejects.add(taken.rejects)
            counts = entry.counts + taken.counts
            ledger.count(tx, entry, counts, entry.rejects, rejects.size)
        return replace(entry, done=done, counts=counts, rejects_size=rejects.size)

    def _batches(self, reads: Iterator[Read]) -> Iterator[list[Read]]:
        """So many rows, or so many bytes, whichever comes first."""
        batch: list[Read] = []
        begin = self.reader.position()
        for read in reads:
            batch.append(read)
            if len(batch) == self.batch or self.reader.position() - begin > HEAVY:
                yield batch
                batch, begin = [], self.reader.position()
        if batch:
            yield batch

    def _end(self, entry: Entry) -> None:
        if self.reader.digest() != self.seen.sha256:
            raise SourceEdited(
                f"{self.file.name} was edited while it was imported: {entry.done:,} rows of it are in",
                key=self.name,
                hint="restart: rows that are unchanged are skipped",
            )
        with self.target.transaction() as tx:
            ledger.complete(tx, entry)

    def _summary(self, entry: Entry, *, replayed: bool = False) -> Summary:
        return Summary(
            name=entry.name,
            counts=entry.counts,
            sha256=entry.content,
            replayed=replayed,
            rejects=entry.rejects if entry.counts.rejected else None,
        )


class _Pace:
    """What progress is measured from."""

    def __init__(self, one: _Import, resumed_at: int) -> None:
        self._one = one
        self._resumed_at = resumed_at
        self._begun_at = one.reader.position() if resumed_at else 0
        self._began = time.monotonic()

    def progress(self, done: int) -> Progress:
        return Progress(
            self._one.file.name,
            done,
            self._one.reader.position(),
            self._one.seen.size,
            time.monotonic() - self._began,
            done - self._resumed_at,
            self._begun_at,
        )


def _rejects_path(file: Path, seen: Scan, given: str | os.PathLike[str] | None, *, dry_run: bool) -> Path:
    """Beside the file, and named after its content: the rejects of another edition are not written over."""
    if dry_run:
        return Path(os.devnull)
    path = Path(given) if given is not None else file.with_name(f"{file.stem}.rejected-{seen.sha256[:8]}.csv")
    if path.exists() and file.exists() and path.samefile(file):
        raise ConfigurationError(f"{path} is the file to import itself", hint="give the reject file another name")
    return path.absolute()
