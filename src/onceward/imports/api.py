"""`import_file`: a file into people, once per content."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from onceward.errors import ConfigurationError
from onceward.people.people import People

from .columns import Columns
from .open_rows import format_of, open_rows
from .people import target_of
from .runner import BATCH, Import, ImportPlan, Tell
from .scan import Scan, scan
from .summary import Summary


def import_file(
    path: str | os.PathLike[str],
    into: People | str,
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
    on_progress: Tell | None = None,
) -> Summary:
    """Import a CSV, NDJSON or Parquet file into people (or the URL of their database), once per content.

    `map` leads from columns to fields. A row is known by the columns of `id` (else by its external id or e-mail) under
    `name` (the file's own): when it comes again, it replaces itself. Interrupted, the same call goes on where it
    stopped; if the file was edited since, that is a `SourceEdited`, unless `restart`. `again` imports what was
    imported before.
    """
    if batch < 1:
        raise ConfigurationError(f"a batch of {batch} rows is none", hint=f"batch={BATCH} is the default")
    file = Path(path)
    kind = format_of(file, format)
    seen = scan(file, encoding if kind == "csv" else "utf-8")
    plan = ImportPlan(
        file=file,
        seen=seen,
        format=kind,
        columns=Columns(dict(map or {}), tuple(ignore), (id,) if isinstance(id, str) else tuple(id)),
        name=f"{source}/{name or file.name}",
        source=source,
        rejects=_rejects_path(file, seen, rejects, dry_run=dry_run),
        largest_row=largest_row,
        batch=batch,
        restart=restart,
        again=again,
        is_trial=dry_run,
        on_progress=on_progress,
    )
    with closing(open_rows(file, seen, kind, delimiter=delimiter, largest_row=largest_row)) as reader:
        with target_of(into, dry_run=dry_run) as target:
            work = Import(plan, reader, target)
            summary = work.run()
        return replace(
            summary,
            dry_run=dry_run,
            encoding=seen.encoding if kind == "csv" else "",
            guessed=seen.guessed,
            delimiter=getattr(reader, "delimiter", ""),
            overlooked=work.overlooked,
        )


def _rejects_path(file: Path, seen: Scan, given: str | os.PathLike[str] | None, *, dry_run: bool) -> Path:
    """Beside the file, and named after its content: the rejects of another edition are not written over."""
    path = Path(given) if given is not None else file.with_name(f"{file.stem}.rejected-{seen.sha256[:8]}.csv")
    if dry_run:  # a run that is under way, or was interrupted, has written the other one
        path = path.with_stem(f"{path.stem}-trial")
    if path.exists() and path.samefile(file):
        raise ConfigurationError(f"{path} is the file to import itself", hint="give the reject file another name")
    return path.absolute()
