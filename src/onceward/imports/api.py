"""The public API: `import_file` imports a file into people, once per content."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from onceward.errors import ConfigurationError
from onceward.people.people import People

from .columns import ColumnChoices
from .locale import sample
from .open_rows import format_of, open_rows
from .people import target_of
from .runner import BATCH, Import, ImportPlan, OnProgress
from .scan import FileScan, scan
from .summary import Summary


def import_file(
    path: str | os.PathLike[str],
    into: People | str,
    *,
    source: str = "csv",
    name: str | None = None,
    map: Mapping[str, str] | None = None,  # noqa: A002 (named as on the command line)
    ignore: Iterable[str] = (),
    id: str | Iterable[str] = (),
    format: str | None = None,  # noqa: A002 (as above)
    encoding: str | None = None,
    delimiter: str | None = None,
    largest_row: int | None = None,
    dates: str | None = None,
    country: str | None = None,
    rejects: str | os.PathLike[str] | None = None,
    batch: int = BATCH,
    dry_run: bool = False,
    restart: bool = False,
    again: bool = False,
    on_progress: OnProgress | None = None,
) -> Summary:
    """Import a CSV, NDJSON or Parquet file into people, once per content.

    A row that is imported again replaces its earlier version. After an interruption, the same call continues where it
    stopped.

    Args:
        path: The file.
        into: A `People` object, or the URL of their database.
        source: The name of the source that the records belong to.
        name: Identifies the file together with `source`, so that a row of its next edition replaces the earlier one.
            The default is the file's name.
        map: The field that each column means. Columns that you leave out are recognised by their names.
        ignore: Columns to leave out.
        id: The columns that identify a row. The default is its external id or e-mail.
        format: `csv`, `ndjson` or `parquet`. By default the file's extension decides.
        encoding: The encoding of a CSV file. By default it is detected.
        delimiter: The delimiter of a CSV file. By default it is detected.
        largest_row: The maximum number of characters in a row. Larger rows are rejected.
        dates: The order of day, month and year: `dmy`, `mdy` or `ymd`. By default it is detected.
        country: The country of phone numbers without a country code.
        rejects: The CSV file for rejected rows. By default it is next to the file, and named after its content.
        batch: How many rows are committed together.
        dry_run: Only report what would happen. Nothing is stored.
        restart: Start again with a file that was edited after its import was interrupted.
        again: Import content that was imported before.
        on_progress: Called with a `Progress` after each batch.

    Returns:
        The counts, and what was detected and assumed.

    Raises:
        SourceEdited: The file was edited after its import was interrupted, and `restart` is not set.
        SourceError: The file cannot be read as this format.
        ConfigurationError: A column does not exist, or an option cannot work.
    """
    if batch < 1:
        raise ConfigurationError(f"batch is {batch}, and must be at least 1", hint=f"the default is {BATCH}")
    file = Path(path)
    kind = format_of(file, format)
    scanned = scan(file, encoding if kind == "csv" else "utf-8")
    plan = ImportPlan(
        file=file,
        scan=scanned,
        format=kind,
        columns=ColumnChoices(dict(map or {}), tuple(ignore), (id,) if isinstance(id, str) else tuple(id)),
        name=f"{source}/{name or file.name}",
        source=source,
        rejects=_rejects_path(file, scanned, rejects, dry_run=dry_run),
        largest_row=largest_row,
        batch=batch,
        restart=restart,
        again=again,
        dry_run=dry_run,
        on_progress=on_progress,
        dates=dates,
        country=country,
    )
    with closing(open_rows(file, scanned, kind, delimiter=delimiter, largest_row=largest_row)) as first_rows:
        sampled = sample(first_rows) if dates is None else []
    with closing(open_rows(file, scanned, kind, delimiter=delimiter, largest_row=largest_row)) as reader:
        with target_of(into, dry_run=dry_run) as target:
            job = Import(plan, reader, target, sampled)
            summary = job.run()
        return replace(
            summary,
            dry_run=dry_run,
            encoding=scanned.encoding if kind == "csv" else "",
            guessed=scanned.guessed,
            delimiter=getattr(reader, "delimiter", ""),
            overlooked=job.overlooked,
            ignored=dict(job.ignored),
            dates=job.locale.dates or "",
            dates_detected=job.locale.detected,
            dates_ambiguous=job.locale.ambiguous,
            earlier_edition=job.earlier_edition,
        )


def _rejects_path(file: Path, scanned: FileScan, chosen: str | os.PathLike[str] | None, *, dry_run: bool) -> Path:
    """Return the path of the reject file. By default it is named after the content, in the same folder.

    So the rejects of an edited version do not overwrite it.
    """
    path = Path(chosen) if chosen is not None else file.with_name(f"{file.stem}.rejected-{scanned.sha256[:8]}.csv")
    if dry_run:  # the path without the suffix may belong to a run that is active or was interrupted
        path = path.with_stem(f"{path.stem}-trial")
    if path.exists() and path.samefile(file):
        raise ConfigurationError(f"{path} is the file to import itself", hint="choose another name for the reject file")
    return path.absolute()
